"""Embeddings, scores and ranks of the bundled model, asked for as clients do; no slot is left behind."""

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest
import requests
from live import Live


@pytest.fixture(scope="module")
def server() -> Iterator[Live]:
    with Live(max_total_tokens=20000, check_invariants=True) as live:
        yield live


@pytest.fixture(autouse=True)
def nothing_is_left(server: Live) -> Iterator[None]:
    yield
    state = server.state()
    assert state["owned_tokens"] == state["leased_tokens"] == state["running_requests"] == 0
    assert state["waiting_requests"] == 0


def post(server: Live, path: str, **body: Any) -> requests.Response:
    return requests.post(server.url + path, json=body, timeout=60)


def embed(server: Live, texts: Any, **more: Any) -> list[list[float]]:
    return [entry["embedding"] for entry in post(server, "/v1/embeddings", input=texts, **more).json()["data"]]


def ids_of(server: Live, *texts: str) -> list[int]:
    """The first token of each."""
    reply = post(server, "/v1/tokenize", prompt=list(texts), add_special_tokens=False).json()
    return [ids[0] for ids in reply["tokens"]]


def test_openais_client_gets_unit_vectors(server: Live):
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
    texts = ["The capital of France is Paris.", "Grüße, 世界 🌍", "a"]
    packed = client.embeddings.create(model="ramet-bundled", input=texts)
    floats = client.embeddings.create(model="ramet-bundled", input=texts, encoding_format="float")
    for one, other in zip(packed.data, floats.data, strict=True):
        assert one.embedding == pytest.approx(other.embedding, abs=1e-2)  # bfloat16
    width = requests.get(server.url + "/get_model_info", timeout=10).json()["hidden_size"]
    for entry in packed.data:
        assert len(entry.embedding) == width and math.hypot(*entry.embedding) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_company_and_cache_change_no_vector_beyond_rounding(server: Live, pooling: str):
    texts = [f"Number {i} is what this text is about. " * (1 + i % 5) for i in range(40)]
    alone = [embed(server, text, pooling=pooling)[0] for text in texts[:8]]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda _: embed(server, texts, pooling=pooling), range(4)))
    for found in together:
        for one, other in zip(alone, found, strict=False):
            assert sum(map(float.__mul__, one, other)) == pytest.approx(1, abs=1e-2)  # bfloat16


def test_two_thousand_inputs_in_one_request(server: Live):
    reply = post(server, "/v1/embeddings", input=[f"input {i}" for i in range(2048)], encoding_format="base64").json()
    assert [entry["index"] for entry in reply["data"]] == list(range(2048))


def test_a_long_prompt_is_not_bounded_by_what_all_its_states_would_be(server: Live):
    ids = [5 + i % 4000 for i in range(4090)]
    (vector,) = embed(server, ids, pooling="mean")
    assert math.hypot(*vector) == pytest.approx(1, abs=1e-5)
    refused = post(server, "/v1/embeddings", input=[ids * 2])
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "input[0]"


def test_score_knows_the_capital(server: Live):
    labels = ids_of(server, " Paris", " Rome", " Tokyo")
    body = {"query": "The capital of ", "items": ["France is", "Italy is", "Japan is"], "label_token_ids": labels}
    scores = post(server, "/v1/score", **body, apply_softmax=True).json()["scores"]
    assert [row.index(max(row)) for row in scores] == [0, 1, 2] and all(max(row) > 0.9 for row in scores)
    plain = post(server, "/v1/score", **body).json()
    assert all(sum(row) <= 1 + 1e-5 for row in plain["scores"]) and plain["usage"]["completion_tokens"] == 3


def test_score_equals_the_logprobs_of_generate(server: Live):
    labels = ids_of(server, " Paris", " Rome")
    (row,) = post(server, "/v1/score", query="The capital of ", items="France is", label_token_ids=labels).json()[
        "scores"
    ]
    meta = server.generate(
        text="The capital of France is",
        sampling_params={"temperature": 0, "max_new_tokens": 1},
        return_logprob=True,
        token_ids_logprob=labels,
    ).json()["meta_info"]
    expected = [math.exp(value) for value, _, _ in meta["output_token_ids_logprobs"][0]]
    assert row == pytest.approx(expected, abs=1e-2)


@pytest.mark.parametrize("method", ["generate", "embed"])
def test_rerank_returns_every_document_once(server: Live, method: str):
    documents = ["Bananas are yellow.", "Paris is the capital of France.", "The sum of 2 and 3 is 5."]
    reply = post(server, "/v1/rerank", query="The capital of France", documents=documents, method=method).json()
    assert sorted(entry["index"] for entry in reply["results"]) == [0, 1, 2]
    assert {entry["document"]["text"] for entry in reply["results"]} == set(documents)
    worths = [entry["relevance_score"] for entry in reply["results"]]
    assert worths == sorted(worths, reverse=True)
    if method == "embed":
        assert reply["results"][0]["index"] == 1


def test_a_client_that_goes_away_leaves_nothing(server: Live):
    with pytest.raises(requests.exceptions.Timeout):
        requests.post(server.url + "/v1/embeddings", json={"input": ["word " * 900] * 500}, timeout=0.5)
    assert requests.post(server.url + "/flush_cache?timeout=30", timeout=60).status_code == 200  # waits until idle
    assert embed(server, "still there")
