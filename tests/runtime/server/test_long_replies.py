"""A reply of a million numbers is written in pieces: others run after every few, and its JSON is that of one piece."""

import asyncio
from asyncio import selector_events
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import numpy as np
import orjson
import pytest
from msgspec.structs import replace

from ramet.ipc.message import Uid
from ramet.ipc.messages import Closed, Finish, FinishKind, Generate, HiddenStates, Logprobs, Opened, TokenStep, pack_ids
from ramet.ipc.spec import RequestSpec
from ramet.runtime.replies.long_list import MAX_PART, LongList, in_parts
from ramet.runtime.server.http import sse
from ramet.runtime.server.http.exchange import MAX_TURN, pieces_of
from tests.fakes.engine import VOCAB
from tests.fakes.server import Served, served

PLACES, TOP, STEP = 1000, 256, 100
WIDTH = 64
NUMBER_BYTES = 64  # of JSON at most: a log-probability, its token's id and text
MAX_AT_ONCE = 2 * MAX_TURN + MAX_PART * NUMBER_BYTES


class Turns:
    """Beside a server: how many bytes its loop gave to sockets between two turns of another task."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes = [0]
        transport: Any = selector_events._SelectorSocketTransport  # type: ignore[attr-defined]
        write, writelines = transport.write, transport.writelines

        def count(one: Any, data: bytes) -> None:
            self.sizes[-1] += len(data)
            write(one, data)

        def count_all(one: Any, lines: list[bytes]) -> None:
            self.sizes[-1] += sum(map(len, lines))
            writelines(one, lines)

        monkeypatch.setattr(transport, "write", count)
        monkeypatch.setattr(transport, "writelines", count_all)

    async def run(self) -> None:
        while True:
            self.sizes.append(0)
            await asyncio.sleep(0)


def numbers(seed: int, num: int) -> bytes:
    return np.random.default_rng(seed).normal(size=num).astype(np.float32).tobytes()


def ids(seed: int, num: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, VOCAB, num).tolist()


def messages(uid: Uid, spec: RequestSpec) -> list[TokenStep]:
    """A prompt of PLACES tokens and one token after it, as a scheduler's steps would bring them."""
    opened = Opened(uid, spec.detokenize_options, PLACES, 0)
    texts = {token: f"<{token}>" for token in range(VOCAB)} if spec.logprobs and spec.logprobs.texts else {}
    steps = [TokenStep([], b"", [opened])]
    for first in range(0, PLACES, STEP):
        logprobs, hidden = [], []
        if spec.logprobs and spec.logprobs.start is not None:
            top = pack_ids(ids(first, STEP * TOP)), numbers(first, STEP * TOP)
            lengths = pack_ids([3] * STEP) if texts else b""
            values = numbers(first + 1, STEP)
            logprobs = [Logprobs(uid, True, pack_ids(ids(7, STEP)), values, *top, texts=texts, lengths=lengths)]
        if spec.hidden:
            hidden = [HiddenStates(uid, WIDTH, numbers(first, STEP * WIDTH))]
        steps.append(TokenStep([], b"", logprobs=logprobs, hidden=hidden))
    last = Closed(uid, Finish(FinishKind.LENGTH, length=1))
    top = pack_ids(ids(9, TOP)), numbers(9, TOP)
    logprobs = [Logprobs(uid, False, pack_ids([5]), numbers(1, 1), *top, texts=texts)] if spec.logprobs else []
    return [*steps, TokenStep([uid], pack_ids([5]), texts=["x"], closed=[last], tails=[""], logprobs=logprobs)]


ASKED = {"return_logprob": True, "logprob_start_len": 0, "top_logprobs_num": TOP}
ONE = {"sampling_params": {"max_new_tokens": 1}}
OPENAI = {"prompt": [1] * 4, "max_tokens": 1, "logprobs": TOP, "echo": True}
LARGE: dict[str, tuple[str, dict[str, Any]]] = {
    "best": ("/generate", {"input_ids": [1], **ONE, **ASKED}),
    "best and texts": ("/generate", {"input_ids": [1], **ONE, **ASKED, "return_text_in_logprobs": True}),
    "hidden states": ("/generate", {"input_ids": [1], **ONE, "return_hidden_states": True}),
    "completion": ("/v1/completions", OPENAI),
}


async def ask(server: Served, path: str, body: dict[str, Any]) -> bytes:
    """The reply, when the engine has said all of it at once."""
    asking = asyncio.create_task(server.http.post(path, json=body))
    (sent,) = await server.engine.saw(Generate)
    (uid,) = sent.uids
    for message in messages(uid, sent.spec):
        server.engine.tell(message)
    async with await asking as response:
        assert response.status == 200
        return await response.read()


def during(check: Callable[[Served], Coroutine[Any, Any, None]], turns: Turns) -> None:
    async def both(server: Served) -> None:
        beside = asyncio.create_task(turns.run())
        await check(server)
        beside.cancel()

    served(both, auto=False)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("name", LARGE)
def test_others_run_after_every_few_bytes(name: str, stream: bool, monkeypatch: pytest.MonkeyPatch):
    path, body = LARGE[name]
    turns = Turns(monkeypatch)
    size = 0

    async def check(server: Served) -> None:
        nonlocal size
        size = len(await ask(server, path, {**body, "stream": stream}))

    during(check, turns)
    assert size > 8 * MAX_AT_ONCE / 4 and max(turns.sizes) <= MAX_AT_ONCE, (size, max(turns.sizes))


def test_scores_of_many_items_are_written_in_pieces(monkeypatch: pytest.MonkeyPatch):
    labels, items = list(range(VOCAB)), [[i % VOCAB] for i in range(500)]
    turns = Turns(monkeypatch)
    scores: list[list[float]] = []

    async def check(server: Served) -> None:
        beside = asyncio.create_task(turns.run())
        body = {"query": [1], "items": items, "label_token_ids": labels}
        async with server.http.post("/v1/score", json=body) as response:
            scores.extend(orjson.loads(await response.read())["scores"])
        beside.cancel()

    served(check)
    assert np.array(scores).shape == (len(items), len(labels))
    assert scores[7] == pytest.approx([np.exp(-(1 + (label + 7) % 5) / 2) for label in labels])
    assert max(turns.sizes) <= MAX_AT_ONCE, max(turns.sizes)


@pytest.mark.parametrize("name", LARGE)
def test_a_stream_and_a_whole_reply_have_the_same_numbers(name: str, monkeypatch: pytest.MonkeyPatch):
    path, body = LARGE[name]
    found = []

    async def check(server: Served) -> None:
        reply = orjson.loads(await ask(server, path, body))
        server.engine.sent.clear()
        events = [event for event in (await ask(server, path, {**body, "stream": True})).split(b"\n\n") if event]
        assert events.pop() == b"data: [DONE]"
        found.extend([reply, orjson.loads(events[-1].removeprefix(b"data: "))])

    served(check, auto=False)
    whole, last = found
    if path == "/generate":
        skipped = ("id", "e2e_latency")
        kept = [{k: v for k, v in each["meta_info"].items() if k not in skipped} for each in (whole, last)]
        assert kept[0] == kept[1]
        if "input_top_logprobs" in kept[0]:
            assert [len(top) for top in kept[0]["input_top_logprobs"]] == [TOP] * PLACES
            assert kept[0]["input_top_logprobs"][0][0][0] == float(np.frombuffer(numbers(0, 1), np.float32)[0])
            assert kept[0]["input_top_logprobs"][STEP][0][1] == ids(STEP, 1)[0]
        else:
            assert np.array(kept[0]["hidden_states"][0]).shape == (PLACES, WIDTH)
    else:
        assert whole["choices"][0]["logprobs"] == last["choices"][0]["logprobs"]
        assert len(whole["choices"][0]["logprobs"]["top_logprobs"]) == PLACES + 1


@pytest.mark.parametrize("deltas", [False, True])
def test_every_event_of_a_stream_has_what_came_before(deltas: bool):
    """Of the same entries the JSON is made once; a reply with only what is new has each of them once."""

    async def check(server: Served) -> None:
        body = {"text": "abc", "stream": True, **ASKED, "sampling_params": {"max_new_tokens": 5}}
        *events, _ = await server.events("/generate", body)
        lists = [event["meta_info"]["output_token_logprobs"] for event in events]
        parts = lists if deltas else [after[len(before) :] for before, after in zip([[], *lists], lists, strict=False)]
        assert [entry for part in parts for entry in part] == lists[-1] or deltas
        assert sum(map(len, parts)) == 5 and (deltas or len(lists[-1]) == 5)
        ends = [event["meta_info"]["completion_tokens"] for event in events]
        assert deltas or [len(each) for each in lists] == ends

    served(check, incremental_streaming_output=deltas)


def test_many_choices_are_made_in_pieces():
    async def check(server: Served) -> None:
        body = {"prompt": [f"{i} " for i in range(1000)], "max_tokens": 1, "echo": True}
        async with server.http.post("/v1/completions", json=body) as response:
            assert "Content-Length" not in response.headers
            choices = orjson.loads(await response.read())["choices"]
        assert [each["index"] for each in choices] == list(range(1000))
        assert all(each["text"].startswith(f"{i} ") for i, each in enumerate(choices))

    served(check)


@pytest.mark.parametrize(
    ("path", "field", "more"),
    [
        ("/generate", "text", {"sampling_params": {"max_new_tokens": 1}}),
        ("/v1/completions", "prompt", {"max_tokens": 1}),
    ],
)
def test_events_of_many_sequences_are_written_in_pieces(
    path: str, field: str, more: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    num, turns = 1000, Turns(monkeypatch)

    async def check(server: Served) -> None:
        asking = asyncio.create_task(server.events(path, {field: ["a"] * num, "stream": True, **more}))
        await server.engine.saw(Generate, num)
        turns.sizes.append(0)
        server.engine.step()
        *events, done = await asking
        indices = [event["index"] if path == "/generate" else event["choices"][0]["index"] for event in events]
        assert indices == list(range(num)) and done == "[DONE]"

    during(check, turns)
    size = sum(turns.sizes) / num
    assert max(turns.sizes) < 2 * sse.SEQUENCES_AT_ONCE * size, (size, max(turns.sizes))


def test_a_small_reply_has_its_length():
    async def check(server: Served) -> None:
        async with server.http.post("/generate", json={"text": "abc", **ASKED, **ONE}) as response:
            assert response.headers["Content-Length"] and response.content_type == "application/json"

    served(check)


def test_a_reply_that_fails_on_its_way_is_cut_off():
    """Its status has gone out: nothing that is added could tell the client."""

    async def check(server: Served) -> None:
        body = {"input_ids": [1], **ONE, **ASKED, "return_text_in_logprobs": True}
        asking = asyncio.create_task(server.http.post("/generate", json=body))
        (sent,) = await server.engine.saw(Generate)
        *others, last = messages(sent.uids[0], sent.spec)
        place = replace(last.logprobs[0], of_prompt=True, top_ids=pack_ids([VOCAB] * TOP))  # which have no texts
        for message in (*others, TokenStep([], b"", logprobs=[place]), last):
            server.engine.tell(message)
        async with await asking as response:
            with pytest.raises(Exception, match="payload"):
                await response.read()
        assert (await server.get("/v1/models"))[0] == 200

    served(check, auto=False)


class Body(msgspec.Struct):
    a: str
    first: Any
    nested: dict[str, Any]
    last: Any


@pytest.mark.parametrize("seed", range(20))
def test_pieces_together_are_the_json_of_the_whole(seed: int):
    draw = np.random.default_rng(seed)
    values: list[Any] = [[float(v), int(i), '\0"é'] for v, i in zip(draw.normal(size=300), range(300), strict=True)]

    def long(num: int, each: int) -> LongList:
        return LongList(in_parts(lambda i, j: values[i:j], 0, num, each))

    nums = draw.integers(0, 300, 4).tolist()
    each = int(draw.integers(1, MAX_PART))
    cut = Body('\0"', long(nums[0], each), {"x": [long(nums[1], 1), 1], "y": "\0"}, LongList(
        iter([LongList(iter([])), values[: nums[2]] or [0], LongList(iter([[1], long(nums[3], each)]))])
    ))  # fmt: skip
    uncut = Body('\0"', values[: nums[0]], {"x": [values[: nums[1]], 1], "y": "\0"}, [
        [], *(values[: nums[2]] or [0]), [1, values[: nums[3]]]
    ])  # fmt: skip
    assert b"".join(pieces_of(cut)) == msgspec.json.encode(uncut)
