"""Pictures through a real server and LLM: every surface says what transformers says of the same pictures."""

import base64
import re
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import orjson
import pytest
import requests
import torch
from live import Live
from PIL import Image
from tiny_media import make_llava

from ramet.__main__ import main
from ramet.runtime.llm import LLM

NEW = 12  # tokens
OPTIONS: dict[str, Any] = {"dtype": "float32", "num_threads": 1, "max_total_tokens": 4096, "media_workers": 1}
QUESTION = "What is in it?"
GREEDY = {"temperature": 0, "max_new_tokens": NEW, "ignore_eos": True}
OPENAI = {"temperature": 0, "max_tokens": NEW, "ignore_eos": True}


def picture(color: str, size: tuple[int, int] = (40, 28)) -> Image.Image:
    """A diagonal on one colour."""
    made = Image.new("RGB", size, color)
    for i in range(min(size)):
        made.putpixel((i, i), (255, 255, 255))
    return made


def encoded(image: Image.Image) -> bytes:
    file = BytesIO()
    image.save(file, "png")
    return file.getvalue()


def uri(image: Image.Image) -> str:
    return f"data:image/png;base64,{base64.b64encode(encoded(image)).decode()}"


PICTURES = [picture("red"), picture("blue", (28, 40))]
FILES = [encoded(each) for each in PICTURES]
URIS = [uri(each) for each in PICTURES]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_llava(tmp_path_factory.mktemp("media") / "llava")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Live]:
    with Live(model_path=folder, **OPTIONS) as live:
        yield live
        state = live.state()
        assert state["running_requests"] == state["leased_tokens"] == 0


@pytest.fixture(scope="module")
def expected(folder: Path) -> dict[int, list[int]]:
    """transformers' greedy outputs of a chat with so many pictures before the question."""
    from transformers import AutoImageProcessor, AutoTokenizer, LlavaForConditionalGeneration

    model = LlavaForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer, made = AutoTokenizer.from_pretrained(folder), {}
    processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
    for count in (0, 1, 2):
        content = [{"type": "image"}] * count + [{"type": "text", "text": QUESTION}]
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
        )
        ids = tokenizer(
            text.replace("<image>", "<image>" * 16), return_tensors="pt", add_special_tokens=False
        ).input_ids
        pixels = processor(images=PICTURES[:count], return_tensors="pt") if count else {}
        with torch.inference_mode():
            out = model.generate(ids, **pixels, max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False)
        made[count] = out[0, ids.shape[1] :].tolist()
    return made


def post(server: Live, path: str, **body: Any) -> Any:
    reply = requests.post(server.url + path, json=body, timeout=60)
    assert reply.status_code == 200, reply.text
    return reply.json()


def turn(count: int, part: Any, text: str = "text") -> list[dict[str, Any]]:
    return [{"role": "user", "content": [*map(part, range(count)), {"type": text, "text": QUESTION}]}]


def rendered(server: Live, count: int) -> str:
    """The prompt of the chat, as /generate gets it."""
    return f"<|im_start|>user\n{'<image>' * count}{QUESTION}<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize("count", [0, 1, 2])
def test_every_surface_says_what_transformers_says(server: Live, expected: dict[int, list[int]], count: int) -> None:
    ids, text = expected[count], post(server, "/v1/detokenize", tokens=expected[count])["text"]
    native = post(server, "/generate", text=rendered(server, count), image_data=URIS[:count], sampling_params=GREEDY)
    assert native["output_ids"] == ids and native["text"] == text
    openai = post(
        server, "/v1/chat/completions", return_token_ids=True, **OPENAI,
        messages=turn(count, lambda i: {"type": "image_url", "image_url": {"url": URIS[i]}}),
    )["choices"][0]  # fmt: skip
    assert openai["token_ids"] == ids and openai["message"]["content"] == text
    items = turn(count, lambda i: {"type": "input_image", "image_url": URIS[i]}, "input_text")
    response = post(server, "/v1/responses", input=items, temperature=0, max_output_tokens=NEW, ignore_eos=True)
    assert response["output"][0]["content"][0]["text"] == text
    blocks = turn(count, lambda i: {"type": "image", "source": source(i)})
    message = post(server, "/v1/messages", messages=blocks, **OPENAI)
    assert message["content"][0]["text"] == text
    used = message["usage"]["input_tokens"] + message["usage"]["cache_read_input_tokens"]
    tokens = [native["meta_info"]["prompt_tokens"], response["usage"]["input_tokens"], used]
    counted = post(server, "/v1/messages/count_tokens", messages=blocks)["input_tokens"]
    assert tokens == [counted] * 3


def source(index: int) -> dict[str, str]:
    return {"type": "base64", "media_type": "image/png", "data": base64.b64encode(FILES[index]).decode()}


def test_streams_say_the_same(server: Live, expected: dict[int, list[int]]) -> None:
    messages = turn(2, lambda i: {"type": "image_url", "image_url": URIS[i]})
    body = {"messages": messages, "stream": True, **OPENAI}
    with requests.post(server.url + "/v1/chat/completions", json=body, stream=True, timeout=60) as reply:
        lines = [line.removeprefix(b"data: ") for line in reply.iter_lines() if line]
    deltas = [orjson.loads(line)["choices"] for line in lines if line != b"[DONE]"]
    said = "".join(choice["delta"].get("content") or "" for choices in deltas for choice in choices)
    assert said == post(server, "/v1/detokenize", tokens=expected[2])["text"]


def test_batches_mix_prompts_with_and_without_pictures(server: Live, expected: dict[int, list[int]]) -> None:
    texts = [rendered(server, count) for count in (1, 0, 2)]
    data = [URIS[0], None, URIS]
    params = {**GREEDY, "n": 2}
    replies = post(server, "/generate", text=texts, image_data=data, sampling_params=params)
    assert [reply["output_ids"] for reply in replies] == [expected[count] for count in (1, 1, 0, 0, 2, 2)]


def test_a_second_question_about_a_picture_finds_it_in_the_cache(server: Live) -> None:
    begun, seen, unseen = "<|im_start|>user\n<image>", uri(picture("green")), uri(picture("black"))
    first = post(server, "/generate", text=begun + "Who?", image_data=seen, sampling_params=GREEDY)
    again = post(server, "/generate", text=begun + "Where?", image_data=seen, sampling_params=GREEDY)
    other = post(server, "/generate", text=begun + "Where?", image_data=unseen, sampling_params=GREEDY)
    assert again["meta_info"]["cached_tokens"] > 16 > other["meta_info"]["cached_tokens"]
    assert first["meta_info"]["cached_tokens"] < 16 and again["output_ids"] != other["output_ids"]


def test_what_is_asked_of_texts_is_asked_of_pictures(server: Live, expected: dict[int, list[int]]) -> None:
    prompt = {"text": rendered(server, 2), "image_data": URIS}
    kept = post(server, "/generate", **prompt, sampling_params={**GREEDY, "ignore_eos": False, "regex": "[a-f]{3}"})
    assert re.fullmatch("[a-f]{3}", kept["text"])
    asked = {"return_logprob": True, "logprob_start_len": 0, "top_logprobs_num": 2, "cache_salt": "a"}
    salted = post(server, "/generate", **prompt, **asked, sampling_params=GREEDY)
    meta = salted["meta_info"]
    assert salted["output_ids"] == expected[2] and meta["cached_tokens"] == 0
    assert len(meta["input_token_logprobs"]) == meta["prompt_tokens"] and len(meta["output_top_logprobs"]) == NEW
    again = post(server, "/generate", **prompt, cache_salt="a", sampling_params=GREEDY)
    assert again["output_ids"] == expected[2] and again["meta_info"]["cached_tokens"] > 32
    healed = post(server, "/generate", **prompt, token_healing=True, sampling_params=GREEDY)
    assert healed["meta_info"]["completion_tokens"] == NEW
    states = post(server, "/generate", **prompt, return_hidden_states="last", sampling_params=GREEDY)
    assert states["output_ids"] == expected[2]


def test_llm_says_the_same(folder: Path, server: Live, expected: dict[int, list[int]]) -> None:
    with LLM(str(folder), **OPTIONS) as llm:
        data: list[Any] = [PICTURES[0], None, [FILES[0], PICTURES[1]]]
        texts = [rendered(server, count) for count in (1, 0, 2)]
        replies = llm.generate(texts, GREEDY, image_data=data)
        assert [reply["output_ids"] for reply in replies] == [expected[count] for count in (1, 0, 2)]
        chats = [turn(count, lambda i: {"type": "image", "image": PICTURES[i]}) for count in (0, 1, 2)]
        made = llm.chat(chats, GREEDY)
        streamed = list(llm.stream_chat(chats[2], GREEDY))[-1]
        assert [streamed["text"]] == [made[2]["message"]["content"]]
        assert streamed["output_ids"] == expected[2]


def test_the_terminal_says_the_same(
    folder: Path, server: Live, expected: dict[int, list[int]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [str(tmp_path / f"{i}.png") for i in range(2)]
    for name, data in zip(names, FILES, strict=True):
        Path(name).write_bytes(data)
    shown = [word for name in names for word in ("--image", name)]
    options = [word for name, value in OPTIONS.items() for word in ("--" + name.replace("_", "-"), str(value))]
    argv = ["run", QUESTION, "--model-path", str(folder), *options, "--temperature", "0"]
    argv += ["--max-new-tokens", str(NEW), "--ignore-eos"]
    assert main([*argv, *shown]) == 0
    assert capsys.readouterr().out == post(server, "/v1/detokenize", tokens=expected[2])["text"] + "\n"
    Path(names[0]).write_text("no picture")
    assert main([*argv, *shown]) == 2 and "0.png is no picture" in capsys.readouterr().err


WRONG: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    ("/generate", {"text": "<image>", "image_data": "AAAA"}, ("image_data",)),
    ("/generate", {"text": "<image>", "image_data": "/etc/passwd"}, ("image_data", "--allowed-local-media-path")),
    ("/generate", {"text": "<image>", "image_data": "http://127.0.0.1/x"}, ("image_data", "--allowed-media-domains")),
    ("/generate", {"text": "no place", "image_data": URIS[0]}, ("image_data", "0 times <image>")),
    ("/generate", {"text": "<image><image>", "image_data": URIS[0]}, ("image_data", "2 times <image>")),
    ("/generate", {"text": ["a", "<image>"], "image_data": [None, "AAAA"]}, ("image_data[1]",)),
    ("/generate", {"text": "a", "video_data": URIS[0]}, ("video_data is set", "no films")),
    ("/v1/chat/completions", {"messages": turn(1, lambda i: {"type": "image_url", "image_url": "data:,a"})},
     ("messages[0].content[0].image_url",)),
    ("/v1/chat/completions", {"messages": turn(1, lambda i: {"type": "input_audio", "input_audio": {"data": "AAAA"}})},
     ("messages[0].content[0].input_audio is set", "no sound")),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "words"), WRONG)
def test_what_cannot_be_read_is_refused_at_its_place(
    server: Live, path: str, body: dict[str, Any], words: tuple[str, ...]
) -> None:
    reply = requests.post(server.url + path, json=body, timeout=60)
    message = reply.json()["error"]["message"]
    assert reply.status_code == 400 and message.startswith(words[0]), message
    assert all(word in message for word in words), message


def test_features_and_processed_pictures_stand_for_pictures(
    folder: Path, server: Live, expected: dict[int, list[int]]
) -> None:
    from transformers import AutoImageProcessor, LlavaForConditionalGeneration

    made = AutoImageProcessor.from_pretrained(folder, backend="pil")(images=PICTURES[:1], return_tensors="pt")
    model = LlavaForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        features = model.model.get_image_features(**made).pooler_output[0]
    processed = {"format": "processor_output", "pixel_values": buffer(made["pixel_values"])}
    computed = {"format": "precomputed_embedding", "feature": buffer(features)}
    ids = post(server, "/v1/tokenize", prompt=rendered(server, 1), add_special_tokens=False)["tokens"]
    token = post(server, "/v1/tokenize", prompt="<image>", add_special_tokens=False)["tokens"]
    expanded = [each for one in ids for each in ([one] * 16 if [one] == token else [one])]
    for data in (processed, computed):
        reply = post(server, "/generate", input_ids=expanded, image_data=data, sampling_params=GREEDY)
        assert reply["output_ids"] == expected[1]


def buffer(tensor: torch.Tensor) -> dict[str, Any]:
    data = base64.b64encode(tensor.float().numpy().tobytes()).decode()
    return {"dtype": "float32", "shape": list(tensor.shape), "data": data}


def test_the_model_says_which_media_it_takes(server: Live) -> None:
    info = requests.get(server.url + "/get_model_info", timeout=20).json()
    takes = {name: info[f"has_{name}_understanding"] for name in ("image", "video", "audio")}
    assert takes == {"image": True, "video": False, "audio": False}
