"""Chat templates by name: what turns become, and which a model's name means."""

from itertools import pairwise
from typing import Any

import pytest

from ramet.frontend.backends.templates import TEMPLATES, template, template_of_model
from ramet.frontend.prompt import EMPTY, Prompt, TurnBegin, TurnEnd


def prompt(*turns: tuple[str, str], open_turn: tuple[str, str] | None = None, before: str = "") -> Prompt:
    found = EMPTY.extended(before)
    for role, text in turns:
        found = found.extended(TurnBegin(role)).extended(text).extended(TurnEnd(role))
    if open_turn is not None:
        found = found.extended(TurnBegin(open_turn[0])).extended(open_turn[1])
    return found


CHAT = (("system", "S"), ("user", "U1"), ("assistant", "A1"), ("user", "U2"))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("default", "SYSTEM:S\nUSER:U1\nASSISTANT:A1\nUSER:U2\nASSISTANT:So"),
        ("claude", "S\n\nHuman: U1\n\nAssistant:A1\n\nHuman: U2\n\nAssistant:So"),
        (
            "chatml",
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU1<|im_end|>\n<|im_start|>assistant\nA1<|im_end|>\n"
            "<|im_start|>user\nU2<|im_end|>\n<|im_start|>assistant\nSo",
        ),
        ("llama-2-chat", "[INST] <<SYS>>\nS\n<</SYS>>\n\nU1 [/INST]A1 </s><s>[INST] U2 [/INST]So"),
        (
            "llama-3-instruct",
            "<|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nU1<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\nA1<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nU2<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\nSo",
        ),
        ("vicuna_v1.1", "S USER:U1 ASSISTANT:A1</s>USER:U2 ASSISTANT:So"),
        (
            "gemma-it",
            "S<start_of_turn>user\nU1<end_of_turn>\n<start_of_turn>model\nA1<end_of_turn>\n"
            "<start_of_turn>user\nU2<end_of_turn>\n<start_of_turn>model\nSo",
        ),
        ("deepseek-v3", "S<｜User｜>U1<｜Assistant｜>A1<｜end▁of▁sentence｜><｜User｜>U2<｜Assistant｜>So"),
    ],
)
def test_a_chat(name: str, text: str):
    assert template(name).render(prompt(*CHAT, open_turn=("assistant", "So"))) == text


def test_a_default_system_prompt_comes_where_a_chat_begins_without_one():
    start = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
    hi = "<|im_start|>user\nHi<|im_end|>\n"
    assert template("qwen").render(prompt(("user", "Hi"))) == start + hi
    assert template("qwen").render(prompt(("system", "S"), ("user", "Hi"))).count("system") == 1
    assert template("qwen").render(prompt(("user", "Hi"), before="Raw.")) == "Raw." + hi
    assert template("chatml").render(prompt(("user", "Hi"))) == hi


def test_a_turn_of_llama_2_without_a_system_prompt():
    assert template("llama-2-chat").render(prompt(("user", "U"), open_turn=("assistant", ""))) == "[INST] U [/INST]"


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_chat_begins_with_each_of_its_beginnings(name: str):
    """So the beginning of a conversation stays cached as it goes on."""
    steps = [prompt(*CHAT[:num]) for num in range(1, len(CHAT) + 1)]
    texts = [template(name).render(step) for step in steps]
    for shorter, longer in pairwise(texts):
        assert longer.startswith(shorter)


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_role_without_marks_is_refused(name: str):
    with pytest.raises(ValueError, match=f"the chat template '{name}' has no turns of tool"):
        template(name).render(prompt(("tool", "42")))


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3-instruct"),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "llama-4"),
        ("/models/Llama-2-7b-chat-hf/", "llama-2-chat"),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen"),
        ("deepseek-ai/DeepSeek-R1", "deepseek-v3"),
        ("google/gemma-2-9b-it", "gemma-it"),
        ("lmsys/vicuna-7b-v1.5", "vicuna_v1.1"),
        ("meta-llama/Llama-3.1-8B", None),
        ("instruct-things/my-model", None),
    ],
)
def test_a_models_name_means_a_template_or_none(path: str, name: str | None):
    found: Any = template_of_model(path)
    assert (found and found.name) == name


def test_an_unknown_name():
    with pytest.raises(ValueError, match="the chat template is 'x', must be one of default, claude, chatml"):
        template("x")
