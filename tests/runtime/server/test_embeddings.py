"""/v1/embeddings: OpenAI's shapes, mean and last, both spellings, and what is refused."""

import asyncio
import base64
import math
from array import array
from typing import Any

import openai
import pytest
from msgspec.structs import replace

from ramet.ipc.messages import Finish, Generate, unpack_ids
from ramet.ipc.spec import HiddenMode
from ramet.runtime.engine_client.prompt import MAX_NUMBERS
from ramet.runtime.text.pooling import Pooling
from tests.fakes.engine import HIDDEN, LIMITS, VOCAB, state_of
from tests.fakes.server import Served, served
from tests.fakes.specs import make_spec

PATH = "/v1/embeddings"


def near(values: list[float]) -> Any:
    return pytest.approx(values, rel=1e-6)


def of_length_one(values: list[float]) -> list[float]:
    length = math.hypot(*values)
    return [value / length for value in values]


@pytest.mark.parametrize("given, lengths", [
    ("abc", [3]), (["a", "bb"], [1, 2]), ([7, 8, 9], [3]), ([[7], [8, 9]], [1, 2]),
])  # fmt: skip
def test_every_form_of_input(given: object, lengths: list[int]) -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(PATH, {"model": "ramet-bundled", "input": given, "user": "u"})
        assert status == 200 and (reply["object"], reply["model"]) == ("list", "ramet-bundled")
        assert reply["usage"] == {"prompt_tokens": sum(lengths), "total_tokens": sum(lengths)}
        assert [(e["object"], e["index"]) for e in reply["data"]] == [("embedding", i) for i in range(len(lengths))]
        sent = server.engine.of_type(Generate)
        assert [entry["embedding"] for entry in reply["data"]] == [near(of_length_one(state_of(m))) for m in sent]

    served(check)


@pytest.mark.parametrize("kind", ["mean", "last", "cls"])
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("by", ["folder", "body"])
def test_pooling_comes_from_the_body_or_else_from_the_model(kind: Any, normalize: bool, by: str) -> None:
    async def check(server: Served) -> None:
        asked = {"pooling": kind, "normalize": normalize} if by == "body" else {"pooling": None}
        _, reply = await server.post(PATH, {"input": "abc", **asked})
        (sent,) = server.engine.of_type(Generate)
        assert sent.spec == make_spec(max_new_tokens=0, hidden=HiddenMode(kind))

        expected = of_length_one(state_of(sent)) if normalize else state_of(sent)
        assert reply["data"][0]["embedding"] == near(expected)

    served(check, pooling=Pooling(kind, normalize) if by == "folder" else Pooling())


def test_dimensions_keep_the_first_numbers_which_then_have_length_one() -> None:
    async def check(server: Served) -> None:
        for count in range(1, HIDDEN + 1):
            _, reply = await server.post(PATH, {"input": "zzz", "dimensions": count})
            (*_, sent) = server.engine.of_type(Generate)
            assert reply["data"][0]["embedding"] == near(of_length_one(state_of(sent)[:count]))

    served(check)


def test_a_vector_of_zeros_stays_one() -> None:
    async def check(server: Served) -> None:
        _, reply = await server.post(PATH, {"input": [8], "dimensions": 2})
        assert reply["data"][0]["embedding"] == [0.0, 0.0]

    served(check)


def test_base64_holds_the_numbers_of_the_float_reply() -> None:
    async def check(server: Served) -> None:
        replies = [
            (await server.post(PATH, {"input": ["abc", "d"], "encoding_format": word}))[1]["data"]
            for word in ("float", "base64")
        ]
        for plain, packed in zip(*replies, strict=True):
            numbers = array("f", base64.b64decode(packed["embedding"]))
            assert numbers.tolist() == plain["embedding"]

    served(check)


def test_the_official_client_works_unmodified() -> None:
    async def check(server: Served) -> None:
        api = openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)
        async with api:
            default = await api.embeddings.create(model="default", input=["abc", "d"])
            floats = await api.embeddings.create(model="default", input=["abc", "d"], encoding_format="float")
            assert [e.embedding for e in default.data] == [e.embedding for e in floats.data]
            assert default.usage.total_tokens == 4 and default.model == "ramet-bundled"
            with pytest.raises(openai.BadRequestError, match="dimensions"):
                await api.embeddings.create(model="default", input="a", dimensions=HIDDEN + 1)
            with pytest.raises(openai.NotFoundError, match="gpt-x"):
                await api.embeddings.create(model="gpt-x", input="a")

    served(check)


BAD: list[tuple[Any, str, tuple[str, ...]]] = [  # body, param, pieces of the message
    ({}, "input", ("missing",)), ({"input": ""}, "input", ("empty",)), ({"input": []}, "input", ("[]", "empty")),
    ({"input": ["a", ""]}, "input[1]", ("empty",)), ({"input": ["a"] * 2049}, "input", ("2049", "1 to 2048")),
    ({"input": 5}, "input", ("5",)), ({"input": ["a", 5]}, "input[1]", ("5", "string")),
    ({"input": [1, "a"]}, "input[1]", ("'a'", "token id")), ({"input": [1.5]}, "input[0]", ("1.5",)),
    ({"input": [[1], 2]}, "input[1]", ("2", "list")), ({"input": [[]]}, "input[0]", ("empty",)),
    ({"input": [1, VOCAB]}, "input[1]", (str(VOCAB), f"[0, {VOCAB})", "check_embedding_ctx_length=False")),
    ({"input": [[1], [100257]]}, "input[1][0]", ("100257", "LangChain")),
    ({"input": "a", "dimensions": 0}, "dimensions", ("0", ">= 1")),
    ({"input": "a", "dimensions": HIDDEN + 1}, "dimensions", (f"[1, {HIDDEN}]",)),
    ({"input": "a", "dimensions": "x"}, "dimensions", ("integer",)),
    ({"input": "a", "encoding_format": "hex"}, "encoding_format", ("'hex'", "'base64' or 'float'")),
    ({"input": "a", "pooling": "max"}, "pooling", ("'max'", "'cls' or 'last' or 'mean'")),
    ({"input": "a", "normalize": 1}, "normalize", ("true or false",)),
    ({"input": ["a", "REJECT"]}, "input[1]", ("9999 tokens", "1023")),
]  # fmt: skip


@pytest.mark.parametrize("body, param, pieces", BAD, ids=lambda value: str(value)[:40])
def test_what_is_refused_is_named(body: Any, param: str, pieces: tuple[str, ...]) -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(PATH, body)
        assert status == 400 and reply["error"]["param"] == param, reply
        assert all(piece in reply["error"]["message"] for piece in pieces), reply
        assert (await server.post(PATH, {"input": "a"}))[0] == 200

    served(check)


def test_ids_of_a_wrong_type_get_no_hint_about_other_tokenizers() -> None:
    async def check(server: Served) -> None:
        _, reply = await server.post(PATH, {"input": [1, "a"]})
        assert "LangChain" not in reply["error"]["message"]

    served(check)


def test_a_runner_without_hidden_states_has_no_embeddings() -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(PATH, {"input": "a"})
        assert status == 400 and "no hidden states" in reply["error"]["message"]
        assert server.engine.sent == []

    served(check, limits=replace(LIMITS, hidden_size=0))


def test_more_numbers_than_a_reply_holds_are_refused_before_anything_runs() -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(PATH, {"input": ["a"] * 3})
        assert status == 400 and str(MAX_NUMBERS) in reply["error"]["message"] and server.engine.sent == []

    served(check, limits=replace(LIMITS, hidden_size=MAX_NUMBERS // 2))


def test_a_request_that_is_ended_by_an_operator_is_an_error() -> None:
    async def check(server: Served) -> None:
        waiting = asyncio.create_task(server.post(PATH, {"input": ["a", "b"]}))
        await server.engine.saw(Generate, 2)
        server.engine.step([1])
        server.engine.close(2, Finish.abort("", "by request", status=0))
        status, reply = await waiting
        assert status == 400 and "by request" in reply["error"]["message"]
        assert server.client.num_open == 0

    served(check, auto=False)


def test_states_that_are_not_finite_are_a_failure_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fakes.engine.state_of", lambda message: [math.nan] * HIDDEN)

    async def check(server: Served) -> None:
        status, reply = await server.post(PATH, {"input": "a"})
        assert status == 500 and "finite" in reply["error"]["message"]

    served(check)


def test_ids_reach_the_engine_as_they_are() -> None:
    async def check(server: Served) -> None:
        await server.post(PATH, {"input": [[5, 6], [7]]})
        assert [unpack_ids(m.content.ids) for m in server.engine.of_type(Generate)] == [[5, 6], [7]]

    served(check)
