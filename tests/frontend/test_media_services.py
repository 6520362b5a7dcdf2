"""One program with media, as each service is asked it: the bodies, and what is refused before any call."""

import base64
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ramet import (
    Anthropic,
    CallFailed,
    Endpoint,
    Gemini,
    LiteLLM,
    OpenAI,
    Unsupported,
    assistant,
    audio,
    function,
    gen,
    image,
    select,
    system,
    user,
    video,
)
from tests.fakes.exchanges import Exchange, Service

PNG, JPEG = b"\x89PNG", b"\xff\xd8\xff\xe0"
WAV = b"RIFF\x00\x00\x00\x00WAVEfmt "
MP4 = b"\x00\x00\x00\x18ftypisom"
AT_PNG, AT_WAV, AT_MP4 = (base64.b64encode(each).decode() for each in (PNG, WAV, MP4))
URL = "https://a.example/b.jpg"
OWN = "data:image/png;base64," + AT_PNG


@function
def look(s: Any, path: Any) -> None:
    s += system("Be kind.")
    s += user("See " + image(path) + "and" + image(URL) + ". What?")
    s += assistant(gen("x", max_tokens=5))


def text(of: str) -> dict[str, Any]:
    return {"type": "text", "text": of}


def of_url(url: str, kind: str = "image") -> dict[str, Any]:
    return {"type": f"{kind}_url", f"{kind}_url": {"url": url}}


PARTS = [text("See "), of_url(OWN), text("and"), of_url(URL), text(". What?")]
CHAT = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": PARTS}]
CHOICE = {"index": 0, "message": {"role": "assistant", "content": " a cat"}, "finish_reason": "stop"}
GEMINI = "/models/g:generateContent"
OF_GEMINI = {"candidates": [{"content": {"parts": [{"text": " a cat"}]}, "finishReason": "STOP", "index": 0}]}
OF_ANTHROPIC = {"id": "m", "content": [text(" a cat")], "stop_reason": "end_turn", "usage": {}}
OF_SGLANG = {"text": " a cat", "meta_info": {"finish_reason": {"type": "stop", "matched": 1}}}


@dataclass(frozen=True)
class Case:
    """`body`: what is asked of `path`."""

    make: Callable[[str], Any]
    path: str
    body: dict[str, Any]
    answer: Any


def chat(body: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": CHAT, **body, **more}


def anthropic_parts() -> list[dict[str, Any]]:
    own = {"type": "base64", "media_type": "image/png", "data": AT_PNG}
    pictures = [{"type": "image", "source": source} for source in (own, {"type": "url", "url": URL})]
    return [text("See "), pictures[0], text("and"), pictures[1], text(". What?")]


def gemini_parts() -> list[dict[str, Any]]:
    own, url = {"inlineData": {"mimeType": "image/png", "data": AT_PNG}}, {"fileData": {"fileUri": URL}}
    return [{"text": "See "}, own, {"text": "and"}, url, {"text": ". What?"}]


CASES = {
    "OpenAI": Case(
        lambda url: OpenAI("m", base_url=url, api_key="k", flavor="openai"),
        "/chat/completions",
        chat({"max_completion_tokens": 5}),
        {"choices": [CHOICE]},
    ),
    **{
        flavor: Case(
            lambda url, flavor=flavor: OpenAI("m", base_url=url, api_key="k", flavor=flavor),
            "/chat/completions",
            chat({"max_tokens": 5}),
            {"choices": [CHOICE]},
        )
        for flavor in ("compatible", "vllm", "sglang", "tgi", "llama.cpp")
    },
    "Anthropic": Case(
        lambda url: Anthropic("claude-opus-4-5", api_key="k", base_url=url),
        "/v1/messages",
        {
            "model": "claude-opus-4-5",
            "system": "Be kind.",
            "messages": [{"role": "user", "content": anthropic_parts()}],
            "max_tokens": 5,
        },
        OF_ANTHROPIC,
    ),
    "Gemini": Case(
        lambda url: Gemini("g", api_key="k", base_url=url),
        GEMINI,
        {
            "contents": [{"role": "user", "parts": gemini_parts()}],
            "systemInstruction": {"parts": [{"text": "Be kind."}]},
            "generationConfig": {"maxOutputTokens": 5},
        },
        OF_GEMINI,
    ),
    "SGLang": Case(
        lambda url: Endpoint(url, server="sglang", chat_template_name="qwen2-vl"),
        "/generate",
        {
            "text": "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nSee "
            "<|vision_start|><|image_pad|><|vision_end|>and<|vision_start|><|image_pad|><|vision_end|>. What?"
            "<|im_end|>\n<|im_start|>assistant\n",
            "sampling_params": {"max_new_tokens": 5, "stop": ["<|im_end|>"]},
            "image_data": [OWN, URL],
        },
        OF_SGLANG,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_one_program_runs_on_every_service_that_sees(case: Case, tmp_path: Path):
    (tmp_path / "cat.png").write_bytes(PNG)
    exchanges = [Exchange(case.path, case.body, case.answer)]
    if case.path == "/generate":
        exchanges.append(Exchange("/get_model_info", None, {"model_path": "m"}, method="GET"))
    with Service(*exchanges) as service:
        state = look.run(str(tmp_path / "cat.png"), backend=case.make(service.url))
        assert state["x"] == " a cat"


def test_it_runs_on_litellm(monkeypatch: pytest.MonkeyPatch):
    asked: list[dict[str, Any]] = []

    class Library(ModuleType):
        async def acompletion(self, **arguments: Any) -> Any:
            asked.append(arguments)
            return SimpleNamespace(model_dump=lambda: {"choices": [CHOICE]})

    monkeypatch.setitem(sys.modules, "litellm", Library("litellm"))
    assert look.run(PNG, backend=LiteLLM("m"))["x"] == " a cat"
    assert asked == [chat({"max_tokens": 5})]


@function
def watch(s: Any, num_frames: int | None = None) -> None:
    s += user(video(MP4, num_frames) + audio(WAV))
    s += assistant(gen("x", max_tokens=5))


def test_films_and_sound_where_a_server_takes_them():
    parts = [of_url("data:video/mp4;base64," + AT_MP4, "video")]
    parts.append({"type": "input_audio", "input_audio": {"data": AT_WAV, "format": "wav"}})
    body = {"model": "m", "messages": [{"role": "user", "content": parts}], "max_tokens": 5}
    framed = {**body, "media_io_kwargs": {"video": {"num_frames": 4}}}
    answer = {"choices": [CHOICE]}
    with Service(Exchange("/chat/completions", body, answer), Exchange("/chat/completions", framed, answer)) as service:
        backend = OpenAI("m", base_url=service.url, api_key="k", flavor="vllm")
        assert watch.run(backend=backend)["x"] == watch.run(4, backend=backend)["x"] == " a cat"
    found = (("video/mp4", AT_MP4), ("audio/wav", AT_WAV))
    inline = [{"inlineData": {"mimeType": mime, "data": data}} for mime, data in found]
    body = {"contents": [{"role": "user", "parts": inline}], "generationConfig": {"maxOutputTokens": 5}}
    with Service(Exchange(GEMINI, body, OF_GEMINI)) as service:
        assert watch.run(backend=Gemini("g", api_key="k", base_url=service.url))["x"] == " a cat"


def test_choices_behind_a_picture_are_scored_with_it_by_sglang():
    @function
    def choose(s: Any) -> None:
        s += image(PNG) + "A" + select("x", choices=[" cat", " dog"])

    def scored(text: str, *tokens: list[Any]) -> Exchange:
        body = {
            "text": text,
            "sampling_params": {"max_new_tokens": 0, "temperature": 0.0},
            "return_logprob": True,
            "logprob_start_len": 0,
            "image_data": [OWN],
        }
        return Exchange("/generate", body, {"text": "", "meta_info": {"input_token_logprobs": list(tokens)}})

    length = {"text": "<image>A", "sampling_params": {"max_new_tokens": 0}, "image_data": [OWN]}
    with Service(
        Exchange("/get_model_info", None, {"model_path": "m"}, method="GET"),
        Exchange("/generate", length, {"text": "", "meta_info": {"prompt_tokens": 2}}),
        scored("<image>A", [None, 1, None], [-1.0, 2, None]),
        scored("<image>A cat", [None, 1, None], [-1.0, 2, None], [-0.5, 3, None]),
        scored("<image>A dog", [None, 1, None], [-1.0, 2, None], [-2.5, 4, None]),
    ) as service:
        assert choose.run(backend=Endpoint(service.url, server="sglang"))["x"] == " cat"


def beside_turns(s: Any) -> None:
    s += image(PNG) + user("What?") + assistant(gen("x"))


def of_the_assistant(s: Any) -> None:
    s += user("What?") + assistant(image(PNG) + gen("x"))


def of_the_system(s: Any) -> None:
    s += system(image(PNG)) + user("What?") + assistant(gen("x"))


def film(s: Any) -> None:
    s += user(video(MP4)) + assistant(gen("x"))


def frames(s: Any) -> None:
    s += user(video(MP4, num_frames=3)) + assistant(gen("x"))


def sound(s: Any) -> None:
    s += user(audio(WAV)) + assistant(gen("x"))


NOWHERE = "http://127.0.0.1:9"


def openai(name: str = "gpt-4.1", is_chat_model: bool | None = None) -> OpenAI:
    return OpenAI(name, is_chat_model, api_key="k", base_url=NOWHERE, flavor="openai")


def claude() -> Anthropic:
    return Anthropic("claude-opus-4-5", api_key="k", base_url=NOWHERE)


REFUSED = [
    (beside_turns, openai, "image: .* takes media in turns of user only, and here is no turn"),
    (of_the_assistant, openai, "image: .* in turns of user only, and here is a turn of assistant"),
    (of_the_system, claude, "image: .* in turns of user only, and here is a turn of system"),
    (film, openai, "video: .* takes no video input"),
    (film, claude, "video: .* takes no video input"),
    (sound, claude, "audio: .* takes no audio input"),
    (sound, lambda: openai("o3"), "audio: .* takes no audio input"),
    (frames, lambda: Gemini("g", api_key="k", base_url=NOWHERE), "video: num_frames: .* has no such parameter"),
    (frames, lambda: Endpoint(NOWHERE, server="sglang"), "video: num_frames: .* has no such parameter"),
    (of_the_system, lambda: openai("davinci-002", False), "takes no image input"),
]


@pytest.mark.parametrize(("body", "backend", "why"), REFUSED)
def test_what_a_service_does_not_take_is_refused_at_its_line(body: Any, backend: Any, why: str):
    with pytest.raises(Unsupported, match=f"(?s){why}") as refused:
        function(body).run(backend=backend())
    assert any(entry.name == body.__name__ for entry in refused.traceback)


def test_forms_that_a_service_does_not_read_are_named():
    with pytest.raises(CallFailed, match=r"image: .* takes image/jpeg, image/png, .* and this one is image/bmp"):
        look.run(b"BM\x00\x00", backend=claude())["x"]
    with pytest.raises(CallFailed, match=r"audio: .* takes audio/wav, .* and this one is audio/flac"):
        function(lambda s: s.extend(user(audio(b"fLaC")) + assistant(gen("x")))).run(backend=openai())["x"]
    films = lambda s: s.extend(user(video(MP4, 3) + video(MP4)) + assistant(gen("x")))  # noqa: E731
    with pytest.raises(CallFailed, match=r"video: num_frames: .* as many frames of each film"):
        function(films).run(backend=OpenAI("m", api_key="k", base_url=NOWHERE, flavor="vllm"))["x"]
