"""Classes, pooled states, pairs of texts and the methods of ranks: both servers' shapes, and what is refused."""

import base64
import math
from array import array
from typing import Any

import pytest
from msgspec.structs import replace

from ramet.ipc.messages import Generate, Limits, Tokenize, unpack_ids
from ramet.ipc.spec import HiddenMode, PoolingTask
from ramet.runtime.intake import reranker
from ramet.runtime.text.labels import Activation, Labels
from ramet.runtime.text.pooling import Pooling
from tests.fakes.engine import HIDDEN, LIMITS, state_of
from tests.fakes.server import Served, served
from tests.fakes.specs import make_spec

CLASSIFIER = replace(LIMITS, num_labels=HIDDEN, generates=False)
REWARD = replace(LIMITS, num_labels=1, generates=False)
NAMES = Labels({0: "bad", 1: "good", 2: "fine", 3: "odd"}, padding_id=7)


def softmax(values: list[float]) -> Any:
    weights = [math.exp(value - max(values)) for value in values]
    return pytest.approx([weight / sum(weights) for weight in weights])


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


@pytest.mark.parametrize("path", ["/classify", "/v1/classify"])
@pytest.mark.parametrize("given", ["ab", ["ab", "c"], [5, 6], [[5], [6, 1]]])
def test_labels_in_vllms_shape(path: str, given: Any) -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(path, {"model": "default", "input": given, "user": "u"})
        assert status == 200 and set(reply) == {"id", "object", "created", "model", "data", "usage"}
        assert reply["object"] == "list" and reply["id"].startswith("classify-")
        sent = server.engine.of_type(Generate)
        assert reply["usage"]["prompt_tokens"] > 0 and len(reply["data"]) == len(sent)
        for i, (entry, message) in enumerate(zip(reply["data"], sent, strict=True)):
            asked = {"hidden": HiddenMode.LAST, "pooling_task": PoolingTask.CLASSIFY, "padding_id": 7}
            assert message.spec == make_spec(max_new_tokens=0, **asked)
            logits = state_of(message)
            best = logits.index(max(logits))
            assert entry == {"index": i, "label": NAMES.names[best], "probs": softmax(logits), "num_classes": HIDDEN}

    served(check, limits=CLASSIFIER, labels=NAMES)


@pytest.mark.parametrize("given, batch", [
    ({"text": "ab"}, False), ({"text": ["ab", "c"]}, True), ({"input_ids": [5, 6]}, False),
    ({"input_ids": [[5], [6, 1]]}, True),
])  # fmt: skip
@pytest.mark.parametrize("path", ["/classify", "/encode"])
def test_the_classifiers_own_numbers_in_sglangs_shape(path: str, given: Any, batch: bool) -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(path, given)
        assert status == 200 and isinstance(reply, list) == batch
        sent = server.engine.of_type(Generate)
        for entry, message in zip(reply if batch else [reply], sent, strict=True):
            assert entry["embedding"] == state_of(message)
            info = entry["meta_info"]
            assert info["prompt_tokens"] > 0 and info["id"] and "hidden_states" not in info

    served(check, limits=CLASSIFIER)


@pytest.mark.parametrize("names", [("use_activation",), ("activation",)])
def test_the_activation_may_be_left_out(names: tuple[str, ...]) -> None:
    async def check(server: Served) -> None:
        for path in ("/classify", "/pooling"):
            _, reply = await server.post(path, {"input": "ab", **dict.fromkeys(names, False)})
            (entry,) = reply["data"]
            assert entry.get("probs", entry.get("data")) == state_of(server.engine.of_type(Generate)[-1])

    served(check, limits=CLASSIFIER)


@pytest.mark.parametrize("activation", [None, *Activation])
def test_one_label_is_a_sigmoid_unless_the_folder_says_otherwise(activation: Activation | None) -> None:
    async def check(server: Served) -> None:
        server.engine.num_labels = 1
        _, reply = await server.post("/classify", {"input": "ab"})
        (logit,) = state_of(server.engine.of_type(Generate)[0])[:1]
        wanted = {None: sigmoid(logit), Activation.SIGMOID: sigmoid(logit), Activation.NONE: logit}
        assert reply["data"][0]["probs"] == [pytest.approx(wanted.get(activation, 1.0))]
        assert reply["data"][0]["label"] == "LABEL_0"

    served(check, limits=REWARD, labels=Labels(activation=activation))


@pytest.mark.parametrize("encoding", ["float", "base64", None])
def test_pooling_is_what_the_model_is_made_for(encoding: str | None) -> None:
    def numbers(data: Any) -> list[float]:
        return array("f", base64.b64decode(data)).tolist() if encoding == "base64" else data

    async def classes(server: Served) -> None:
        _, reply = await server.post("/pooling", {"input": ["ab", "c"], "encoding_format": encoding})
        assert (reply["object"], reply["data"][1]["object"]) == ("list", "pooling") and reply["id"].startswith("pool-")
        for entry, message in zip(reply["data"], server.engine.of_type(Generate), strict=True):
            assert numbers(entry["data"]) == softmax(state_of(message))

    async def states(server: Served) -> None:
        for task in (None, "embed"):
            body = {"input": "ab", "encoding_format": encoding, "task": task, "dimensions": 2, "normalize": False}
            _, reply = await server.post("/pooling", body)
            assert numbers(reply["data"][0]["data"]) == state_of(server.engine.of_type(Generate)[-1])[:2]

    served(classes, limits=CLASSIFIER)
    served(states)


def test_encode_embeds_where_there_is_no_classifier() -> None:
    async def check(server: Served) -> None:
        _, reply = await server.post("/encode", {"text": ["ab"], "dimensions": 3, "sampling_params": {}})
        (message,) = server.engine.of_type(Generate)
        made = state_of(message)[:3]
        assert reply[0]["embedding"] == pytest.approx([value / math.hypot(*made) for value in made])

    served(check)


@pytest.mark.parametrize("limits", [LIMITS, replace(LIMITS, dense_size=2)], ids=["plain", "dense"])
def test_embeddings_go_through_the_dense_layers_where_there_are_some(limits: Limits) -> None:
    async def check(server: Served) -> None:
        await server.post("/v1/embeddings", {"input": "ab"})
        (message,) = server.engine.of_type(Generate)
        assert message.spec.pooling_task is (PoolingTask.EMBED if limits.dense_size else None)
        status, reply = await server.post("/v1/embeddings", {"input": "ab", "dimensions": 3})
        assert (status == 400) == bool(limits.dense_size), reply

    served(check, limits=limits)


# -- pairs -------------------------------------------------------------------------------------------------------------

PAIRS: list[tuple[dict[str, Any], list[tuple[str, str]]]] = [
    ({"text_1": "q", "text_2": "a"}, [("q", "a")]),
    ({"text_1": "q", "text_2": ["a", "bb"]}, [("q", "a"), ("q", "bb")]),
    ({"queries": ["q", "r"], "documents": ["a", "b"]}, [("q", "a"), ("r", "b")]),
    ({"data_1": "q", "documents": ["a"]}, [("q", "a")]),
]


@pytest.mark.parametrize("body, pairs", PAIRS)
def test_a_classifier_with_one_label_reads_both_texts(body: Any, pairs: list[tuple[str, str]]) -> None:
    async def check(server: Served) -> None:
        server.engine.num_labels = 1
        _, reply = await server.post("/score", body)
        sent = server.engine.of_type(Generate)
        assert [bytes(unpack_ids(message.content.ids)).decode() for message in sent] == [f"{q}|{d}" for q, d in pairs]
        assert [(m.text, m.pair, m.add_special_tokens) for m in server.engine.of_type(Tokenize)] == [
            (query, document, True) for query, document in pairs
        ]
        assert reply["object"] == "list" and reply["id"].startswith("score-")
        wanted = [pytest.approx(sigmoid(state_of(message)[0])) for message in sent]
        expected = [{"index": i, "object": "score", "score": value} for i, value in enumerate(wanted)]
        assert reply["data"] == expected

    served(check, limits=REWARD)


@pytest.mark.parametrize("body, pairs", PAIRS)
def test_other_models_compare_embeddings(body: Any, pairs: list[tuple[str, str]]) -> None:
    async def check(server: Served) -> None:
        _, reply = await server.post("/v1/score", body)
        states = {message.content.text: state_of(message) for message in server.engine.of_type(Generate)}
        assert len(states) == len(server.engine.of_type(Generate)), "each text once"
        for (query, document), entry in zip(pairs, reply["data"], strict=True):
            one, other = states[f"Q: {query}"], states[f"D: {document}"]
            cosine = math.sumprod(one, other) if hasattr(math, "sumprod") else sum(map(float.__mul__, one, other))
            assert entry["score"] == pytest.approx(cosine / math.hypot(*one) / math.hypot(*other))

    served(check, pooling=Pooling(prompts={"query": "Q: ", "passage": "D: "}))


def test_qwen3_rerankers_form() -> None:
    async def check(server: Served) -> None:
        body = {"query": "what", "documents": ["this", "that"], "instruct": "find"}
        for path, asked in (("/rerank", body), ("/score", {"text_1": "what", "text_2": ["this", "that"]})):
            before = len(server.engine.of_type(Generate))
            status, reply = await server.post(path, asked)
            assert status == 200, reply
            sent = server.engine.of_type(Generate)[before:]
            for message, document in zip(sent, ["this", "that"], strict=True):
                instruct = "find" if path == "/rerank" else reranker.INSTRUCT
                middle = reranker.ASKED.format(instruct=instruct, query="what", document=document)
                assert bytes(unpack_ids(message.content.ids)).decode() == reranker.BEFORE + middle + reranker.AFTER
                assert message.spec.logprobs.ids == (ord("y"), ord("n")) and message.spec.params.max_new_tokens == 1
        assert not any(m.add_special_tokens for m in server.engine.of_type(Tokenize))

    served(check, labels=Labels(is_reranker=True))


@pytest.mark.parametrize("limits, labels, method", [
    (REWARD, Labels(), "classify"), (LIMITS, Labels(is_reranker=True), "qwen3"), (LIMITS, Labels(), "generate"),
    (replace(LIMITS, generates=False), Labels(), "embed"),
])  # fmt: skip
def test_the_method_is_what_the_model_is_made_for(limits: Limits, labels: Labels, method: str) -> None:
    async def check(server: Served) -> None:
        server.engine.num_labels = 1
        replies = [
            await server.post("/v1/rerank", {"query": "q", "documents": ["a", "b"], "rid": "r", "method": given})
            for given in (None, method)
        ]
        assert [status for status, _ in replies] == [200, 200]
        (_, one), (_, other) = replies
        assert one["results"] == other["results"] and one["id"] == "r"

    served(check, limits=limits, labels=labels)


# -- what is refused ---------------------------------------------------------------------------------------------------

Bad = tuple[Limits, str, dict[str, Any], str, tuple[str, ...]]
BAD: list[Bad] = [  # limits, path, body, param, pieces of the message
    (LIMITS, "/classify", {"input": "a"}, "model", ("is not a classifier",)),
    (LIMITS, "/v1/classify", {"input": ["a"]}, "model", ("is not a classifier",)),
    (LIMITS, "/pooling", {"input": "a", "task": "classify"}, "model", ("is not a classifier",)),
    (LIMITS, "/rerank", {"query": "q", "documents": ["a"], "method": "classify"}, "model", ("is not a classifier",)),
    (CLASSIFIER, "/score", {"text_1": "a", "text_2": "b"}, "model", ("4 labels", "must have 1", "/classify")),
    (CLASSIFIER, "/classify", {}, "input", ("exactly one",)),
    (CLASSIFIER, "/classify", {"input": "a", "text": "b"}, "input", ("text and input_ids", "exactly one")),
    (CLASSIFIER, "/classify", {"input": []}, "input", ("empty",)),
    (CLASSIFIER, "/classify", {"input": ["a", ""]}, "input[1]", ("empty",)),
    (CLASSIFIER, "/classify", {"input": ["a"] * 2049}, "input", ("2049", "1 to 2048")),
    (CLASSIFIER, "/classify", {"input_ids": [[1], [900]]}, "input_ids[1][0]", ("900", "[0, 512)")),
    (CLASSIFIER, "/classify", {"input_ids": [[1], 2]}, "input_ids[1]", ("2", "list")),
    (CLASSIFIER, "/classify", {"text": ["a", "REJECT"]}, "text[1]", ("9999",)),
    (CLASSIFIER, "/classify", {"input": "a", "messages": [{}]}, "messages", ("not built",)),
    (CLASSIFIER, "/classify", {"input": "a", "truncate_prompt_tokens": 4}, "truncate_prompt_tokens", ("not built",)),
    (CLASSIFIER, "/pooling", {"input": "a", "dimensions": 2}, "dimensions", ("2", "one number for each label")),
    (CLASSIFIER, "/encode", {"text": "a", "dimensions": 2}, "dimensions", ("2", "one number for each label")),
    (LIMITS, "/pooling", {"input": "a", "task": "token_embed"}, "task", ("'token_embed'", "'classify' or 'embed'")),
    (LIMITS, "/pooling", {"input": "a", "dimensions": HIDDEN + 1}, "dimensions", (f"[1, {HIDDEN}]",)),
    (LIMITS, "/encode", {"image_data": "x", "text": "a"}, "image_data", ("not built",)),
    (LIMITS, "/encode", {}, "text", ("input_ids", "exactly one")),
    (replace(LIMITS, hidden_size=0), "/encode", {"text": "a"}, "model", ("no hidden states",)),
    (LIMITS, "/score", {"text_1": "a"}, "text_2", ("absent", "text_1")),
    (LIMITS, "/score", {"documents": ["a"]}, "text_1", ("absent", "documents")),
    (LIMITS, "/score", {"text_1": "a", "queries": "b", "text_2": "c"}, "queries", ("text_1", "exactly one")),
    (LIMITS, "/score", {"text_1": ["a", "b"], "text_2": ["a", "b", "c"]}, "text_1", ("2 texts", "text_2, 3")),
    (LIMITS, "/score", {"text_1": ["a", ""], "text_2": ["a", "b"]}, "text_1[1]", ("empty",)),
    (LIMITS, "/score", {"query": "a", "text_1": "a", "text_2": "b"}, "query", ("text_1", "two kinds")),
    (LIMITS, "/score", {"text_1": "a", "text_2": ["b", "REJECT"]}, "text_2[1]", ("9999",)),
    (replace(LIMITS, generates=False), "/rerank", {"query": "q", "documents": ["a"], "method": "generate"}, "method",
     ("no head", "'embed'")),
    (replace(LIMITS, generates=False), "/rerank", {"query": "q", "documents": ["a"], "method": "qwen3"}, "method",
     ("no head", "'embed'")),
    (REWARD, "/rerank", {"query": "q", "documents": ["a"], "instruct": "x"}, "instruct", ("'x'", "'classify'")),
    (LIMITS, "/v1/embeddings", {"input": "a", "prompt_name": "query"}, "prompt_name", ("'query'", "names no prompts")),
]  # fmt: skip


@pytest.mark.parametrize("limits, path, body, param, pieces", BAD, ids=lambda value: str(value)[:40])
def test_what_is_refused_is_named(
    limits: Limits, path: str, body: dict[str, Any], param: str, pieces: tuple[str, ...]
) -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post(path, body)
        assert status == 400, reply
        error = reply["error"]
        assert error.get("param", param) == param and param in error["message"], reply
        assert all(piece in error["message"] for piece in pieces), reply

    served(check, limits=limits)


def test_a_mean_that_leaves_its_prompt_out_is_refused() -> None:
    async def check(server: Served) -> None:
        status, reply = await server.post("/v1/embeddings", {"input": "a"})
        assert status == 400 and "leaves out of the mean" in reply["error"]["message"]
        assert (await server.post("/v1/embeddings", {"input": "a", "pooling": "last"}))[0] == 200
        assert (await server.post("/v1/embeddings", {"input": [5]}))[0] == 200

    served(check, pooling=Pooling(prompts={"x": "X: "}, default_prompt="x", pools_prompt=False))


def test_numbers_that_are_none_are_a_failure_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fakes.engine.state_of", lambda message: [math.inf] * HIDDEN)

    async def check(server: Served) -> None:
        status, reply = await server.post("/classify", {"input": "a"})
        assert status == 500 and "finite" in reply["error"]["message"]

    served(check, limits=CLASSIFIER)


def test_the_health_check_of_a_model_that_generates_nothing() -> None:
    async def check(server: Served) -> None:
        assert (await server.get("/health_generate"))[0] == 200
        (probe,) = server.engine.of_type(Generate)
        assert probe.spec.params.max_new_tokens == 0
        assert (await server.get("/model_info"))[1]["is_generation"] is False

    served(check, limits=CLASSIFIER)
