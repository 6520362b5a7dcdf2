"""/v1/score: prompts of query and item, the labels' own probabilities, and what is refused."""

import math
from typing import Any

import pytest

from ramet.ipc.messages import Generate, unpack_ids
from ramet.ipc.params import SamplingParams
from ramet.ipc.spec import LogprobSpec
from tests.fakes.engine import CACHED, VOCAB, logprob_of
from tests.fakes.server import Served, served

PATH = "/v1/score"
LABELS = [3, 5, 9]


@pytest.mark.parametrize("softmax", [False, True])
def test_scores_of_each_item_in_order(softmax: bool) -> None:
    async def check(server: Served) -> None:
        body = {"query": "ab", "items": ["c", "dd"], "label_token_ids": LABELS, "apply_softmax": softmax}
        status, reply = await server.post(PATH, body)
        assert status == 200 and (reply["object"], reply["model"]) == ("scoring", "ramet-bundled")
        for message, row in zip(server.engine.of_type(Generate), reply["scores"], strict=True):
            own = [math.exp(logprob_of(message, label)) for label in LABELS]
            assert row == pytest.approx([value / sum(own) for value in own] if softmax else own)
        assert reply["usage"] == {
            "prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9,
            "prompt_tokens_details": {"cached_tokens": 2 * CACHED},
            "completion_tokens_details": {"reasoning_tokens": 0},
            "reasoning_tokens": 0,
        }  # fmt: skip

    served(check)


@pytest.mark.parametrize("body, prompts", [
    ({"query": "ab", "items": ["c", "d"]}, ["abc", "abd"]),
    ({"query": "ab", "items": "c"}, ["abc"]),
    ({"query": "ab", "items": ["c", "d"], "item_first": True}, ["cab", "dab"]),
    ({"query": [1, 2], "items": [[3], [4, 5]]}, [[1, 2, 3], [1, 2, 4, 5]]),
    ({"query": [1, 2], "items": [[3], [4, 5]], "item_first": True}, [[3, 1, 2], [4, 5, 1, 2]]),
])  # fmt: skip
def test_query_and_item_are_joined(body: dict[str, Any], prompts: list[Any]) -> None:
    async def check(server: Served) -> None:
        await server.post(PATH, {**body, "label_token_ids": LABELS})
        sent = server.engine.of_type(Generate)
        assert [m.content.text if m.content.text is not None else unpack_ids(m.content.ids) for m in sent] == prompts

    served(check)


def test_nothing_but_the_models_own_logits_counts() -> None:
    async def check(server: Served) -> None:
        await server.post(PATH, {"query": "a", "items": ["b"], "label_token_ids": LABELS})
        (sent,) = server.engine.of_type(Generate)
        assert sent.spec.params == SamplingParams(max_new_tokens=1, temperature=0.0)
        assert sent.spec.logprobs == LogprobSpec(ids=tuple(LABELS))

    served(check, defaults=SamplingParams(temperature=0.6, repetition_penalty=1.5, min_new_tokens=1))


GOOD: dict[str, Any] = {"query": "q", "items": ["a", "b"], "label_token_ids": LABELS}
BAD: list[tuple[Any, str, tuple[str, ...]]] = [  # changes to the body, param, pieces of the message
    ({"query": None}, "query", ("None",)), ({"items": None}, "items", ("None",)),
    ({"label_token_ids": None}, "label_token_ids", ("None",)),
    ({"query": ""}, "query", ("empty",)), ({"query": []}, "query", ("[]", "empty")),
    ({"query": 5}, "query", ("5",)), ({"items": []}, "items", ("at least one",)),
    ({"items": ["a", ""]}, "items[1]", ("empty",)), ({"items": ["a", [1]]}, "items[1]", ("[1]", "as the first one is")),
    ({"items": [5]}, "items[0]", ("5",)), ({"items": "REJECT"}, "items", ("9999",)),
    ({"items": ["a", "REJECT"]}, "items[1]", ("9999",)),
    ({"items": ["a"] * 16385}, "items", ("16385", "16384")),
    ({"query": [1], "items": [[1], [VOCAB]]}, "items[1][0]", (str(VOCAB), f"[0, {VOCAB})")),
    ({"query": [-1], "items": [[1]]}, "query[0]", ("-1",)),
    ({"items": [[5]]}, "items[0]", ("is [5]", "a string, as query is")),
    ({"label_token_ids": []}, "label_token_ids", ("empty",)),
    ({"label_token_ids": [1, VOCAB]}, "label_token_ids[1]", (str(VOCAB),)),
    ({"label_token_ids": [1] * 1025}, "label_token_ids", ("1025", "1024")),
    ({"label_token_ids": "x"}, "label_token_ids", ("list",)),
    ({"label_token_ids": ["x"]}, "label_token_ids[0]", ("'x'",)),
    ({"items": ["a"] * 16000, "label_token_ids": [1] * 1024}, "items", ("16000 times 1025", "4194304")),
    ({"apply_softmax": "x"}, "apply_softmax", ("true or false",)),
    ({"item_first": 1}, "item_first", ("true or false",)),
]  # fmt: skip


@pytest.mark.parametrize("change, param, pieces", BAD, ids=lambda value: str(value)[:40])
def test_what_is_refused_is_named(change: Any, param: str, pieces: tuple[str, ...]) -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(PATH, {**GOOD, **change})
        assert status == 400 and reply["error"]["param"] == param, reply
        assert all(piece in reply["error"]["message"] for piece in pieces), reply
        assert (await server.post(PATH, GOOD))[0] == 200

    served(check)


def test_an_unknown_model_is_a_404() -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(PATH, {**GOOD, "model": "gpt-x"})
        assert status == 404 and reply["error"]["param"] == "model"

    served(check)
