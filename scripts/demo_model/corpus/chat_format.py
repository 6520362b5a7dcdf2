"""The chat format: ChatML turns, tools, calls, results and reasoning, in Python and as a Jinja template.

Decides how messages become text. `render` and `CHAT_TEMPLATE` write the same text; the template has no line break
outside its expressions, so that trim_blocks and lstrip_blocks change nothing.

    <|im_start|>system
    You are kind.

    Tools:
    - get_weather(city: string, unit?: "celsius" | "kelvin"): The weather of a city
    To use a tool, reply with <tool_call>{"name": ..., "arguments": {...}}</tool_call>.<|im_end|>
    <|im_start|>user
    How warm is Rome?<|im_end|>
    <|im_start|>assistant
    <tool_call>
    {"name": "get_weather", "arguments": {"city": "Rome"}}
    </tool_call><|im_end|>
    <|im_start|>user
    <tool_response>
    21
    </tool_response><|im_end|>

Reasoning, one rule: an assistant turn that has reasoning starts with "<think>\\n...\\n</think>\\n\\n", and reasoning in
a message is always written. The model opens a thought by itself where the system turn or the last user turn says
"Think step by step."; with `enable_thinking` the generation prompt already ends with "<think>\\n".
Tool results that follow each other share one user turn.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

START, END = "<|im_start|>", "<|im_end|>"
ASSISTANT = f"{START}assistant\n"
TOOL_HINT = 'To use a tool, reply with <tool_call>{"name": ..., "arguments": {...}}</tool_call>.'

Message = Mapping[str, Any]


def turn(role: str, text: str) -> str:
    return f"{START}{role}\n{text}{END}\n"


def content_text(content: object) -> str:
    match content:
        case None:
            return ""
        case str():
            return content
        case _:
            return "".join(part["text"] for part in content if part["type"] == "text")  # type: ignore[attr-defined]


def type_text(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " | ".join(json.dumps(value, ensure_ascii=False) for value in schema["enum"])
    kind = schema.get("type")
    if not isinstance(kind, str):
        return "any"
    return f"{schema['items'].get('type', 'any')}[]" if kind == "array" and "items" in schema else kind


def tool_line(tool: Mapping[str, Any]) -> str:
    """One tool of the OpenAI form as a line: name(argument: type, optional?: type): description."""
    function = tool.get("function", tool)
    schema = function.get("parameters") or {}
    required = schema.get("required") or ()
    arguments = ", ".join(
        f"{name}{'' if name in required else '?'}: {type_text(argument)}"
        for name, argument in (schema.get("properties") or {}).items()
    )
    description = (function.get("description") or "").strip().split("\n")[0]
    return f"- {function['name']}({arguments})" + (f": {description}" if description else "")


def tools_text(lines: Sequence[str]) -> str:
    return "Tools:\n" + "\n".join(lines) + "\n" + TOOL_HINT


def system_text(text: str, lines: Sequence[str]) -> str:
    """The system turn's text: what the caller says, then the tools."""
    return f"{text}\n\n{tools_text(lines)}" if text and lines else tools_text(lines) if lines else text


def call_text(name: str, arguments: object) -> str:
    written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return f'<tool_call>\n{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": {written}}}\n</tool_call>'


def response_text(result: str) -> str:
    return f"<tool_response>\n{result}\n</tool_response>"


def thought_text(reasoning: str) -> str:
    return f"<think>\n{reasoning}\n</think>\n\n"


def assistant_text(message: Message) -> str:
    text = content_text(message.get("content"))
    calls = "\n".join(
        call_text(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls") or ()
    )
    reasoning = message.get("reasoning_content")
    return (thought_text(reasoning) if reasoning else "") + text + ("\n" if text and calls else "") + calls


def render(
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]] | None = None,
    add_generation_prompt: bool = False,
    enable_thinking: bool = False,
) -> str:
    out = []
    leads = bool(messages) and messages[0]["role"] == "system"
    if tools:
        text = content_text(messages[0].get("content")) if leads else ""
        out.append(turn("system", system_text(text, [tool_line(tool) for tool in tools])))
    for index, message in enumerate(messages):
        match message["role"]:
            case "system":
                if index or not tools:
                    out.append(turn("system", content_text(message.get("content"))))
            case "assistant":
                out.append(turn("assistant", assistant_text(message)))
            case "tool":
                opens = index == 0 or messages[index - 1]["role"] != "tool"
                closes = index + 1 == len(messages) or messages[index + 1]["role"] != "tool"
                result = response_text(content_text(message.get("content")))
                out.append((f"{START}user\n" if opens else "\n") + result + (f"{END}\n" if closes else ""))
            case _:
                out.append(turn("user", content_text(message.get("content"))))
    return (
        "".join(out)
        + (ASSISTANT if add_generation_prompt else "")
        + ("<think>\n" if add_generation_prompt and enable_thinking else "")
    )


CHAT_TEMPLATE = "".join(
    (
        # content: None, a string, or a list of parts
        "{%- macro content_text(content) -%}",
        "{%- if content is string -%}{{- content -}}",
        "{%- elif content -%}",
        "{%- for part in content -%}{%- if part.type == 'text' -%}{{- part.text -}}{%- endif -%}{%- endfor -%}",
        "{%- endif -%}",
        "{%- endmacro -%}",
        # the type of one argument
        "{%- macro type_text(schema) -%}",
        "{%- if schema.enum is defined -%}",
        "{%- for value in schema.enum -%}{{- value | tojson -}}{{- '' if loop.last else ' | ' -}}{%- endfor -%}",
        "{%- elif schema.type is not string -%}any",
        "{%- elif schema.type == 'array' and schema['items'] is mapping -%}{{- schema['items'].type or 'any' -}}[]",
        "{%- else -%}{{- schema.type -}}{%- endif -%}",
        "{%- endmacro -%}",
        # one tool as a line
        "{%- macro tool_line(tool) -%}",
        "{%- set f = tool.function if tool.function is defined else tool -%}",
        "{%- set schema = f.parameters or {} -%}{%- set required = dict.fromkeys(schema.required or []) -%}",
        "{{- '- ' + f.name + '(' -}}",
        "{%- for name, argument in (schema.properties or {}).items() -%}",
        "{{- name + ('' if name in required else '?') + ': ' + type_text(argument) + ('' if loop.last else ', ') -}}",
        "{%- endfor -%}",
        "{{- ')' -}}",
        "{%- set description = (f.description or '').strip().split('\\n')[0] -%}",
        "{{- ': ' + description if description else '' -}}",
        "{%- endmacro -%}",
        # the system turn with the tools
        "{%- if tools -%}",
        "{{- '<|im_start|>system\\n' -}}",
        "{%- set said = content_text(messages[0].content) if messages and messages[0].role == 'system' else '' -%}",
        "{{- said + '\\n\\n' if said else '' -}}",
        "{{- 'Tools:\\n' -}}",
        "{%- for tool in tools -%}{{- tool_line(tool) + '\\n' -}}{%- endfor -%}",
        f"{{{{- '{TOOL_HINT}<|im_end|>\\n' -}}}}",
        "{%- endif -%}",
        "{%- for message in messages -%}",
        "{%- if message.role == 'system' -%}",
        "{%- if not (loop.first and tools) -%}",
        "{{- '<|im_start|>system\\n' + content_text(message.content) + '<|im_end|>\\n' -}}",
        "{%- endif -%}",
        "{%- elif message.role == 'assistant' -%}",
        "{{- '<|im_start|>assistant\\n' -}}",
        "{%- if message.reasoning_content -%}",
        "{{- '<think>\\n' + message.reasoning_content + '\\n</think>\\n\\n' -}}",
        "{%- endif -%}",
        "{%- set text = content_text(message.content) -%}",
        "{{- text -}}",
        "{%- for call in message.tool_calls or [] -%}",
        "{{- '\\n' if text or not loop.first else '' -}}",
        "{{- '<tool_call>\\n{\"name\": ' + (call.function.name | tojson) + ', \"arguments\": ' -}}",
        "{{- call.function.arguments if call.function.arguments is string else call.function.arguments | tojson -}}",
        "{{- '}\\n</tool_call>' -}}",
        "{%- endfor -%}",
        "{{- '<|im_end|>\\n' -}}",
        "{%- elif message.role == 'tool' -%}",
        "{{- '\\n' if loop.previtem is defined and loop.previtem.role == 'tool' else '<|im_start|>user\\n' -}}",
        "{{- '<tool_response>\\n' + content_text(message.content) + '\\n</tool_response>' -}}",
        "{{- '' if loop.nextitem is defined and loop.nextitem.role == 'tool' else '<|im_end|>\\n' -}}",
        "{%- else -%}",
        "{{- '<|im_start|>user\\n' + content_text(message.content) + '<|im_end|>\\n' -}}",
        "{%- endif -%}",
        "{%- endfor -%}",
        "{%- if add_generation_prompt -%}",
        "{{- '<|im_start|>assistant\\n' + ('<think>\\n' if enable_thinking is defined and enable_thinking else '') -}}",
        "{%- endif -%}",
    )
)
