"""Media of a program in this process: what bodies may have, and bytes, paths, pictures and arrays as they are."""

import asyncio
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from ramet.ipc.media import MediaKind
from ramet.ipc.messages import RenderReply, pack_ids
from ramet.ipc.params import SamplingParams
from ramet.runtime.engine_client.media import Preparing
from ramet.runtime.engine_client.prompt import Prompt
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.calls import CallDefaults
from ramet.runtime.intake.chat import Style
from ramet.runtime.intake.programs import read_chats, read_prompts
from ramet.runtime.media.source import GivenMedia
from tests.fakes.media import TAKES_MEDIA, TOKENS, prepared

DEFAULTS = CallDefaults(SamplingParams(), TAKES_MEDIA, processors_on=False)
PICTURE = Image.new("RGB", (2, 2), "red")
FILE = BytesIO()
PICTURE.save(FILE, "png")
OWN = [FILE.getvalue(), PICTURE, np.zeros((2, 2, 3), np.uint8), torch.zeros(3, 2, 2)]


def read(prompts: Any, **media: Any) -> list[Prompt]:
    return read_prompts(prompts, None, media, DEFAULTS)


def sources_of_chat(messages: Any) -> tuple[list[GivenMedia], list[Prompt]]:
    asked: list[GivenMedia] = []

    async def render(chat: bytes, *_: bool) -> RenderReply:
        return RenderReply(0, pack_ids([1]), "", chat.decode())

    async def prepare(sources: Any) -> Any:
        asked.extend(sources)
        return tuple(map(prepared, sources))

    calls = read_chats(messages, None, {}, {}, DEFAULTS, Style())
    return asked, [asyncio.run(call(render, Preparing(TOKENS, prepare)))[0] for call in calls]


@pytest.mark.parametrize("own", OWN, ids=["bytes", "pillow", "numpy", "torch"])
def test_a_programs_objects_are_taken_as_they_are(own: Any) -> None:
    (one,) = read("<image>", image_data=own)
    (source,) = one.sources
    assert source.written is own and (source.kind, source.place) == (MediaKind.IMAGE, "image_data")
    first, second = read(["<image><image>", "<image>"], image_data=[[own, own], own])
    assert [each.place for each in (*first.sources, *second.sources)] == [
        "image_data[0][0]", "image_data[0][1]", "image_data[1]",
    ]  # fmt: skip


def test_paths_and_buffers_become_what_a_client_may_write() -> None:
    (one,) = read("<image><image>", image_data=(Path("/a/b.png"), bytearray(b"x")))
    assert [each.written for each in one.sources] == ["/a/b.png", b"x"]


@pytest.mark.parametrize("feature", [np.ones((2, 3), np.float32), torch.ones(2, 3), torch.ones(2, 3).bfloat16()])
def test_features_may_be_arrays(feature: Any) -> None:
    data = {"format": "precomputed_embedding", "feature": feature, "image_grid_thw": np.array([[1, 1, 2]])}
    (source,) = read([5, 500, 500], image_data=data)[0].sources
    assert source.arrays is not None and source.arrays.are_features
    assert source.arrays.of["feature"] == ("float32", (2, 3), np.ones((2, 3), np.float32).tobytes())
    assert source.arrays.of["image_grid_thw"][:2] == ("int64", (1, 3))


@pytest.mark.parametrize(("prompts", "media", "words"), [
    ("a", {"image_data": object()}, "image_data is"), ("a", {"image_data": 5}, "image_data is 5"),
    ("a", {"image_data": [PICTURE, 5]}, r"image_data\[1\] is 5"), ("a", {"image_data": {5: "x"}}, "image_data is"),
    (["a", "b"], {"image_data": [PICTURE]}, "image_data has 1 entries"),
    (np.zeros((2, 4), np.float32), {"image_data": PICTURE}, "image_data is set, but input_embeds"),
    ([1, 2], {"image_data": PICTURE, "contexts": [[0, 1]]}, "image_data is set, but the prompt has parallel contexts"),
    ("a", {"image_data": {"format": "precomputed_embedding", "feature": object()}}, "image_data.feature is"),
])  # fmt: skip
def test_what_is_none_is_refused_by_the_keyword(prompts: Any, media: Any, words: str) -> None:
    with pytest.raises(ClientError, match=f"^{words}"):
        read(prompts, **media)


def test_chats_have_them_in_their_parts() -> None:
    def turn(*parts: Any) -> list[Any]:
        return [{"role": "user", "content": [*parts, {"type": "text", "text": "What?"}]}]

    picture = {"type": "image", "image": PICTURE}
    url = {"type": "image_url", "image_url": {"url": FILE.getvalue(), "detail": "low"}}
    film = {"type": "video", "video": np.zeros((2, 4, 4, 3), np.uint8), "fps": 2.0}
    asked, (first, second) = sources_of_chat([turn(picture, url), turn(film)])
    assert [each.written for each in asked[:2]] == [PICTURE, FILE.getvalue()]
    assert [each.options for each in asked] == [
        {"num_pictures": 2}, {"detail": "low", "num_pictures": 2}, {"fps": 2.0},
    ]  # fmt: skip
    assert len(first.content.media) == 2 and first.content.is_rendered
    assert (first.content.text or "").count('"type":"image"') == 2
    assert [item.kind for item in second.content.media] == [MediaKind.VIDEO]


@pytest.mark.parametrize(("part", "words"), [
    ({"type": "image", "image": 5}, r"messages\[0\].content\[0\].image is 5"),
    ({"type": "image"}, r"messages\[0\].content\[0\].image is missing"),
    ({"type": "image", "image": {"a": 1}}, r"messages\[0\].content\[0\].image is {'a': 1}"),
    ({"type": "image", "image": PICTURE, "detail": "most"}, r"messages\[0\].content\[0\].detail is 'most'"),
    ({"type": "image_url", "image_url": {"url": 5}}, r"messages\[0\].content\[0\].image_url.url is 5"),
    ({"type": "video", "video": OWN[2], "fps": -1}, r"messages\[0\].content\[0\].fps is -1"),
    ({"type": "picture", "image": PICTURE}, r"messages\[0\].content\[0\].type is 'picture'"),
])  # fmt: skip
def test_a_wrong_part_is_refused_as_the_servers(part: Any, words: str) -> None:
    with pytest.raises(ClientError, match=words):
        sources_of_chat([{"role": "user", "content": [part]}])


@pytest.mark.parametrize("messages", [5, None, [5], [{"content": 5}], [{"role": "user", "content": [5]}], [["a"]]])
def test_what_is_no_chat_is_still_refused(messages: Any) -> None:
    with pytest.raises(ClientError):
        sources_of_chat(messages)
