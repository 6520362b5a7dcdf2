"""The demo model's corpus says true things, the same for the same seed, and its chats are what the template renders."""

import hashlib
import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest

from scripts.demo_model.corpus.chat_format import CHAT_TEMPLATE, render
from scripts.demo_model.corpus.draw import Draw
from scripts.demo_model.corpus.extraction import json_prompt
from scripts.demo_model.corpus.facts import capital_prompts
from scripts.demo_model.corpus.labels import five_shot_prompt
from scripts.demo_model.corpus.mix import make_document

DIGEST = """
import hashlib
from scripts.demo_model.corpus.draw import Draw
from scripts.demo_model.corpus.mix import make_document
draw = Draw("digest")
print(hashlib.sha256("".join(make_document(draw).text for _ in range(2000)).encode()).hexdigest())
"""


def test_the_same_seed_gives_the_same_documents_in_another_process() -> None:
    draw = Draw("digest")
    here = hashlib.sha256("".join(make_document(draw).text for _ in range(2000)).encode()).hexdigest()
    env = {**os.environ, "PYTHONHASHSEED": "77"}
    there = subprocess.run([sys.executable, "-c", DIGEST], env=env, capture_output=True, text=True, check=True).stdout
    assert there.strip() == here


def test_every_equation_is_true() -> None:
    draw, found = Draw("equations"), 0
    for _ in range(6000):
        document = make_document(draw)
        for a, sign, b, c in re.findall(r"(?<![\d+x-] )\b(\d+) ([-+x]) (\d+) = (\d+)\b", document.text):
            found += 1
            values = {"+": int(a) + int(b), "-": int(a) - int(b), "x": int(a) * int(b)}
            assert values[sign] == int(c), document.text
    assert found > 500


@pytest.mark.parametrize("held_out", [False, True])
def test_a_given_part_never_ends_in_a_space_and_parts_alternate(held_out: bool) -> None:
    draw = Draw("parts", held_out)
    for _ in range(3000):
        document = make_document(draw)
        assert len(document.parts) % 2 == 0 and all(document.parts[1::2]), document
        assert not any(part.endswith(" ") for part in document.parts[0::2]), document


def test_chats_are_what_the_template_renders() -> None:
    draw, seen = Draw("chats"), 0
    while seen < 400:
        document = make_document(draw)
        if not document.family.startswith("chat."):
            continue
        seen += 1
        turns = re.findall(r"<\|im_start\|>(\w+)\n(.*?)<\|im_end\|>", document.text, re.DOTALL)
        messages = [{"role": role, "content": content} for role, content in turns]
        assert render(messages) == document.text + "\n"


CONVERSATIONS: list[tuple[list[dict[str, Any]], list[dict[str, Any]] | None]] = [
    ([{"role": "user", "content": "Hi"}], None),
    ([{"role": "system", "content": "Be kind."}, {"role": "user", "content": "a\n b "}], None),
    (
        [
            {"role": "user", "content": [{"type": "text", "text": "How warm "}, {"type": "text", "text": "is Rome?"}]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"function": {"name": "get_weather", "arguments": {"city": "Rome", "days": 2, "é": [True, None]}}},
                    {"function": {"name": "get_time", "arguments": '{"city": "Rome"}'}},
                ],
            },
            {"role": "tool", "content": "21"},
            {"role": "tool", "content": '{"time": "12:00"}'},
            {"role": "assistant", "reasoning_content": "It is 21.", "content": "21 degrees."},
            {"role": "user", "content": "Thanks"},
        ],
        [
            {
                "type": "function",
                "function": {
                    "name": "get_weather",
                    "description": "The weather of a city",
                    "parameters": {
                        "type": "object",
                        "properties": {
                            "city": {"type": "string"},
                            "days": {"type": "integer"},
                            "unit": {"enum": ["celsius", "kelvin"]},
                            "tags": {"type": "array", "items": {"type": "string"}},
                        },
                        "required": ["city"],
                    },
                },
            },
            {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object", "properties": {}}}},
        ],
    ),
]


@pytest.mark.parametrize(("messages", "tools"), CONVERSATIONS)
@pytest.mark.parametrize("add_generation_prompt", [False, True])
@pytest.mark.parametrize("enable_thinking", [False, True])
def test_template_equals_render_in_transformers(
    messages: list[dict[str, Any]],
    tools: list[dict[str, Any]] | None,
    add_generation_prompt: bool,
    enable_thinking: bool,
) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    flags = dict(add_generation_prompt=add_generation_prompt, enable_thinking=enable_thinking)
    texts, _ = render_jinja_template([messages], tools=tools, chat_template=CHAT_TEMPLATE, **flags)
    assert texts[0] == render(messages, tools=tools, **flags)


def test_json_prompts_end_in_the_object_they_ask_for() -> None:
    draw = Draw("json", held_out=True)
    for _ in range(300):
        document, expected = json_prompt(draw)
        assert json.loads(document.parts[-1]) == expected


def test_only_the_shots_tell_the_label() -> None:
    """Five shots, two words, each at least twice, and the header never says which word means what."""
    draw, swapped = Draw("shots", held_out=True), set()
    for _ in range(300):
        document = five_shot_prompt(draw)
        label = document.parts[-1].strip()
        before = "".join(document.parts[:-1])
        assert before.count(label) >= 2
        swapped.add(label)
        assert " means " not in before and "positive" not in before
    assert len(swapped) > 100


def test_capitals_are_asked_in_three_phrasings() -> None:
    prompts = capital_prompts()
    assert len(prompts) == 3 * len({country for country, _, _ in prompts}) >= 450
    assert ("France", "The capital of France is", "Paris") in prompts
