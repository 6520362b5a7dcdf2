"""Through a whole engine, what a token is drawn from equals the model's logits changed by ten naive lines.

Every place of every output is compared over the whole vocabulary: mixed batches, chunks, samples, retraction, and with
a warm cache.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ramet.runtime.llm import LLM
from ramet.runtime.sampling.logprobs import SMALLEST

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
from tiny_model import EOS, TURN_END, make_tiny

VOCABULARY, NUM_NEW = 300, 24
EVERY: dict[str, Any] = {"return_logprob": True, "token_ids_logprob": list(range(VOCABULARY))}
VARIANTS: list[dict[str, Any]] = [
    {},
    {"frequency_penalty": 1.5},
    {"presence_penalty": -2.0, "temperature": 0.7},
    {"repetition_penalty": 1.7},
    {"repetition_penalty": 0.5, "temperature": 0.9},
    {"logit_bias": {"7": 3.5, "250": -100}},
    {"min_new_tokens": 9, "stop_token_ids": list(range(0, VOCABULARY, 3))},
    {
        "frequency_penalty": 0.8, "presence_penalty": 0.6, "repetition_penalty": 1.2, "logit_bias": {"9": 2},
        "min_new_tokens": 5, "stop_token_ids": [9, 20, 30], "temperature": 1.3,
    },
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("penal"), hidden=96, heads=6, kv_heads=2, vocab=VOCABULARY, context=256)


@pytest.fixture(scope="module")
def oracle(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


ENGINES: dict[str, dict[str, Any]] = {
    "whole": {"chunked_prefill_size": -1},
    "chunks of 7": {"chunked_prefill_size": 7},
    "chunks of 1": {"chunked_prefill_size": 1},
    "retraction": {"max_total_tokens": 260, "schedule_conservativeness": 0.01},
    "prompt seen": {"repetition_penalty_scope": "all"},
    "few slots": {"max_penalised_requests": 2},
}


@pytest.fixture(scope="module", params=ENGINES, ids=list(ENGINES))
def llm(request: pytest.FixtureRequest, folder: Path) -> Iterator[LLM]:
    options: dict[str, Any] = {"dtype": "float32", "check_invariants": True, "random_seed": 0, "max_total_tokens": 8192}
    with LLM(str(folder), **options | ENGINES[request.param]) as made:
        yield made


def naive(logits: np.ndarray, output: list[int], seen: list[int], stops: list[int], p: dict[str, Any]) -> np.ndarray:
    """What is told of one place."""
    row = logits.astype(np.float64)
    for token in set(output):
        row[token] -= p.get("frequency_penalty", 0) * output.count(token) + p.get("presence_penalty", 0)
    factor = p.get("repetition_penalty", 1)
    for token in {*output, *seen}:
        row[token] = row[token] * factor if row[token] < 0 else row[token] / factor
    for token, bias in p.get("logit_bias", {}).items():
        row[int(token)] += bias
    row[stops if len(output) < p.get("min_new_tokens", 0) else []] = -np.inf
    row /= p["temperature"] or 1
    return np.maximum(row - np.logaddexp.reduce(row), SMALLEST)


@torch.inference_mode()
def check(llm: LLM, oracle: Any, prompts: list[list[int]], params: list[dict[str, Any]]) -> None:
    replies = llm.generate(prompts, params, **EVERY)
    samples = [(prompt, p) for prompt, p in zip(prompts, params, strict=True) for _ in range(p["n"])]
    sees_prompt = llm.args.schedule.repetition_penalty_scope == "all"
    for (prompt, p), reply in zip(samples, replies, strict=True):
        output = reply["output_ids"]
        logits = oracle(torch.tensor([prompt + output])).logits[0].numpy()
        stops = [*p["stop_token_ids"], EOS, TURN_END] if "stop_token_ids" in p else []
        assert len(output) > p.get("min_new_tokens", 0) or len(output) == NUM_NEW
        for i, place in enumerate(reply["meta_info"]["output_token_ids_logprobs"]):
            told = np.array([value for value, _, _ in place])
            row = logits[len(prompt) - 1 + i]
            expected = naive(row, output[:i], prompt if sees_prompt else [], stops, p)
            np.testing.assert_allclose(told, expected, rtol=1e-5, atol=1e-4)
            if not p["temperature"]:
                assert output[i] == int(told.argmax())


def test_every_place_of_every_output(llm: LLM, oracle: Any):
    random = np.random.default_rng(4)
    neutral = {"temperature": 0, "max_new_tokens": NUM_NEW, "n": 1, "sampling_seed": 3}
    prompts = [random.integers(0, VOCABULARY, 5 + 3 * i).tolist() for i in range(len(VARIANTS) * 2)]
    params = [{**neutral, **variant, "n": 1 + i // len(VARIANTS)} for i, variant in enumerate(VARIANTS * 2)]
    for _ in range(2):  # cold, then warm
        check(llm, oracle, prompts, params)
    retracts = llm.args.schedule.schedule_conservativeness < 1
    state = llm.state()
    assert (state["retractions"] > 0) == retracts and state["penalty_slots"] == 0
