"""/v1/completions: OpenAI's shapes, echo, usage, model names, the official client."""

import asyncio

import openai
import pytest

from ramet.ipc.content import Content
from ramet.ipc.message import Uid
from ramet.ipc.messages import Finish, FinishKind, Generate, Logprobs, pack_ids, unpack_ids
from ramet.ipc.params import SamplingParams
from ramet.ipc.spec import LogprobSpec, RequestSpec
from ramet.runtime.engine_client.prompt import Prompt
from ramet.runtime.engine_client.submission import GeneratedSequence, Submission
from ramet.runtime.replies.logprobs import LogprobLists
from ramet.runtime.server.openai.completions import COMPARED_AT_ONCE, Spelling, likeliest, named, shown_length
from tests.fakes.engine import CACHED, floats, logprob_of, text_of, token_at
from tests.fakes.server import Served, served


def test_a_prompt_gets_a_completion() -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(
            "/v1/completions", {"model": "ramet-bundled", "prompt": "abc", "max_tokens": 4}
        )
        assert status == 200 and reply["object"] == "text_completion" and reply["model"] == "ramet-bundled"
        assert reply["id"].startswith("cmpl-") and reply["created"] > 0
        choice = {"index": 0, "text": text_of(1, 4), "logprobs": None, "finish_reason": "length", "matched_stop": None}
        assert reply["choices"] == [choice]
        assert reply["usage"] == {
            "prompt_tokens": 3,
            "completion_tokens": 4,
            "total_tokens": 7,
            "prompt_tokens_details": {"cached_tokens": CACHED},
            "completion_tokens_details": {"reasoning_tokens": 0},
            "reasoning_tokens": 0,
        }

    served(check)


@pytest.mark.parametrize("prompt, lengths", [
    ("abc", [3]),
    (["a", "bb"], [1, 2]),
    ([7, 8, 9], [3]),
    ([[7], [8, 9]], [1, 2]),
])  # fmt: skip
def test_every_form_of_prompt(prompt: object, lengths: list[int]) -> None:
    async def check(server: Served) -> None:
        _, reply = await server.post("/v1/completions", {"prompt": prompt, "n": 2, "max_tokens": 1})
        assert [c["index"] for c in reply["choices"]] == list(range(2 * len(lengths)))
        assert reply["usage"]["prompt_tokens"] == sum(lengths)  # once per prompt, whatever n
        assert reply["usage"]["completion_tokens"] == 2 * len(lengths)
        assert reply["usage"]["prompt_tokens_details"]["cached_tokens"] == CACHED * len(lengths)

    served(check)


def test_fields_become_sampling_parameters() -> None:
    async def check(server: Served) -> None:
        await server.post("/v1/completions", {
            "prompt": "a", "max_tokens": 9, "min_tokens": 2, "seed": 5, "temperature": 0.5, "top_p": 0.9, "top_k": 3,
            "min_p": 0.1, "stop": ["x", "y"], "stop_token_ids": [4], "stop_regex": "z+", "ignore_eos": True,
            "skip_special_tokens": False, "no_stop_trim": True, "user": "u", "metadata": {"a": 1}, "unknown": [1],
            "best_of": 1, "suffix": None, "logit_bias": {}, "logprobs": False,
            "frequency_penalty": 0, "presence_penalty": 0.0, "repetition_penalty": 1,
        })  # fmt: skip
        (sent,) = server.engine.of_type(Generate)
        assert sent.spec.params == SamplingParams(
            max_new_tokens=9, min_new_tokens=2, sampling_seed=5, temperature=0.5, top_p=0.9, top_k=3, min_p=0.1,
            stop=("x", "y"), stop_token_ids=(4,), stop_regex=("z+",), ignore_eos=True, skip_special_tokens=False,
            no_stop_trim=True,
        )  # fmt: skip

    served(check)


def test_sixteen_tokens_and_the_models_temperature_are_the_defaults() -> None:
    async def check(server: Served) -> None:
        await server.post("/v1/completions", {"prompt": "a", "max_tokens": None})
        (sent,) = server.engine.of_type(Generate)
        assert (sent.spec.params.max_new_tokens, sent.spec.params.temperature) == (16, 0.6)

    served(check, defaults=SamplingParams(temperature=0.6))


@pytest.mark.parametrize("echo", [False, True])
@pytest.mark.parametrize("prompt, n", [("abc", 1), (["a", "bb"], 2), ([72, 105], 1), ([[72], [105, 33]], 3)])
def test_stream_equals_whole(prompt: object, n: int, echo: bool) -> None:
    async def check(server: Served) -> None:
        body = {"prompt": prompt, "n": n, "echo": echo, "max_tokens": 6}
        _, whole = await server.post("/v1/completions", body)
        server.client._outbox._uids = iter(range(1, 1000))  # the formulas of the fake depend on the uid
        *events, done = await server.events("/v1/completions", {**body, "stream": True})
        assert done == "[DONE]"
        texts, reasons = {}, {}
        for event in events:
            (choice,) = event["choices"]
            assert "usage" not in event and event["id"].startswith("cmpl-")
            texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
            assert choice["index"] not in reasons, "nothing may follow the finish reason"
            if choice["finish_reason"]:
                reasons[choice["index"]] = choice["finish_reason"]
        assert texts == {c["index"]: c["text"] for c in whole["choices"]}
        assert reasons == {c["index"]: "length" for c in whole["choices"]}
        assert len(events) == 6 * len(whole["choices"]), "one event per token"

    served(check)


@pytest.mark.parametrize("echo, at, text, length, shown", [
    ("<s>a", 0, "<s>", 0, 3), ("<s>a", 0, "<s>", 3, 3),  # the client wrote a special token
    ("abc", 0, "<s>", 0, 0), ("abc", 0, "<s>", 3, 0),  # the tokenizer put one before the prompt
    ("ab abc", 2, " abc", 4, 4), ("ab abc", 2, "abc", 4, 4),  # decoded by itself, it has no blank
    ("日", 0, "\ufffd", 0, 0), ("日", 0, "\ufffd", 1, 1),
])  # fmt: skip
def test_a_token_of_the_prompt_is_as_long_as_the_prompt_shows_it(
    echo: str, at: int, text: str, length: int, shown: int
) -> None:
    assert shown_length(echo, at, text, length) == shown


def test_best_tokens_with_one_text_are_all_named() -> None:
    spelling = Spelling(False, {7: b"\xe6\x97", 8: b"\xf0"})
    own = (-3.0, 7, "\ufffd")
    top = [(-1.0, 8, "\ufffd"), (-2.0, 1, "a"), (-2.5, 2, "a"), own]
    assert list(named(top, own, spelling).items()) == [
        ("bytes:\\xf0", -1.0), ("a", -2.0), ("token_id:2", -2.5), ("\ufffd", -3.0)
    ]  # fmt: skip
    own = (-2.5, 2, "a")
    assert named(top, own, spelling) == {"\ufffd": -1.0, "token_id:1": -2.0, "a": -2.5, "bytes:\\xe6\\x97": -3.0}
    assert len(named(top, own, spelling._replace(as_ids=True))) == 4


@pytest.mark.parametrize("side, kept", [("left", "def"), ("right", "abc")])
def test_echo_shows_what_is_kept_of_a_text(side: str, kept: str) -> None:
    async def check(server: Served) -> None:
        body = {"echo": True, "max_tokens": 0, "truncate_prompt_tokens": 3, "truncation_side": side}
        prompts: list[object] = ["abcdef", list(b"abcdef")]
        for prompt in prompts:
            _, reply = await server.post("/v1/completions", {**body, "prompt": prompt})
            assert reply["choices"][0]["text"] == kept
            assert unpack_ids(server.engine.of_type(Generate)[-1].content.ids or b"") == list(kept.encode())

    served(check)


def test_echo_puts_the_prompt_before_the_text() -> None:
    async def check(server: Served) -> None:
        _, texts = await server.post("/v1/completions", {"prompt": ["abc", "d"], "echo": True, "max_tokens": 0})
        _, ids = await server.post("/v1/completions", {"prompt": [72, 105], "echo": True, "max_tokens": 0})
        assert [c["text"] for c in texts["choices"]] == ["abc", "d"]
        assert ids["choices"][0]["text"] == "Hi"

    served(check)


def test_usage_is_the_last_chunk_when_asked() -> None:
    async def check(server: Served) -> None:
        body = {"prompt": "abc", "n": 2, "max_tokens": 3, "stream": True, "stream_options": {"include_usage": True}}
        *events, last, done = await server.events("/v1/completions", body)
        assert done == "[DONE]" and last["choices"] == []
        assert last["usage"]["completion_tokens"] == 6 and last["usage"]["prompt_tokens"] == 3
        assert last["usage"]["prompt_tokens_details"] == {"cached_tokens": CACHED}
        assert all(e["usage"] is None for e in events)

    served(check)


def test_tokens_that_waited_are_separate_events() -> None:
    async def check(server: Served) -> None:
        reading = asyncio.create_task(
            server.events("/v1/completions", {"prompt": "a", "stream": True, "max_tokens": 5})
        )
        await server.engine.saw(Generate)
        for _ in range(5):  # no other task runs in between
            server.engine.step()
        *events, _ = await reading
        assert len(events) == 5
        assert [e["choices"][0]["finish_reason"] for e in events] == [None] * 4 + ["length"]

    served(check, auto=False)


def test_an_end_that_comes_alone_is_an_event() -> None:
    async def check(server: Served) -> None:
        reading = asyncio.create_task(server.events("/v1/completions", {"prompt": "a", "stream": True, "echo": True}))
        await server.engine.saw(Generate)
        server.engine.step()
        server.engine.close(1, Finish(FinishKind.STOP, matched="END"), "!")
        *_, last, done = await reading
        assert last["choices"][0] == {
            "index": 0,
            "text": last["choices"][0]["text"],
            "logprobs": None,
            "finish_reason": "stop",
            "matched_stop": "END",
        }
        assert last["choices"][0]["text"].endswith("!") and done == "[DONE]"

    served(check, auto=False)


@pytest.mark.parametrize("matched", [13, "END", None])
def test_choices_carry_the_matched_stop(matched: object) -> None:
    async def check(server: Served) -> None:
        waiting = asyncio.create_task(server.post("/v1/completions", {"prompt": "a"}))
        await server.engine.saw(Generate)
        server.engine.close(1, Finish(FinishKind.STOP, matched=matched))
        _, reply = await waiting
        assert reply["choices"][0]["finish_reason"] == "stop" and reply["choices"][0]["matched_stop"] == matched

    served(check, auto=False)


def test_an_unknown_model_is_a_404_that_names_the_served_one() -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post("/v1/completions", {"model": "gpt-x", "prompt": "a"})
        assert status == 404
        assert reply["error"]["param"] == "model" and reply["error"]["code"] == "model_not_found"
        assert "gpt-x" in reply["error"]["message"] and "org/tiny" in reply["error"]["message"]
        for name in ("org/tiny", "default", None):
            status, reply = await server.post("/v1/completions", {"model": name, "prompt": "a"})
            assert status == 200 and reply["model"] == "org/tiny"

    served(check, served_model_name="org/tiny")


@pytest.mark.parametrize("field, value", [
    ("suffix", "x"),
])  # fmt: skip
def test_what_is_not_built_is_refused_by_name(field: str, value: object) -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post("/v1/completions", {"prompt": "a", field: value})
        assert status == 400
        assert reply["error"]["param"] == field and "built" in reply["error"]["message"]
        assert server.engine.sent == []

    served(check)


def test_the_official_client_works_unmodified() -> None:
    async def check(server: Served) -> None:
        api = openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)
        async with api:
            assert [m.id async for m in await api.models.list()] == ["org/tiny"]
            assert (await api.models.retrieve("org/tiny")).id == "org/tiny"
            whole = await api.completions.create(
                model="org/tiny", prompt="abc", max_tokens=5, extra_body={"ignore_eos": True}
            )
            assert whole.choices[0].text == text_of(1, 5) and whole.usage is not None
            stream = await api.completions.create(
                model="org/tiny", prompt="abc", max_tokens=5, stream=True, stream_options={"include_usage": True}
            )
            chunks = [chunk async for chunk in stream]
            assert "".join(c.choices[0].text for c in chunks if c.choices) == text_of(2, 5)
            assert chunks[-1].usage is not None and chunks[-1].usage.completion_tokens == 5
            with pytest.raises(openai.NotFoundError, match="gpt-x"):
                await api.completions.create(model="gpt-x", prompt="a")
            with pytest.raises(openai.BadRequestError, match="temperature"):
                await api.completions.create(model="org/tiny", prompt="a", temperature=-1)

    served(check, served_model_name="org/tiny")


def test_a_rid_names_the_request() -> None:
    async def check(server: Served) -> None:
        _, reply = await server.post("/v1/completions", {"prompt": [[1], [2, 3]], "rid": "mine", "max_tokens": 1})
        assert reply["id"] == "mine"
        assert [unpack_ids(m.content.ids) for m in server.engine.of_type(Generate)] == [[1], [2, 3]]

    served(check)


def test_an_output_without_tokens_is_the_least_likely() -> None:
    prompt = Prompt("", RequestSpec(SamplingParams(), LogprobSpec()), Content("a"))
    drawn, empty = [GeneratedSequence(Uid(i), i, 0, prompt, Submission(False, 0.0)) for i in range(2)]
    for sequence in (drawn, empty):
        sequence.logprobs = LogprobLists(LogprobSpec())
    assert drawn.logprobs is not None
    drawn.logprobs.add(Logprobs(Uid(0), False, pack_ids([5]), floats([-9.0])))
    assert asyncio.run(likeliest([empty, drawn], 2, 1)) == [drawn]
    choosing, num = likeliest([empty, drawn] * COMPARED_AT_ONCE, 2, 1), 0
    with pytest.raises(StopIteration) as ended:
        while True:
            choosing.send(None)
            num += 1
    assert num == 2 and ended.value.value == [drawn] * COMPARED_AT_ONCE  # others are served in between


@pytest.mark.parametrize("prompt", ["a", ["a", "bb"]])
@pytest.mark.parametrize("logprobs", [None, 0])
def test_of_best_of_outputs_the_likeliest_are_returned(prompt: object, logprobs: int | None) -> None:
    async def check(server: Served) -> None:
        body = {"prompt": prompt, "n": 2, "best_of": 5, "max_tokens": 4, "logprobs": logprobs}
        status, reply = await server.post("/v1/completions", body)
        sent = server.engine.of_type(Generate)
        expected = []
        for message in sent:
            assert len(message.uids) == 5
            means = {uid: sum(logprob_of(message, token_at(uid, i)) for i in range(4)) / 4 for uid in message.uids}
            expected += [text_of(uid, 4) for uid in sorted(means, key=lambda uid: -means[uid])[:2]]
            assert len(set(means.values())) > 1, "the fake's outputs must differ"
        assert status == 200 and [choice["text"] for choice in reply["choices"]] == expected
        assert [choice["index"] for choice in reply["choices"]] == list(range(len(expected)))
        assert reply["usage"]["completion_tokens"] == 5 * 4 * len(sent)
        assert all((choice["logprobs"] is None) == (logprobs is None) for choice in reply["choices"])

    served(check)


@pytest.mark.parametrize("stream", [False, True])
def test_log_probabilities_of_completions_can_name_tokens_by_their_ids(stream: bool) -> None:
    async def check(server: Served) -> None:
        asked = {"logprobs": 1, "return_token_ids": True, "return_tokens_as_token_ids": True}
        body = {"prompt": "a", "max_tokens": 3, "stream": stream, **asked}
        if stream:
            choices = [
                choice for event in (await server.events("/v1/completions", body))[:-1] for choice in event["choices"]
            ]
        else:
            choices = (await server.post("/v1/completions", body))[1]["choices"]
        ids = [token for choice in choices for token in choice["token_ids"]]
        logprobs = [choice["logprobs"] for choice in choices if choice["logprobs"]]
        assert len(ids) == 3
        assert [name for each in logprobs for name in each["tokens"]] == [f"token_id:{each}" for each in ids]

    served(check)
