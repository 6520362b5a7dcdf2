"""The built-in chat templates write what their families were trained on: turns, tools, calls, results, thoughts."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from samples import sampled

from ramet.runtime.errors import ClientError
from ramet.runtime.text.chat_messages import normalise
from ramet.runtime.text.chat_template import ChatTemplate, RenderLimits
from ramet.runtime.text.template_files import TemplateSources, built_in_names, read_templates

TOOL = {"type": "function", "function": {"name": "warmth", "parameters": {"type": "object"}}}
SHOWN = json.dumps(TOOL)
PLAIN = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Rome?"},
    {"role": "assistant", "content": "21", "reasoning": "Sunny."},
    {"role": "user", "content": "Oslo?"},
]
CALLED = [
    {"role": "user", "content": "Both?"},
    {
        "role": "assistant",
        "content": None,
        "reasoning": "Ask.",
        "tool_calls": [
            {"id": "r", "type": "function", "function": {"name": "warmth", "arguments": '{"of": "Rome"}'}},
            {"id": "o", "type": "function", "function": {"name": "warmth", "arguments": '{"of": "Oslo"}'}},
        ],
    },
    {"role": "tool", "tool_call_id": "r", "content": "21"},
    {"role": "tool", "tool_call_id": "o", "content": "3"},
]
WITHOUT_TOOLS = ("chatml", "gemma", "phi")
WITH_TOOLS = ("qwen", "llama-3", "mistral", "deepseek")


def written(name: str, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None, **kwargs: Any) -> str:
    source = read_templates(Path(), name).default
    assert source is not None
    sources = TemplateSources(source, {}, {"bos_token": "<s>", "eos_token": "</s>"})
    template = ChatTemplate(sources, RenderLimits(timeout_s=600))  # the clock runs on while other processes compute
    return template.render(normalise(messages, source), tools, kwargs=kwargs)


def test_every_template_is_tested_here() -> None:
    assert built_in_names() == sorted(WITHOUT_TOOLS + WITH_TOOLS)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "chatml",
            "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nRome?<|im_end|>\n"
            "<|im_start|>assistant\n21<|im_end|>\n<|im_start|>user\nOslo?<|im_end|>\n<|im_start|>assistant\n",
        ),
        (
            "qwen",
            "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nRome?<|im_end|>\n"
            "<|im_start|>assistant\n21<|im_end|>\n<|im_start|>user\nOslo?<|im_end|>\n<|im_start|>assistant\n",
        ),
        (
            "llama-3",
            "<s><|start_header_id|>system<|end_header_id|>\n\nBe kind.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nRome?<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n21<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nOslo?<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n",
        ),
        ("mistral", "<s>[INST] Rome?[/INST] 21</s>[INST] Be kind.\n\nOslo?[/INST]"),
        (
            "gemma",
            "<s><start_of_turn>user\nBe kind.\n\nRome?<end_of_turn>\n<start_of_turn>model\n21<end_of_turn>\n"
            "<start_of_turn>user\nOslo?<end_of_turn>\n<start_of_turn>model\n",
        ),
        (
            "phi",
            "<|im_start|>system<|im_sep|>Be kind.<|im_end|><|im_start|>user<|im_sep|>Rome?<|im_end|>"
            "<|im_start|>assistant<|im_sep|>21<|im_end|><|im_start|>user<|im_sep|>Oslo?<|im_end|>"
            "<|im_start|>assistant<|im_sep|>",
        ),
        ("deepseek", "<s>Be kind.<｜User｜>Rome?<｜Assistant｜>21<｜end▁of▁sentence｜><｜User｜>Oslo?<｜Assistant｜>"),
    ],
)
def test_turns(name: str, text: str) -> None:
    assert written(name, PLAIN) == text


@pytest.mark.parametrize(
    ("name", "call", "result"),
    [
        (
            "qwen",
            "<|im_start|>assistant\n<think>\nAsk.\n</think>\n\n"
            '<tool_call>\n{"name": "warmth", "arguments": {"of": "Rome"}}\n</tool_call>\n'
            '<tool_call>\n{"name": "warmth", "arguments": {"of": "Oslo"}}\n</tool_call><|im_end|>\n',
            "<|im_start|>user\n<tool_response>\n21\n</tool_response>\n<tool_response>\n3\n</tool_response><|im_end|>\n"
            "<|im_start|>assistant\n",
        ),
        (
            "llama-3",
            '{"name": "warmth", "parameters": {"of": "Rome"}}; '
            '{"name": "warmth", "parameters": {"of": "Oslo"}}<|eot_id|>',
            "<|start_header_id|>ipython<|end_header_id|>\n\n21<|eot_id|>"
            "<|start_header_id|>ipython<|end_header_id|>\n\n3<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
        ),
        (
            "mistral",
            '[/INST][TOOL_CALLS] [{"name": "warmth", "arguments": {"of": "Rome"}, "id": "r"}, '
            '{"name": "warmth", "arguments": {"of": "Oslo"}, "id": "o"}]</s>',
            '[TOOL_RESULTS] {"content": "21", "call_id": "r"}[/TOOL_RESULTS]'
            '[TOOL_RESULTS] {"content": "3", "call_id": "o"}[/TOOL_RESULTS]',
        ),
        (
            "deepseek",
            "<｜Assistant｜><｜tool▁calls▁begin｜>"
            '<｜tool▁call▁begin｜>function<｜tool▁sep｜>warmth\n```json\n{"of": "Rome"}\n```<｜tool▁call▁end｜>\n'
            '<｜tool▁call▁begin｜>function<｜tool▁sep｜>warmth\n```json\n{"of": "Oslo"}\n```<｜tool▁call▁end｜>'
            "<｜tool▁calls▁end｜><｜end▁of▁sentence｜>",
            "<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>21<｜tool▁output▁end｜>\n"
            "<｜tool▁output▁begin｜>3<｜tool▁output▁end｜><｜tool▁outputs▁end｜>",
        ),
    ],
)
def test_calls_and_results(name: str, call: str, result: str) -> None:
    assert written(name, CALLED, [TOOL]).endswith(call + result)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("qwen", f"<tools>\n{SHOWN}\n</tools>"),
        ("llama-3", json.dumps(TOOL, indent=4)),
        ("mistral", f"<s>[AVAILABLE_TOOLS] [{SHOWN}][/AVAILABLE_TOOLS][INST] Both?[/INST]"),
        ("deepseek", '### warmth\nParameters: {"type": "object"}\n'),
    ],
)
def test_tools_are_shown(name: str, text: str) -> None:
    assert text in written(name, CALLED[:1], [TOOL])


@pytest.mark.parametrize("name", WITHOUT_TOOLS)
def test_tools_without_a_place_are_refused(name: str) -> None:
    for messages, tools in ((PLAIN, [TOOL]), (CALLED[:2], None), (CALLED, None)):
        with pytest.raises(ClientError, match="refused by the chat template"):
            written(name, messages, tools)


@pytest.mark.parametrize("name", ["gemma", "mistral"])
@pytest.mark.parametrize("order", [(1, 3), (2, 3), (0, 2), (0,), (1, 0)])
def test_turns_that_do_not_alternate_are_refused(name: str, order: tuple[int, ...]) -> None:
    with pytest.raises(ClientError, match="refused by the chat template"):
        written(name, [PLAIN[i] for i in order])


def test_thoughts_are_asked_for_and_forgone() -> None:
    assert written("qwen", PLAIN, enable_thinking=False).endswith("assistant\n<think>\n\n</think>\n\n")
    assert written("qwen", PLAIN, enable_thinking=True).endswith("assistant\n")
    assert written("deepseek", PLAIN, thinking=True).endswith("<｜Assistant｜><think>\n")


@pytest.mark.parametrize("name", ["qwen", "deepseek"])
def test_earlier_thoughts_are_dropped(name: str) -> None:
    inside = [PLAIN[1], {"role": "assistant", "content": "<think>\nSunny.\n</think>\n\n21"}, PLAIN[3]]
    assert written(name, inside) == written(name, PLAIN[1:])


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("name", "role"), sampled(product(built_in_names(), ["system", "user", "tool"]), 7))
def test_a_long_conversation_takes_time_in_proportion(name: str, role: str) -> None:
    messages = [{"role": role, "content": "x" * 200}] * 100_000  # 20 MB: copied for each message it were 1 TB
    try:
        written(name, messages)
    except ClientError as error:
        assert "refused" in error.fact  # it may still refuse such a conversation
