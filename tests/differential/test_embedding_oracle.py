"""Embeddings and scores of a real server equal transformers' in float32, however a prompt is chunked or cached."""

import base64
import json
import sys
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
import requests
import torch
from live import Live
from samples import slow

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
from tiny_model import make_tiny

VOCABULARY, HIDDEN = 512, 96
NEAR = 1e-4
LENGTHS = (1, 2, 7, 8, 40, 150)
LABELS = [3, 100, 511, 0]
# what must not reach a score
HABITS = {"temperature": 0.3, "repetition_penalty": 1.7, "top_k": 2, "eos_token_id": [1, 3]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = make_tiny(tmp_path_factory.mktemp("pooled"), hidden=HIDDEN, heads=6, vocab=VOCABULARY, context=256)
    (made / "generation_config.json").write_text(json.dumps(HABITS))
    modules = [{"path": "", "type": "x.Transformer"}, {"path": "1_Pooling", "type": "x.Pooling"}]
    (made / "modules.json").write_text(json.dumps(modules))
    (made / "1_Pooling").mkdir()
    (made / "1_Pooling" / "config.json").write_text('{"pooling_mode_lasttoken": true}')
    return made


CHUNKS = [slow(((1, "sampled"),)), (7, "raw"), (-1, "sampled")]


@pytest.fixture(scope="module", params=CHUNKS, ids=["1", "7", "whole"])
def server(request: pytest.FixtureRequest, folder: Path) -> Iterator[Live]:
    chunk, mode = request.param
    options: dict[str, Any] = {"dtype": "float32", "check_invariants": True, "max_total_tokens": 4096}
    with Live(model_path=folder, chunked_prefill_size=chunk, logprobs_mode=mode, **options) as live:
        yield live
        state = live.state()
        assert state["owned_tokens"] == state["leased_tokens"] == state["running_requests"] == 0


@pytest.fixture(scope="module")
def oracle(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def prompts() -> list[list[int]]:
    whole = np.random.default_rng(3).integers(5, VOCABULARY, max(LENGTHS))
    return [whole[:length].tolist() for length in LENGTHS]  # each is a prefix of the next


@torch.inference_mode()
def pooled(oracle: Any, ids: list[int], kind: str) -> np.ndarray:
    states = oracle.model(torch.tensor([ids])).last_hidden_state[0]
    return (states.mean(0) if kind == "mean" else states[-1]).numpy()


def post(server: Live, path: str, **body: Any) -> Any:
    response = requests.post(server.url + path, json=body, timeout=60)
    assert response.status_code == 200, response.text
    return response.json()


def vectors(server: Live, ids: Any, **more: Any) -> np.ndarray:
    return np.array([entry["embedding"] for entry in post(server, "/v1/embeddings", input=ids, **more)["data"]])


@pytest.mark.parametrize("kind", ["mean", "last"])
def test_embeddings_alone_and_in_a_batch_cold_and_warm(server: Live, oracle: Any, kind: str):
    want = np.array([pooled(oracle, ids, kind) for ids in prompts()])
    for _ in range(2):  # cold, then warm
        got = vectors(server, prompts(), pooling=kind, normalize=False)
        np.testing.assert_allclose(got, want, atol=NEAR)
    assert requests.post(server.url + "/flush_cache", timeout=10).status_code == 200
    for ids, row in zip(prompts(), want, strict=True):
        (alone,) = vectors(server, ids, pooling=kind, normalize=False)
        np.testing.assert_allclose(alone, row, atol=NEAR)


def test_a_vector_has_length_one_after_its_first_numbers_were_kept(server: Live, oracle: Any):
    want = pooled(oracle, prompts()[4], "mean")
    for count in (1, 5, HIDDEN):
        (got,) = vectors(server, prompts()[4], pooling="mean", normalize=True, dimensions=count)
        np.testing.assert_allclose(got, want[:count] / np.linalg.norm(want[:count]), atol=NEAR)


def test_the_last_token_reuses_a_cached_prefix_and_a_mean_does_not(server: Live):
    def cached() -> float:
        lines = requests.get(server.url + "/metrics", timeout=10).text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith("ramet:cached_tokens_total"))

    ids = np.random.default_rng(9).integers(5, VOCABULARY, 100).tolist()
    vectors(server, ids, pooling="last")
    before = cached()
    vectors(server, ids, pooling="mean")
    assert cached() == before
    vectors(server, ids, pooling="last")
    assert cached() == before + 99


def test_the_models_folder_says_how_where_the_client_does_not(server: Live, oracle: Any):
    np.testing.assert_allclose(vectors(server, prompts()[3])[0], pooled(oracle, prompts()[3], "last"), atol=NEAR)


def test_base64_decodes_to_the_float_reply_and_openais_client_reads_both(server: Live):
    floats = vectors(server, prompts(), pooling="mean")
    packed = post(server, "/v1/embeddings", input=prompts(), pooling="mean", encoding_format="base64")["data"]
    for row, entry in zip(floats, packed, strict=True):
        np.testing.assert_allclose(array("f", base64.b64decode(entry["embedding"])), row, atol=1e-5)
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
    for more in ({}, {"encoding_format": "float"}):
        reply = client.embeddings.create(model="default", input=prompts(), extra_body={"pooling": "mean"}, **more)
        np.testing.assert_allclose([entry.embedding for entry in reply.data], floats, atol=1e-5)
        assert reply.usage.prompt_tokens == sum(LENGTHS)


@pytest.mark.parametrize("item_first", [False, True])
def test_scores_are_the_softmax_at_the_last_place(server: Live, oracle: Any, item_first: bool):
    query, *items = prompts()[2:]
    whole = [item + query if item_first else query + item for item in items]
    with torch.inference_mode():
        want = np.array([torch.softmax(oracle(torch.tensor([ids])).logits[0, -1], 0)[LABELS].numpy() for ids in whole])
    asked = {"query": query, "items": items, "label_token_ids": LABELS, "item_first": item_first}
    for _ in range(2):  # cold, then warm
        reply = post(server, "/v1/score", **asked)
        np.testing.assert_allclose(reply["scores"], want, atol=NEAR, rtol=1e-3)
        assert reply["usage"]["completion_tokens"] == len(items)
    shares = post(server, "/v1/score", **asked, apply_softmax=True)["scores"]
    np.testing.assert_allclose(shares, want / want.sum(1, keepdims=True), atol=NEAR)


def test_rerank_by_embeddings_is_the_cosine(server: Live):
    texts = ["one text", "another one", "1 + 1 = ?", "one text"]
    query, *others = vectors(server, ["one text", *texts], normalize=True)
    reply = post(server, "/v1/rerank", query="one text", documents=texts, method="embed")
    got = {entry["index"]: entry["relevance_score"] for entry in reply["results"]}
    assert got == pytest.approx({i: float(query @ other) for i, other in enumerate(others)}, abs=NEAR)
    assert [entry["index"] for entry in reply["results"]][:2] == [0, 3]
