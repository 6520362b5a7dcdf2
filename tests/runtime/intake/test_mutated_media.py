"""Thousands of mutated media fields: each is read, or refused by name; nothing else happens."""

import copy
import json
from random import Random
from typing import Any

import pytest

from ramet.ipc.messages import Chat
from ramet.ipc.params import SamplingParams
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.body import convert
from ramet.runtime.intake.calls import CallDefaults, GenerateBody, read_generate
from ramet.runtime.intake.chat import write_chat
from ramet.runtime.intake.media import with_sources
from ramet.runtime.media.source import GivenMedia
from ramet.runtime.server.openai.types import ChatBody
from tests.fakes.bodies import parsed
from tests.fakes.media import TAKES_MEDIA

DEFAULTS = CallDefaults(SamplingParams(), TAKES_MEDIA, processors_on=False)
ARRAY = {"dtype": "float32", "shape": [2, 1], "data": "AACAPwAAAEA="}
JUNK: list[Any] = [
    None, True, 0, -1, 1e300, 1 << 63, "", "x", "\u0000", "\ud7ff", [], {}, [[]], [None], {"url": None},
    {"format": None},
    {"format": "precomputed_embedding", "feature": ARRAY}, {"format": "processor_output", "pixel_values": [[1.5]]},
    {"url": "x", "fps": "2"}, [[["x"]]], {"dtype": "float32"}, {"": ""}, "file:///etc/passwd", "data:,",
    "http://169.254.169.254/", [1, [2]], [float(i) for i in range(50)], {"type": "image"}, -0.5, "NaN",
]  # fmt: skip
SEEDS: list[dict[str, Any]] = [
    {"text": "a", "image_data": "x"},
    {"text": ["a", "b"], "image_data": ["x", ["y", None]], "video_data": {"url": "z", "fps": 1, "max_frames": 3}},
    {"input_ids": [5], "image_data": {"format": "precomputed_embedding", "feature": ARRAY, "grid": [[1, 2, 2]]}},
    {"input_ids": [[5], [6]], "audio_data": [{"format": "processor_output", "values": ARRAY, "mask": [True]}, "z"]},
]  # fmt: skip
PARTS: list[dict[str, Any]] = [
    {"type": "image_url", "image_url": {"url": "x", "detail": "low"}}, {"type": "image", "image": "x", "max_pixels": 5},
    {"type": "video_url", "video_url": {"url": "x", "fps": 1.5}}, {"type": "input_audio", "input_audio": {"data": "x"}},
    {"type": "input_image", "image_url": "x"}, {"type": "text", "text": "?"}, {"type": "audio", "path": "x"},
]  # fmt: skip


def mutated(value: Any, draw: Random) -> Any:
    """One place in it, at any depth, is another value, gone, or there twice."""
    if isinstance(value, dict | list) and value and draw.random() < 0.75:
        made = copy.copy(value)
        key = draw.choice(list(made)) if isinstance(made, dict) else draw.randrange(len(made))
        match draw.randrange(6):
            case 0:
                del made[key]
            case 1 if isinstance(made, list):
                made.insert(key, made[key])
            case 1:
                made[draw.choice(["format", "url", "shape", "data", "type", "modality", "feature"])] = made[key]
            case _:
                made[key] = mutated(made[key], draw)
        return made
    return copy.deepcopy(draw.choice(JUNK))


def as_sent(body: Any) -> dict[str, Any]:
    return parsed(json.dumps(body).encode())


@pytest.mark.parametrize("seed", range(4))
def test_fields_of_generate(seed: int) -> None:
    draw, outcomes = Random(seed), {True: 0, False: 0}
    for _ in range(500):
        body = SEEDS[seed]
        for _ in range(draw.randint(1, 3)):
            body = {**body, (name := draw.choice(list(body))): mutated(body[name], draw)}
        try:
            prompts, _ = read_generate(convert(as_sent(body), GenerateBody), "r", DEFAULTS)
            assert all(isinstance(source, GivenMedia) for prompt in prompts for source in prompt.sources)
            outcomes[True] += 1
        except ClientError as error:
            assert error.place.partition("[")[0].partition(".")[0] in {"text", *body} and 400 <= error.status < 500, (
                error
            )
            outcomes[False] += 1
    assert min(outcomes.values()) > 25, outcomes


def test_parts_of_chats() -> None:
    draw, outcomes = Random(9), {True: 0, False: 0}
    for _ in range(1000):
        content = [mutated(part, draw) if draw.random() < 0.4 else part for part in draw.sample(PARTS, 2)]
        written = as_sent({"messages": [{"role": "user", "content": content}]})
        try:
            body = convert(written, ChatBody)
            messages = with_sources(written, body)["messages"]
            chat = write_chat(Chat(messages), TAKES_MEDIA.media)
            json.loads(chat.json)
            assert all(source.place.startswith("messages[0].content[") for source in chat.sources)
            outcomes[True] += 1
        except ClientError as error:
            assert error.place.startswith("messages[0].content["), error
            outcomes[False] += 1
    assert min(outcomes.values()) > 50, outcomes
