"""Ranks and pair scores of real servers equal transformers: a classifier with one label, and Qwen3-Reranker's form."""

import json
from pathlib import Path
from typing import Any

import pytest
import requests
import torch
from live import Live
from tiny_families import make_family

from ramet.runtime.intake import reranker

NEAR = 1e-4
QUERY = "which of these is it"
DOCUMENTS = ["that one was with the others", "x", "a text that is not like the one which was asked for at all", "x y"]
OPTIONS: dict[str, Any] = {
    "dtype": "float32", "check_invariants": True, "max_total_tokens": 4096, "chunked_prefill_size": 9,
}  # fmt: skip


def scores(server: Live, **more: Any) -> list[list[float]]:
    """By rank and by pairs, cold and warm."""
    made = []
    for _ in range(2):
        body = {"query": QUERY, "documents": DOCUMENTS, **more}
        results = requests.post(server.url + "/v1/rerank", json=body, timeout=60).json()["results"]
        assert [r["relevance_score"] for r in results] == sorted((r["relevance_score"] for r in results), reverse=True)
        made.append([r["relevance_score"] for r in sorted(results, key=lambda r: r["index"])])
        pairs = {"text_1": QUERY, "text_2": DOCUMENTS}
        data = requests.post(server.url + "/score", json=pairs, timeout=60).json()["data"]
        made.append([entry["score"] for entry in data])
    return made


def test_a_classifier_with_one_label_reads_pairs_as_the_tokenizer_joins_them(tmp_path: Path) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    folder = make_family(tmp_path, "qwen3", kind="AutoModelForSequenceClassification", num_labels=1)
    oracle = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with torch.inference_mode():
        ids = [tokenizer(QUERY, document, return_tensors="pt")["input_ids"] for document in DOCUMENTS]
        want = [float(oracle(each).logits.sigmoid()) for each in ids]
    with Live(model_path=folder, **OPTIONS) as server:
        for got in scores(server):
            assert got == pytest.approx(want, abs=NEAR)
        for path, body in (
            ("/generate", {"text": "a"}),
            ("/v1/completions", {"prompt": "a"}),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
            ("/language/select", {"prompt": ["a"], "choices": ["b", "c"]}),
        ):
            refused = requests.post(server.url + path, json=body, timeout=60)
            assert refused.status_code == 400 and "model has no head" in refused.json()["error"]["message"], path
        assert requests.get(server.url + "/health_generate", timeout=60).status_code == 200
        assert server.state()["owned_tokens"] == 0


def test_qwen3_rerankers_form(tmp_path: Path) -> None:
    """As its authors compute it: three parts, the logits of yes and no behind them, and yes's share of the two."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = make_family(tmp_path, "qwen3", tie_word_embeddings=True)
    oracle = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)

    def ids(text: str) -> list[int]:
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    yes, no = ids(reranker.YES)[0], ids(reranker.NO)[0]
    assert yes != no
    want = []
    for document in DOCUMENTS:
        text = reranker.ASKED.format(instruct=reranker.INSTRUCT, query=QUERY, document=document)
        whole = ids(reranker.BEFORE) + ids(text) + ids(reranker.AFTER)
        with torch.inference_mode():
            logits = oracle(torch.tensor([whole])).logits[0, -1]
        want.append(float(torch.softmax(logits[[no, yes]], 0)[1]))
    keys = {"classifier_from_token": ["no", "yes"], "is_original_qwen3_reranker": True}
    keys["architectures"] = ["Qwen3ForSequenceClassification"]  # type: ignore[assignment]  # as vLLM is told
    longer = {"json_model_override_args": json.dumps(keys | {"max_position_embeddings": 1024})}
    with Live(model_path=folder, **OPTIONS, **longer) as server:
        for got in scores(server):
            assert got == pytest.approx(want, abs=NEAR)
        other = scores(server, method="generate")[0]
        assert other != pytest.approx(want, abs=NEAR)
