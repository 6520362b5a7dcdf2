"""The built-in chat templates write what their families were trained on: turns, tools, calls, results, thoughts."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from samples import sampled

from ramet.ipc.media import MediaKind, MediaToken
from ramet.ipc.messages import Chat
from ramet.runtime.errors import ClientError
from ramet.runtime.text.chat_messages import normalise
from ramet.runtime.text.chat_template import ChatTemplate, RenderLimits
from ramet.runtime.text.chats import Chats
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
WITHOUT_TOOLS = (
    "c4ai-command-r", "chatml", "chatml-llava", "gemma", "granite-3-instruct", "llama-2-chat", "llama-4", "phi",
    "qwen2-vl", "vicuna_v1.1",
)  # fmt: skip
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
        *(
            (
                name,
                "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nRome?<|im_end|>\n"
                "<|im_start|>assistant\n21<|im_end|>\n<|im_start|>user\nOslo?<|im_end|>\n<|im_start|>assistant\n",
            )
            for name in ("chatml-llava", "qwen2-vl")
        ),
        ("vicuna_v1.1", "<s>Be kind. USER: Rome? ASSISTANT: 21</s>USER: Oslo? ASSISTANT:"),
        (
            "llama-2-chat",
            "<s>[INST] <<SYS>>\nBe kind.\n<</SYS>>\n\nRome? [/INST] 21 </s><s>[INST] Oslo? [/INST]",
        ),
        (
            "llama-4",
            "<s><|header_start|>system<|header_end|>\n\nBe kind.<|eot|>"
            "<|header_start|>user<|header_end|>\n\nRome?<|eot|>"
            "<|header_start|>assistant<|header_end|>\n\n21<|eot|><|header_start|>user<|header_end|>\n\nOslo?<|eot|>"
            "<|header_start|>assistant<|header_end|>\n\n",
        ),
        (
            "c4ai-command-r",
            "<s><|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>Be kind.<|END_OF_TURN_TOKEN|>"
            "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>Rome?<|END_OF_TURN_TOKEN|>"
            "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>21<|END_OF_TURN_TOKEN|>"
            "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>Oslo?<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
        ),
        (
            "granite-3-instruct",
            "<|start_of_role|>system<|end_of_role|>Be kind.<|end_of_text|>\n"
            "<|start_of_role|>user<|end_of_role|>Rome?<|end_of_text|>\n"
            "<|start_of_role|>assistant<|end_of_role|>21<|end_of_text|>\n"
            "<|start_of_role|>user<|end_of_role|>Oslo?<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>",
        ),
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


@pytest.mark.parametrize(("name", "system"), [
    ("chatml-llava", "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"),
    ("qwen2-vl", "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"),
    ("vicuna_v1.1", "<s>A chat between a curious user and an artificial intelligence assistant. The assistant gives "
        "helpful, detailed, and polite answers to the user's questions. USER: "),
])  # fmt: skip
def test_a_system_text_of_its_own_comes_first(name: str, system: str) -> None:
    assert written(name, PLAIN[1:2]).startswith(f"{system}Rome?")


@pytest.mark.parametrize(("name", "placeholder", "shown"), [
    ("chatml-llava", "<image>", "<|im_start|>user\n<image>\nWhat?<|im_end|>"),
    ("qwen2-vl", "<|image_pad|>", "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>What?<|im_end|>"),
    ("vicuna_v1.1", "<image>", "USER: <image>\nWhat? ASSISTANT:"),
    ("chatml-llava", "<img>", "<|im_start|>user\n<img>What?<|im_end|>"),  # of a model with another placeholder
    ("llama-2-chat", "<image>", "[INST] <image>What? [/INST]"),
])  # fmt: skip
def test_a_picture_stands_in_its_turn(name: str, placeholder: str, shown: str) -> None:
    media = {MediaKind.IMAGE: MediaToken(placeholder, placeholder, 5)}
    parts = [{"type": "image", "image": ""}, {"type": "text", "text": "What?"}]
    chats = Chats(read_templates(Path(), name)).with_media(media)
    assert shown in chats.render(Chat([{"role": "user", "content": parts}]))


@pytest.mark.parametrize("name", ["gemma", "llama-2-chat", "mistral"])
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
