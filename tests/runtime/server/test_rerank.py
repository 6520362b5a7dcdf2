"""/v1/rerank: order, shapes, both methods, how yes and no are found, and what is refused."""

import asyncio
import math
from array import array
from typing import Any

import pytest
from msgspec.structs import replace

from ramet.ipc.content import Content
from ramet.ipc.message import Uid
from ramet.ipc.messages import Generate, Logprobs, Tokenize, pack_ids, unpack_ids
from ramet.ipc.params import SamplingParams
from ramet.ipc.spec import HiddenMode, LogprobSpec, RequestSpec
from ramet.runtime.engine_client.prompt import Prompt
from ramet.runtime.engine_client.submission import GeneratedSequence, Submission
from ramet.runtime.intake.chat import Style
from ramet.runtime.replies.logprobs import LogprobLists
from ramet.runtime.server.openai.relevance import AT_ONCE, INSTRUCT, QUESTION, THEN, _answers
from ramet.runtime.text.pooling import Pooling
from tests.fakes.engine import LIMITS, state_of
from tests.fakes.server import Served, served

PATH = "/v1/rerank"
GOOD: dict[str, Any] = {"query": "q", "documents": ["a", "b", "c"]}


def cosine(one: list[float], other: list[float]) -> float:
    return sum(map(float.__mul__, one, other)) / math.hypot(*one) / math.hypot(*other)


@pytest.mark.parametrize("method", ["generate", "embed", None])
def test_a_reply_has_the_shape_that_clients_read(method: str | None) -> None:
    async def check(server: Served) -> None:
        body = {"query": "q", "documents": ["aaaa", {"text": "b", "title": "x"}], "method": method}
        status, reply = await server.post(PATH, body)
        assert status == 200 and set(reply) == {"id", "object", "model", "results", "usage"}
        assert reply["object"] == "rerank" and reply["id"].startswith("rerank-") and reply["usage"]["total_tokens"] > 0
        assert {r["index"]: r["document"] for r in reply["results"]} == {0: {"text": "aaaa"}, 1: {"text": "b"}}
        worths = [r["relevance_score"] for r in reply["results"]]
        assert worths == sorted(worths, reverse=True)

    served(check)


def test_equal_documents_keep_their_order_and_top_n_cuts() -> None:
    async def check(server: Served) -> None:
        body = {"query": "q", "documents": ["same"] * 4, "top_n": 3, "return_documents": False}
        for method in ("generate", "embed"):
            _, reply = await server.post(PATH, {**body, "method": method})
            assert [r["index"] for r in reply["results"]] == [0, 1, 2]
            status, whole = await server.post(PATH, {**body, "method": method, "top_n": 9})
            assert status == 200 and [r["index"] for r in whole["results"]] == [0, 1, 2, 3]
            assert all(set(r) == {"index", "relevance_score"} for r in reply["results"])

    served(check)


@pytest.mark.parametrize("kind", ["mean", "last"])
def test_embed_is_the_cosine_as_the_model_pools(kind: Any) -> None:
    async def check(server: Served) -> None:
        documents = ["zz", "q", "longer text", "a"]
        _, reply = await server.post(PATH, {"query": "q", "documents": documents, "method": "embed"})
        query, *others = server.engine.of_type(Generate)
        assert {m.spec.hidden for m in (query, *others)} == {HiddenMode(kind)}
        expected = [cosine(state_of(query), state_of(other)) for other in others]
        assert {r["index"]: r["relevance_score"] for r in reply["results"]} == pytest.approx(dict(enumerate(expected)))
        assert reply["results"][0]["index"] == 1 and reply["results"][0]["relevance_score"] == pytest.approx(1)

    served(check, pooling=Pooling(kind, False))


def test_generate_compares_yes_with_no_and_looks_them_up_once() -> None:
    async def check(server: Served) -> None:
        for _ in range(2):
            await server.post(PATH, {"query": "the query", "documents": ["the document"], "instruct": "the task"})
        asked = server.engine.of_type(Tokenize)
        assert [m.text for m in asked] == [" yes", " no", "yes", "no"], "the fake's spaces are tokens by themselves"
        assert not any(m.add_special_tokens for m in asked)
        for message in server.engine.of_type(Generate):
            assert message.spec.logprobs.ids == (ord("y"), ord("n")) and message.spec.params.max_new_tokens == 1
            question = QUESTION.format(query="the query", document="the document", instruct="the task")
            assert message.content.text == question + THEN

    served(check)


def test_words_that_begin_with_their_space_are_preferred() -> None:
    async def check(server: Served) -> None:
        server.engine.tokenize = {" yes": [40, 1], " no": [41]}.__getitem__
        await server.post(PATH, GOOD)
        assert {m.spec.logprobs.ids for m in server.engine.of_type(Generate)} == {(40, 41)}

    served(check)


def test_the_model_s_template_asks_where_there_is_one() -> None:
    async def check(server: Served) -> None:
        server.engine.tokenize = {"yes": [50], "no": [51]}.__getitem__
        assert (await server.post(PATH, GOOD))[0] == 200
        for message, document in zip(server.engine.of_type(Generate), GOOD["documents"], strict=True):
            question = QUESTION.format(query="q", document=document, instruct=INSTRUCT)
            assert bytes(unpack_ids(message.content.ids)).decode() == f"user:{question}\n"
            assert message.spec.logprobs.ids == (50, 51)

    served(check, style=Style(has_template=True))


def test_a_vocabulary_that_cannot_distinguish_yes_and_no_is_a_clear_400() -> None:
    async def check(server: Served) -> None:
        server.engine.tokenize = lambda text: [7, len(text)]
        status, reply = await server.post(PATH, GOOD)
        assert status == 400 and "same token" in reply["error"]["message"] and "'embed'" in reply["error"]["message"]
        assert (await server.post(PATH, {**GOOD, "method": "embed"}))[0] == 200

    served(check)


def test_the_question_holds_all_three_and_ends_where_an_answer_begins() -> None:
    text = QUESTION.format(query="which {query}?", document="{document}", instruct="{instruct}") + THEN
    assert "which {query}?" in text and "Document: {document}\n" in text and "{instruct}" in text
    assert text.index("which") < text.index("{document}"), "documents share the prefix"
    assert text.endswith("Answer:")


BAD: list[tuple[Any, str, tuple[str, ...]]] = [  # changes to the body, param, pieces of the message
    ({"query": None}, "query", ("None",)), ({"query": ""}, "query", ("empty",)), ({"query": [1]}, "query", ("[1]",)),
    ({"documents": None}, "documents", ("None",)), ({"documents": []}, "documents", ("at least one",)),
    ({"documents": "a"}, "documents", ("list",)), ({"documents": ["a", 5]}, "documents[1]", ("5",)),
    ({"documents": ["a", ""]}, "documents[1]", ("empty",)),
    ({"documents": ["a", {"txt": "b"}]}, "documents[1].text", ("missing",)),
    ({"documents": [{"text": 5}]}, "documents[0].text", ("5", "string")),
    ({"documents": ["a", "b", "REJECT"]}, "documents[2]", ("9999",)),
    ({"documents": ["a", "b", "REJECT"], "method": "embed"}, "documents[2]", ("9999",)),
    ({"query": "REJECT", "method": "embed"}, "query", ("9999",)),
    ({"top_n": 0}, "top_n", ("0", ">= 1")),
    ({"method": "magic"}, "method", ("'magic'", "'embed' or 'generate' or 'qwen3'")),
    ({"method": "embed", "instruct": "x"}, "instruct", ("'x'", "embed")),
    ({"return_documents": "x"}, "return_documents", ("true or false",)),
]  # fmt: skip


@pytest.mark.parametrize("change, param, pieces", BAD, ids=lambda value: str(value)[:40])
def test_what_is_refused_is_named(change: Any, param: str, pieces: tuple[str, ...]) -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(PATH, {**GOOD, **change})
        assert status == 400 and reply["error"]["param"] == param, reply
        assert all(piece in reply["error"]["message"] for piece in pieces), reply
        assert (await server.post(PATH, GOOD))[0] == 200

    served(check)


def test_embed_needs_hidden_states_and_generate_does_not() -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(PATH, {**GOOD, "method": "embed"})
        assert status == 400 and reply["error"]["param"] == "method" and "no hidden" in reply["error"]["message"]
        assert (await server.post(PATH, GOOD))[0] == 200

    served(check, limits=replace(LIMITS, hidden_size=0))


def test_others_are_served_while_the_answers_to_thousands_of_questions_are_read() -> None:
    prompt = Prompt("", RequestSpec(SamplingParams(), LogprobSpec(ids=(5, 6))), Content("a"))
    done = GeneratedSequence(Uid(1), 0, 0, prompt, Submission(False, 0.0))
    done.logprobs = LogprobLists(LogprobSpec(ids=(5, 6)))
    numbers = array("f", [-1.0, -1.0, -2.0]).tobytes()
    done.logprobs.add(Logprobs(done.uid, False, pack_ids([5]), numbers[:4], chosen=numbers[4:]))
    turns = 0

    async def main() -> tuple[list[float], list[GeneratedSequence]]:
        async def tick() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        ticking = asyncio.ensure_future(tick())
        found = await _answers([done] * (10 * AT_ONCE))
        ticking.cancel()
        return found

    worths, sequences = asyncio.run(main())
    assert turns >= 9 and len(sequences) == len(worths) == 10 * AT_ONCE
    assert worths == pytest.approx([1 / (1 + math.exp(-1))] * len(worths))
