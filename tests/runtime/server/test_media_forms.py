"""Media as clients write them on every surface: what becomes of each form, and how a wrong one is refused."""

import asyncio
import base64
import struct
from typing import Any

import pytest

from ramet.ipc.media import MediaKind
from ramet.ipc.messages import Abort, Generate, Render
from ramet.runtime.options.media_options import MediaArgs
from tests.fakes.media import TAKES_IMAGES, TAKES_MEDIA, FakeMedia
from tests.fakes.server import Served, served

URI = "data:image/png;base64,iVBORw0KGgo="
URL = "http://pictures.example/a.png"
ONE = {"sampling_params": {"max_new_tokens": 1}}
IMAGE, VIDEO, AUDIO = MediaKind.IMAGE, MediaKind.VIDEO, MediaKind.AUDIO


def buffer(numbers: list[float], shape: list[int]) -> dict[str, Any]:
    return {
        "dtype": "float32",
        "shape": shape,
        "data": base64.b64encode(struct.pack(f"{len(numbers)}f", *numbers)).decode(),
    }


def error_of(reply: Any) -> str:
    message: str = reply["error"]["message"]
    return message


def asks(
    path: str, body: dict[str, Any], expected: list[list[tuple[MediaKind, object, str]]], texts: list[str] | None = None
) -> None:
    """What each prompt that the engine gets has: kind, what was written, and its place. `texts`: of the prompts."""
    media = FakeMedia()

    async def check(server: Served) -> None:
        status, reply = await server.post(path, body)
        assert status == 200, reply
        sent = server.engine.of_type(Generate)
        written = {source.place: source.written for sources in media.asked for source in sources}
        found = [[(item.kind, written[item.place], item.place) for item in each.content.media] for each in sent]
        assert found == expected
        if texts is not None:
            assert [each.content.text for each in sent] == texts
        assert len(media.released) == sum(map(len, media.asked))

    served(check, limits=TAKES_MEDIA, media=media)


def refuses(path: str, body: dict[str, Any], *words: str, limits: Any = TAKES_MEDIA) -> None:
    """With a 400 that begins with the first of the words, and nothing is prepared or generated."""
    media = FakeMedia()

    async def check(server: Served) -> None:
        status, reply = await server.post(path, body)
        assert status == 400, reply
        assert error_of(reply).startswith(words[0]) and all(word in error_of(reply) for word in words), error_of(reply)
        assert not server.engine.of_type(Generate) and not media.released

    served(check, limits=limits, media=media)


# -- /generate ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("written", [URI, URL, "iVBORw0KGgo=", "/a/b.png", "a.png", "file:///a/b.png"])
def test_one_picture_of_one_prompt_in_every_spelling(written: str) -> None:
    asks("/generate", {"text": "a <image>", "image_data": written, **ONE}, [[(IMAGE, written, "image_data")]])


FOR_PROMPTS: list[tuple[Any, Any, list[list[tuple[MediaKind, object, str]]]]] = [
    ("a", ["x", "y"], [[(IMAGE, "x", "image_data[0]"), (IMAGE, "y", "image_data[1]")]]),
    ("a", ["x", None, "y"], [[(IMAGE, "x", "image_data[0]"), (IMAGE, "y", "image_data[2]")]]),
    (["a"], ["x"], [[(IMAGE, "x", "image_data[0]")]]),
    (["a", "b"], "x", [[(IMAGE, "x", "image_data")], [(IMAGE, "x", "image_data")]]),
    (["a", "b"], ["x", "y"], [[(IMAGE, "x", "image_data[0]")], [(IMAGE, "y", "image_data[1]")]]),
    (["a", "b"], [None, ["x", "y"]], [[], [(IMAGE, "x", "image_data[1][0]"), (IMAGE, "y", "image_data[1][1]")]]),
    (["a", "b"], [["x"], "y"], [[(IMAGE, "x", "image_data[0][0]")], [(IMAGE, "y", "image_data[1]")]]),
    (["a", "b"], [[], []], [[], []]),
    ([[5], [6]], ["x", ""], [[(IMAGE, "x", "image_data[0]")], []]),
]  # fmt: skip


@pytest.mark.parametrize(("prompt", "data", "expected"), FOR_PROMPTS)
def test_a_list_is_of_the_only_prompt_or_has_an_entry_for_each(prompt: Any, data: Any, expected: Any) -> None:
    name = "input_ids" if isinstance(prompt[0], list) else "text"
    asks("/generate", {name: prompt, "image_data": data, **ONE}, expected)


def test_kinds_stand_beside_one_another_and_samples_share_them() -> None:
    media = FakeMedia()

    async def check(server: Served) -> None:
        body = {"text": ["a", "b"], "image_data": "x", "video_data": ["y", None], "audio_data": [None, ["z"]]}
        status, reply = await server.post("/generate", {**body, "sampling_params": {"max_new_tokens": 1, "n": 2}})
        assert status == 200 and len(reply) == 4
        first, second = server.engine.of_type(Generate)
        assert len(first.uids) == len(second.uids) == 2
        assert [item.kind for item in first.content.media] == [IMAGE, VIDEO]
        assert [item.kind for item in second.content.media] == [IMAGE, AUDIO]
        assert media.written == ["x", "y", "z"] and len(media.released) == 3  # one for both prompts

    served(check, limits=TAKES_MEDIA, media=media)


def test_options_of_a_piece_stand_beside_its_url() -> None:
    media = FakeMedia()

    async def check(server: Served) -> None:
        film = {"url": "f", "fps": 2, "max_frames": 8, "min_pixels": None}
        body = {
            "text": "a",
            "image_data": {"url": "p", "detail": "low", "max_dynamic_patch": 3},
            "video_data": film,
            **ONE,
        }
        assert (await server.post("/generate", body))[0] == 200
        picture, film_ = media.asked[0]
        assert (picture.written, picture.options) == ("p", {"detail": "low", "max_dynamic_patch": 3})
        assert (film_.written, film_.options) == ("f", {"fps": 2, "max_frames": 8})

    served(check, limits=TAKES_MEDIA, media=media)


def test_arrays_are_buffers_or_lists_of_numbers() -> None:
    media = FakeMedia()
    embedding = {
        "format": "precomputed_embedding",
        "feature": buffer([1, 2, 3, 4], [2, 2]),
        "image_grid_thw": [[1, 2, 2]],
    }
    processed = {
        "format": "processor_output", "modality": "image", "input_ids": [[5, 6]], "pixel_values": [[[0.5], [1]]],
        "mask": [[True, False]], "ratio": 0.5,
    }  # fmt: skip

    async def check(server: Served) -> None:
        body = {"input_ids": [5, 500], "image_data": [embedding, processed], **ONE}
        status, reply = await server.post("/generate", body)
        assert status == 200, reply
        first, second = (source.arrays for source in media.asked[0])
        assert first is not None and second is not None and first.are_features and not second.are_features
        assert first.of["feature"] == ("float32", (2, 2), struct.pack("4f", 1, 2, 3, 4))
        assert first.of["image_grid_thw"] == ("int64", (1, 3), struct.pack("3q", 1, 2, 2))
        assert second.of == {
            "pixel_values": ("float32", (1, 2, 1), struct.pack("2f", 0.5, 1)),
            "mask": ("bool", (1, 2), b"\1\0"),
            "ratio": ("float32", (), struct.pack("f", 0.5)),
        }

    served(check, limits=TAKES_MEDIA, media=media)


EMBEDDING = {"format": "precomputed_embedding"}
WRONG: list[tuple[Any, tuple[str, ...]]] = [
    (5, ("image_data is 5", "string")),
    (True, ("image_data is True", "string")),
    ([5], ("image_data[0] is 5", "URL")),
    ([["x"]], ("image_data[0] is ['x']", "URL")),
    ([{"url": 5}], ("image_data[0].url is 5", "URL")),
    ({"url": ""}, ("image_data.url is ''", "empty")),
    ({"url": "x", "detail": "most"}, ("image_data.detail is 'most'", "'auto'")),
    ({"path": "x"}, ("image_data is {", "url or format")),
    ({"format": "pixels"}, ("image_data.format is 'pixels'", "processor_output")),
    ({"format": ["processor_output"]}, ("image_data.format is",)),
    ({"format": "processor_output"}, ("image_data has no arrays",)),
    ({"format": "processor_output", "modality": "video", "a": 1}, ("image_data.modality is 'video'", "image")),
    (EMBEDDING, ("image_data.feature is missing",)),
    ({**EMBEDDING, "feature": "gASVBAAAAAAAAABLBS4="}, ("image_data.feature is 'gAS", "dtype, shape and data")),
    ({**EMBEDDING, "feature": {"dtype": "float32", "shape": [1, 1]}}, ("image_data.feature.data is missing",)),
    ({**EMBEDDING, "feature": {**buffer([1], [1, 1]), "dtype": "object"}}, ("image_data.feature.dtype is 'object'",)),
    ({**EMBEDDING, "feature": {**buffer([1], [1, 1]), "dtype": ["float32"]}}, ("image_data.feature.dtype is",)),
    ({**EMBEDDING, "feature": buffer([1, 2], [-1, -2])}, ("image_data.feature.shape is [-1, -2]", ">= 0")),
    ({**EMBEDDING, "feature": buffer([1, 2], [1 << 62, 1 << 62])}, ("image_data.feature.shape is",)),
    ({**EMBEDDING, "feature": buffer([1, 2], [2, 2])}, ("image_data.feature.data has 8 bytes", "16")),
    ({**EMBEDDING, "feature": {**buffer([1], [1, 1]), "data": "?"}}, ("image_data.feature.data is not base64",)),
    ({**EMBEDDING, "feature": {**buffer([1], [1, 1]), "data": "ä"}}, ("image_data.feature.data is not base64",)),
    ({**EMBEDDING, "feature": [[1.0], [1.0, 2.0]]}, ("image_data.feature has lists of unequal lengths",)),
    ({**EMBEDDING, "feature": [[1.0], 2.0]}, ("image_data.feature has lists of unequal lengths",)),
    ({**EMBEDDING, "feature": [["1"]]}, ("image_data.feature has '1'", "numbers")),
    ({**EMBEDDING, "feature": [[1.0, None]]}, ("image_data.feature has None", "numbers")),
    ({}, ("image_data is {}", "a URL")),
    ({**EMBEDDING, "feature": [[1e39, 1.5]]}, ("image_data.feature has a number",)),
    ({**EMBEDDING, "feature": [[1 << 63]]}, ("image_data.feature has a number that is too large",)),
    ({**EMBEDDING, "feature": [[[[[[[[[1]]]]]]]]]}, ("image_data.feature has 9 dimensions",)),
    ({**EMBEDDING, "feature": [0] * 65_537}, ("image_data.feature has 65537 numbers", "base64")),
    ({"format": "processor_output", **{f"a{i}": 1 for i in range(40)}}, ("image_data has 40 arrays",)),
]  # fmt: skip


@pytest.mark.parametrize(("data", "words"), WRONG)
def test_a_wrong_form_is_refused_at_its_place(data: Any, words: tuple[str, ...]) -> None:
    refuses("/generate", {"text": "a", "image_data": data}, *words)


@pytest.mark.parametrize(("body", "words"), [
    ({"text": ["a", "b"], "image_data": ["x"]}, ("image_data has 1 entries", "2 prompts")),
    ({"text": ["a", "b"], "image_data": [["x"], [5]]}, ("image_data[1][0] is 5",)),
    ({"input_embeds": [[0.0, 0.0, 0.0, 0.0]], "image_data": "x"}, ("image_data is set", "embeddings")),
    ({"text": "a", "image_data": "BROKEN"}, ("image_data is no picture",)),
    ({"text": "a", "image_data": "x", "mm_processor_kwargs": {"a": 1}}, ("mm_processor_kwargs is", "has media")),
    ({"text": "a", "image_data": "x", "video_config": {"fps": 1}}, ("video_config is", "beside the url")),
    ({"text": "a", "image_data": "x", "use_audio_in_video": True}, ("use_audio_in_video is",)),
    ({"text": "a", "image_data": "x", "modalities": ["video"]}, ("modalities has 'video'", "video_data")),
])  # fmt: skip
def test_what_does_not_go_together_is_refused_by_name(body: dict[str, Any], words: tuple[str, ...]) -> None:
    refuses("/generate", body, *words)


def test_a_session_has_no_media() -> None:
    async def check(server: Served) -> None:
        _, name = await server.post("/open_session", {})
        body = {"text": "a", "image_data": "x", "session_params": {"id": name}}
        status, reply = await server.post("/generate", body)
        assert status == 400 and error_of(reply).startswith("image_data is set, but a session"), reply

    served(check, limits=TAKES_MEDIA, media=FakeMedia())


@pytest.mark.parametrize(("name", "words"), [("video_data", "no films"), ("audio_data", "no sound")])
def test_a_kind_that_the_model_has_not_is_refused_by_the_field(name: str, words: str) -> None:
    refuses("/generate", {"text": "a", name: "x"}, f"{name} is set", words, "texts and images", limits=TAKES_IMAGES)


def test_fields_that_ask_for_nothing_need_no_model_that_takes_media() -> None:
    async def check(server: Served) -> None:
        for nothing in (None, "", [], [None], [[]], [""]):
            body = {"text": "a", "image_data": nothing, "video_data": nothing, "audio_data": nothing, **ONE}
            assert (await server.post("/generate", body))[0] == 200

    served(check)


@pytest.mark.parametrize(("path", "body", "place"), [
    ("/generate", {"text": "a", "image_data": ["x", "y", "z"]}, "image_data[2]"),
    ("/generate", {"text": ["a", "b"], "image_data": ["x", "y"], "audio_data": "z"}, "image_data[1]"),
    (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": [{"type": "image", "image": "x"}] * 3}]},
        "messages[0].content[2].image",
    ),
])  # fmt: skip
def test_a_request_has_a_number_of_pieces_at_most(path: str, body: dict[str, Any], place: str) -> None:
    media = FakeMedia()

    async def check(server: Served) -> None:
        status, reply = await server.post(path, body)
        assert (status, error_of(reply).split(" is one of 3 pieces")[0]) == (400, place)
        assert "--max-media-per-request" in error_of(reply) and not media.asked
        both = {"text": ["a"] * 9, "image_data": "x", **ONE}  # the same one for all of them
        assert (await server.post("/generate", both))[0] == 200 and media.written == ["x"]

    served(check, limits=TAKES_MEDIA, media=media, max_media_per_request=2)


def test_the_server_says_what_it_takes_and_within_which_limits() -> None:
    async def check(server: Served) -> None:
        _, model = await server.get("/get_model_info")
        assert model["has_image_understanding"] and not model["has_video_understanding"]
        _, info = await server.get("/get_server_info")
        assert info["max_media_mb"] == 3 and info["max_media_per_request"] == 64
        assert info.keys() >= set(MediaArgs.__struct_fields__)

    served(check, limits=TAKES_IMAGES, media=FakeMedia(), max_media_mb=3)


def test_whoever_leaves_while_media_are_prepared_sends_nothing() -> None:
    media = FakeMedia()
    media.waits = True

    async def check(server: Served) -> None:
        status, reply = await server.post("/generate", {"text": "a", "image_data": "x"})
        assert status == 504, reply
        assert server.client.num_waiting == 0 and not server.engine.of_type(Generate)

    served(check, limits=TAKES_MEDIA, media=media, request_timeout_s=0.2)


PICTURE_PART = {"type": "image_url", "image_url": "x"}


@pytest.mark.parametrize("rid", ["mine", None])
@pytest.mark.parametrize(("path", "body"), [
    ("/generate", {"text": "a", "image_data": "x"}),
    ("/generate", {"text": ["a", "b"], "image_data": "x", "stream": True}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": [PICTURE_PART]}]}),
    ("/v1/responses", {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}),
    ("/language/generate", {"prompt": [{"image": "x"}]}),
])  # fmt: skip
def test_a_request_whose_media_are_prepared_is_found_and_aborted(path: str, body: Any, rid: str | None) -> None:
    """By its id, or with all others."""
    media = FakeMedia()
    media.waits = True

    async def check(server: Served) -> None:
        asking = asyncio.ensure_future(server.post(path, {**body, "rid": "mine"}))
        while not (media.asked or asking.done()):
            await asyncio.sleep(0)
        assert (await server.post("/abort_request", {"rid": "other"}))[1] == {"aborted": 0}
        _, found = await server.get("/v1/requests/mine")
        assert found["state"] == "in transit" and "prompt is being made" in found["reason"]
        aborting = {"abort_all": True} if rid is None else {"rid": rid}
        assert await server.post("/abort_request", aborting) == (200, {"aborted": 1})
        status, reply = await asking
        assert status == 400 and "was ended before it was done" in error_of(reply)
        assert server.client.num_waiting == 0 and not server.engine.of_type(Generate)
        assert (await server.get("/v1/requests/mine"))[0] == 404

    served(check, limits=TAKES_MEDIA, media=media)


def test_media_are_kept_until_the_last_sequence_has_ended() -> None:
    media = FakeMedia()

    async def check(server: Served) -> None:
        body = {"text": "a", "image_data": "x", "stream": True}
        posting = asyncio.ensure_future(server.http.post("/generate", json=body))
        (generate,) = await server.engine.saw(Generate)
        server.engine.step()
        (await posting).close()
        await server.engine.saw(Abort)
        assert not media.released  # the scheduler may still read them
        server.engine.abort(generate.uids, "the client went away")
        assert len(media.released) == 1

    served(check, auto=False, limits=TAKES_MEDIA, media=media)


# -- chats -------------------------------------------------------------------------------------------------------------

TEXT = {"type": "text", "text": "What?"}
PARTS: list[tuple[dict[str, Any], MediaKind, str, str, dict[str, Any]]] = [
    ({"type": "image_url", "image_url": {"url": URI, "detail": "high"}}, IMAGE, URI, "image_url", {"detail": "high"}),
    ({"type": "image_url", "image_url": URL}, IMAGE, URL, "image_url", {}),
    ({"type": "input_image", "image_url": URL, "detail": "low"}, IMAGE, URL, "image_url", {"detail": "low"}),
    ({"type": "image", "image": "a.png"}, IMAGE, "a.png", "image", {}),
    ({"type": "image", "url": URL}, IMAGE, URL, "url", {}),
    ({"type": "image", "path": "a.png"}, IMAGE, "a.png", "path", {}),
    ({"type": "image", "base64": "iVBO"}, IMAGE, "iVBO", "base64", {}),
    ({"type": "video_url", "video_url": {"url": URL, "fps": 1.5, "max_frames": 4}}, VIDEO, URL, "video_url",
     {"fps": 1.5, "max_frames": 4}),
    ({"type": "video", "video": "a.mp4", "num_frames": 8}, VIDEO, "a.mp4", "video", {"num_frames": 8}),
    ({"type": "input_audio", "input_audio": {"data": "UklG", "format": "wav"}}, AUDIO, "UklG", "input_audio", {}),
    ({"type": "audio_url", "audio_url": {"url": URL}}, AUDIO, URL, "audio_url", {}),
    ({"type": "audio", "audio": "a.wav"}, AUDIO, "a.wav", "audio", {}),
]  # fmt: skip


@pytest.mark.parametrize(("part", "kind", "written", "name", "options"), PARTS)
def test_a_part_of_a_chat_becomes_a_piece_in_its_place(
    part: dict[str, Any], kind: MediaKind, written: str, name: str, options: dict[str, Any]
) -> None:
    media = FakeMedia()
    chat = {"messages": [{"role": "user", "content": [TEXT, part, {"type": "text", "text": "!"}]}], "max_tokens": 1}

    async def check(server: Served) -> None:
        status, reply = await server.post("/v1/chat/completions", chat)
        assert status == 200, reply
        ((source,),) = media.asked
        assert (source.kind, source.written, source.options) == (kind, written, options)
        assert source.place == f"messages[0].content[1].{name}"
        (generate,) = server.engine.of_type(Generate)
        assert (
            generate.content.text == f"user:What?<{kind.value}>!\n"
            and generate.content.is_rendered
            and generate.content.ids is None
        )
        assert written.encode() not in server.engine.of_type(Render)[0].chat

    served(check, limits=TAKES_MEDIA, media=media)


def test_media_of_several_turns_and_kinds_keep_their_order() -> None:
    def image(url: str) -> dict[str, Any]:
        return {"type": "image_url", "image_url": {"url": url}}

    messages = [
        {"role": "user", "content": [image("a"), TEXT, {"type": "audio", "audio": "b"}]},
        {"role": "assistant", "content": "It is."},
        {"role": "user", "content": [{"type": "video", "video": "c"}, image("d")]},
    ]
    asks(
        "/v1/chat/completions",
        {"messages": messages, "max_tokens": 1, "n": 2},
        [
            [
                (IMAGE, "a", "messages[0].content[0].image_url"), (AUDIO, "b", "messages[0].content[2].audio"),
                (VIDEO, "c", "messages[2].content[0].video"), (IMAGE, "d", "messages[2].content[1].image_url"),
            ]
        ],
        ["user:<image>What?<audio>\nassistant:It is.\nuser:<video><image>\n"],
    )  # fmt: skip


@pytest.mark.parametrize("choice", ["auto", "required"])
def test_a_chat_with_tools_has_pictures_in_turns_and_in_results(choice: str) -> None:
    """A forced call is held to its tool behind a picture as behind a text."""
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    called = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": [TEXT, PICTURE_PART]},
        {"role": "assistant", "content": "", "tool_calls": [called]},
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "see"}, PICTURE_PART]},
    ]
    media = FakeMedia()

    async def check(server: Served) -> None:
        body = {"messages": messages, "tools": [tool], "tool_choice": choice, "max_tokens": 1}
        status, reply = await server.post(CHAT, body)
        assert status == 200, reply
        assert media.places == ["messages[0].content[1].image_url", "messages[2].content[1].image_url"]
        (generate,) = server.engine.of_type(Generate)
        assert (
            generate.content.text == "user:What?<image>\nassistant:\ntool:see<image>\n"
            and len(generate.content.media) == 2
        )
        assert (generate.spec.constraint is not None) == (choice == "required")

    served(check, limits=TAKES_MEDIA, media=media)


def test_anthropics_pictures_stand_in_turns_and_in_results_of_tools() -> None:
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}}
    shown = {"type": "image", "source": {"type": "url", "url": URL}}
    result = {
        "type": "tool_result",
        "tool_use_id": "t",
        "content": [{"type": "text", "text": "see"}, shown],
        "is_error": True,
    }
    turns = [
        {"role": "user", "content": [picture, TEXT]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "look", "input": {}}]},
        {"role": "user", "content": [result, {"type": "text", "text": "And?"}]},
    ]
    asks(
        "/v1/messages",
        {"messages": turns, "max_tokens": 1},
        [
            [
                (IMAGE, "data:image/png;base64,iVBO", "messages[0].content[0].source"),
                (IMAGE, URL, "messages[2].content[0].content[1].source"),
            ]
        ],
        ["user:<image>What?\nassistant:\ntool:Error: see<image>\nuser:And?\n"],
    )


def test_responses_have_pictures_in_messages_and_in_outputs_of_functions() -> None:
    items = [
        {
            "role": "user",
            "content": [{"type": "input_text", "text": "What?"}, {"type": "input_image", "image_url": "a"}],
        },
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image", "image_url": "b"}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "t"}]},
        {"role": "assistant", "content": [{"type": "input_image", "image_url": "c"}]},
    ]
    asks(
        "/v1/responses",
        {"input": items, "max_output_tokens": 1},
        [
            [
                (IMAGE, "a", "input[0].content[1].image_url"),
                (IMAGE, "b", "input[2].output[0].image_url"),
                (IMAGE, "c", "input[4].content[0].image_url"),
            ]
        ],
        ["user:What?<image>\nassistant:\ntool:<image>\nassistant:<image>\n"],
    )


def test_a_response_goes_on_from_one_with_a_picture() -> None:
    media = FakeMedia()

    async def check(server: Served) -> None:
        picture = {"type": "input_image", "image_url": "a", "detail": "low"}
        first = {"input": [{"role": "user", "content": [picture]}], "max_output_tokens": 1}
        status, reply = await server.post("/v1/responses", first)
        assert status == 200, reply
        _, items = await server.get(f"/v1/responses/{reply['id']}/input_items")
        assert items["data"][0]["content"] == [picture]
        second = {"input": "And?", "previous_response_id": reply["id"], "max_output_tokens": 1}
        status, reply = await server.post("/v1/responses", second)
        assert status == 200, reply
        ((before,), (again,)) = media.asked
        assert (before.written, before.options) == (again.written, again.options) == ("a", {"detail": "low"})
        assert again.place == "previous_response_id" and again.kind is IMAGE

    served(check, limits=TAKES_MEDIA, media=media)


def of_user(*parts: Any) -> list[Any]:
    return [{"role": "user", "content": list(parts)}]


CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
AT = "messages[0].content[0]"
WRONG_PARTS: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    (CHAT, {"messages": of_user({"type": "image_url"})}, (f"{AT}.image_url is missing",)),
    (CHAT, {"messages": of_user({"type": "image_url", "image_url": 5})}, (f"{AT}.image_url is 5", "URL")),
    (CHAT, {"messages": of_user({"type": "image_url", "image_url": {"url": ""}})}, (f"{AT}.image_url.url is ''",)),
    (CHAT, {"messages": of_user({"type": "image_url", "image_url": {"url": "x", "detail": 5}})},
     (f"{AT}.image_url.detail is 5",)),
    (CHAT, {"messages": of_user({"type": "image"})}, (f"{AT}.image is missing",)),
    (CHAT, {"messages": of_user({"type": "image", "image": "a", "url": "b"})}, (f"{AT}.image is set beside url",)),
    (CHAT, {"messages": of_user({"type": "video_url", "video_url": {"url": "x", "fps": 0}})},
     (f"{AT}.video_url.fps is 0",)),
    (CHAT, {"messages": of_user({"type": "video", "video": "x", "max_frames": 1e9})}, (f"{AT}.max_frames is",)),
    (CHAT, {"messages": of_user({"type": "input_audio", "input_audio": "x"})}, (f"{AT}.input_audio is 'x'",)),
    (CHAT, {"messages": of_user({"type": "input_audio", "input_audio": {}})}, (f"{AT}.input_audio.data is missing",)),
    (CHAT, {"messages": of_user({"type": "file", "file": {}})}, (f"{AT} is of type 'file'", "not built")),
    (CHAT, {"messages": of_user({"type": "image", "image": "BROKEN"})}, (f"{AT}.image is no picture",)),
    (CHAT, {"messages": of_user({"type": "image", "image": "x"}), "mm_processor_kwargs": {"a": 1}},
     ("mm_processor_kwargs is",)),
    (CHAT, {"messages": of_user({"type": "image", "image": "x"}), "truncate_prompt_tokens": 5},
     ("truncate_prompt_tokens is set", "media")),
    (RESPONSES, {"input": of_user({"type": "input_image", "file_id": "f"})}, ("input[0].content[0].file_id is 'f'",)),
    (RESPONSES, {"input": of_user({"type": "input_image"})}, ("input[0].content[0].image_url is missing",)),
    (RESPONSES, {"input": of_user({"type": "input_file"})}, ("input[0].content[0] is of type 'input_file'",)),
    (MESSAGES, {"messages": of_user({"type": "image"}), "max_tokens": 1}, (f"{AT}.source is missing",)),
    (MESSAGES, {"messages": of_user({"type": "image", "source": {"type": "url"}}), "max_tokens": 1},
     (f"{AT}.source.url is missing",)),
    (MESSAGES, {"messages": of_user({"type": "image", "source": {"type": "file", "file_id": "f"}}), "max_tokens": 1},
     (f"{AT}.source is of type 'file'",)),
    (MESSAGES, {"messages": of_user({"type": "image", "source": {"type": "base64", "data": "a", "media_type": "a/b"}}),
     "max_tokens": 1}, (f"{AT}.source.media_type is",)),
    (MESSAGES, {"messages": of_user({"type": "document"}), "max_tokens": 1}, (f"{AT} is of type 'document'",)),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "words"), WRONG_PARTS)
def test_a_wrong_part_is_refused_at_its_place(path: str, body: dict[str, Any], words: tuple[str, ...]) -> None:
    refuses(path, body, *words)


BEFORE_A_TURN = (  # what an assistant's turn is joined with
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "t"}]}, {"role": "assistant", "content": ""},
)  # fmt: skip
OF_SURFACES = [
    (CHAT, {"messages": of_user({"type": "image_url", "image_url": "x"})}, f"{AT}.image_url"),
    (MESSAGES, {"messages": of_user({"type": "image", "source": {"type": "url", "url": "x"}}), "max_tokens": 1},
     f"{AT}.source"),
    (RESPONSES, {"input": of_user({"type": "input_image", "image_url": "x"})}, "input[0].content[0].image_url"),
    *((RESPONSES, {"input": [before, {"role": "assistant", "content": [{"type": "input_image", "image_url": "x"}]}]},
       "input[1].content[0].image_url") for before in BEFORE_A_TURN),
    ("/v1/tokenize", {"messages": of_user({"type": "image_url", "image_url": "x"})}, f"{AT}.image_url"),
    ("/v1/messages/count_tokens", {"messages": of_user({"type": "image", "source": {"type": "url", "url": "x"}})},
     f"{AT}.source"),
    ("/generate", {"text": "a", "image_data": "x"}, "image_data"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "place"), OF_SURFACES)
def test_a_model_of_texts_takes_no_pictures_on_any_surface(path: str, body: dict[str, Any], place: str) -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(path, body)
        fact = "is set, but this model takes no images (it takes texts alone)"
        assert (status, error_of(reply)) == (400, f"{place} {fact}")

    served(check)


def test_tokens_of_a_chat_are_counted_with_those_of_its_pictures() -> None:
    media = FakeMedia()

    async def check(server: Served) -> None:
        picture = {"type": "image", "source": {"type": "url", "url": "x"}}
        _, counted = await server.post("/v1/messages/count_tokens", {"messages": of_user(picture, TEXT)})
        shown = {"type": "image_url", "image_url": "x"}
        _, made = await server.post("/v1/tokenize", {"messages": of_user(shown, TEXT)})
        text = "user:<image><image><image>What?\n"
        assert counted["input_tokens"] == made["count"] == len(text)
        assert made["tokens"] == list(text.encode())
        assert len(media.released) == 2 and server.client.num_waiting == 0

    served(check, limits=TAKES_MEDIA, media=media)


@pytest.mark.parametrize(("path", "body"), [
    (CHAT, {"messages": of_user({"type": "image_url", "image_url": "x"}), "max_tokens": 2, "stream": True}),
    ("/generate", {"text": "a", "image_data": "x", "stream": True, "sampling_params": {"max_new_tokens": 2}}),
])  # fmt: skip
def test_streams_have_media_too(path: str, body: dict[str, Any]) -> None:
    media = FakeMedia()

    async def check(server: Served) -> None:
        events = await server.events(path, body)
        assert events[-1] == "[DONE]" and len(server.engine.of_type(Generate)[0].content.media) == 1
        assert len(media.released) == 1

    served(check, limits=TAKES_MEDIA, media=media)
