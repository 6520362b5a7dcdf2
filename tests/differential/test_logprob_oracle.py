"""Log-probabilities, hidden states and embeddings equal transformers' in float32, with a warm or a cold cache."""

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ramet.runtime.errors import ClientError
from ramet.runtime.llm import LLM

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
from tiny_model import make_tiny

VOCABULARY, NUM_NEW = 512, 12
NEAR = 1e-4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("scored"), hidden=96, heads=6, kv_heads=2, vocab=VOCABULARY, context=256)


@pytest.fixture(scope="module")
def oracle(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@pytest.fixture(scope="module", params=[5, -1], ids=["chunks", "whole"])
def llm(request: pytest.FixtureRequest, folder: Path) -> Iterator[LLM]:
    options: dict[str, Any] = {"dtype": "float32", "check_invariants": True, "random_seed": 0, "max_total_tokens": 4096}
    with LLM(str(folder), chunked_prefill_size=request.param, **options) as made:
        yield made


def prompt_of(seed: int, length: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, VOCABULARY, length).tolist()


@torch.inference_mode()
def expected(oracle: Any, ids: list[int], temperature: float = 1.0) -> torch.Tensor:
    """[i] is the distribution of the token that follows ids[: i + 1]. [len(ids), V]"""
    return torch.log_softmax(oracle(torch.tensor([ids])).logits[0] / temperature, dim=-1)


def check_triples(triples: list[Any], ids: list[int], rows: torch.Tensor) -> None:
    assert [triple[1] for triple in triples] == ids
    for (value, token, _), row in zip(triples, rows, strict=True):
        assert value == pytest.approx(float(row[token]), abs=NEAR)


@pytest.mark.parametrize("start", [0, 1, 7, 29, 30])
def test_input_and_output_of_any_start(llm: LLM, oracle: Any, start: int):
    prompt, chosen = prompt_of(1, 30), [3, 100, 511]
    asked = dict(return_logprob=True, logprob_start_len=start, top_logprobs_num=4, token_ids_logprob=chosen)
    for _ in range(2):  # cold, then warm
        (reply,) = llm.generate(prompt, {"temperature": 0, "max_new_tokens": NUM_NEW, "ignore_eos": True}, **asked)
        meta, output = reply["meta_info"], reply["output_ids"]
        rows = expected(oracle, prompt + output)
        told, tops = meta["input_token_logprobs"], meta["input_top_logprobs"]
        others = meta["input_token_ids_logprobs"]
        assert len(told) == len(tops) == len(others) == len(prompt) - start
        if told:
            assert told[0] == (None, prompt[start], None) and tops[0] is others[0] is None
        check_triples(told[1:], prompt[start + 1 :], rows[start : len(prompt) - 1])
        places = [*tops[1:], *meta["output_top_logprobs"]]
        for place, ids, row in zip(
            places,
            [*others[1:], *meta["output_token_ids_logprobs"]],
            rows[min(start, len(prompt) - 1) : len(prompt) + NUM_NEW - 1],
            strict=True,
        ):
            check_triples(ids, chosen, row.expand(len(chosen), -1))
            best = torch.topk(row, 4)
            assert [value for value, _, _ in place] == pytest.approx(best.values.tolist(), abs=NEAR)
            for value, token, _ in place:
                assert value == pytest.approx(float(row[token]), abs=NEAR)
        check_triples(meta["output_token_logprobs"], output, rows[len(prompt) - 1 : -1])


def test_output_is_of_the_distribution_that_is_drawn_from(llm: LLM, oracle: Any):
    prompt = prompt_of(2, 20)
    params = {"temperature": 0.7, "top_p": 0.9, "max_new_tokens": NUM_NEW, "ignore_eos": True, "sampling_seed": 5}
    (reply,) = llm.generate(prompt, params, return_logprob=True)
    rows = expected(oracle, prompt + reply["output_ids"], temperature=0.7)
    check_triples(reply["meta_info"]["output_token_logprobs"], reply["output_ids"], rows[len(prompt) - 1 : -1])
    assert reply["meta_info"]["input_token_logprobs"] == []


def test_penalties_and_bias_are_in_the_output_and_not_in_the_input(llm: LLM, oracle: Any):
    prompt, bias = prompt_of(3, 16), {"7": 3.5}
    params = {
        "temperature": 0,
        "max_new_tokens": NUM_NEW,
        "ignore_eos": True,
        "frequency_penalty": 1.5,
        "logit_bias": bias,
    }
    (reply,) = llm.generate(prompt, params, return_logprob=True, logprob_start_len=0)
    output, meta = reply["output_ids"], reply["meta_info"]
    with torch.inference_mode():
        logits = oracle(torch.tensor([prompt + output])).logits[0]
    check_triples(meta["input_token_logprobs"][1:], prompt[1:], torch.log_softmax(logits[: len(prompt) - 1], -1))
    for i, (value, token, _) in enumerate(meta["output_token_logprobs"]):
        row = logits[len(prompt) - 1 + i].clone()
        row -= 1.5 * torch.bincount(torch.tensor(output[:i], dtype=torch.int64), minlength=VOCABULARY)
        row[7] += 3.5
        assert token == int(row.argmax()) and value == pytest.approx(float(torch.log_softmax(row, -1)[token]), abs=NEAR)


def test_probabilities_of_a_place_sum_to_one(llm: LLM):
    every = list(range(VOCABULARY))
    params = {"temperature": 0.5, "max_new_tokens": 3, "ignore_eos": True, "presence_penalty": 1.0}
    (reply,) = llm.generate(prompt_of(4, 8), params, return_logprob=True, logprob_start_len=0, token_ids_logprob=every)
    meta = reply["meta_info"]
    places = [*meta["input_token_ids_logprobs"][1:], *meta["output_token_ids_logprobs"]]
    assert len(places) == 10
    for place in places:
        assert math.fsum(math.exp(value) for value, _, _ in place) == pytest.approx(1, abs=1e-4)


def test_raw_mode_tells_the_models_own_distribution(folder: Path, oracle: Any):
    prompt = prompt_of(5, 10)
    params = {"temperature": 0.3, "max_new_tokens": 6, "ignore_eos": True, "frequency_penalty": 2.0, "sampling_seed": 1}
    with LLM(str(folder), dtype="float32", logprobs_mode="raw", max_total_tokens=1024) as llm:
        (reply,) = llm.generate(prompt, params, return_logprob=True)
    rows = expected(oracle, prompt + reply["output_ids"])
    check_triples(reply["meta_info"]["output_token_logprobs"], reply["output_ids"], rows[len(prompt) - 1 : -1])


def test_texts_come_where_they_are_asked_for(llm: LLM):
    asked = dict(return_logprob=True, logprob_start_len=0, top_logprobs_num=1, token_ids_logprob=[9])
    for texts in (False, True):
        (reply,) = llm.generate(
            prompt_of(6, 5), {"temperature": 0, "max_new_tokens": 3}, **asked, return_text_in_logprobs=texts
        )
        meta = reply["meta_info"]
        triples = [*meta["input_token_logprobs"], *meta["output_token_logprobs"]]
        triples += [t for name in ("input", "output") for p in meta[f"{name}_top_logprobs"] if p for t in p]
        triples += [t for name in ("input", "output") for p in meta[f"{name}_token_ids_logprobs"] if p for t in p]
        for _, token, text in triples:
            assert text == (llm.tokenizer.decode([token], skip_special_tokens=False) if texts else None)


def test_hidden_states_equal_the_oracles(llm: LLM, oracle: Any):
    prompt = prompt_of(7, 12)
    params = {"temperature": 0, "max_new_tokens": 5, "ignore_eos": True}
    llm.generate(prompt, params)  # a warm cache must not shorten them
    whole, last = (llm.generate(prompt, params, return_hidden_states=which)[0] for which in (True, "last"))
    with torch.inference_mode():
        ids = torch.tensor([prompt + whole["output_ids"][:-1]])
        states = oracle(ids, output_hidden_states=True).hidden_states[-1][0]
    matrix, *rows = whole["meta_info"]["hidden_states"]
    np.testing.assert_allclose(np.array(matrix), states[: len(prompt)], atol=1e-3, rtol=1e-3)
    np.testing.assert_allclose(np.array(rows), states[len(prompt) :], atol=1e-3, rtol=1e-3)
    np.testing.assert_allclose(np.array(last["meta_info"]["hidden_states"]), states[-1], atol=1e-3, rtol=1e-3)


def test_embeddings_in_the_place_of_tokens_give_the_same(llm: LLM, oracle: Any):
    prompt = prompt_of(8, 9)
    params = {"temperature": 0, "max_new_tokens": 5, "ignore_eos": True}
    embeds = oracle.get_input_embeddings().weight[prompt].detach().numpy()
    (by_ids,) = llm.generate(prompt, params)
    for given in (embeds, [embeds], torch.from_numpy(embeds)):
        (by_rows,) = llm.generate(given, params)
        assert by_rows["output_ids"] == by_ids["output_ids"] and by_rows["meta_info"]["prompt_tokens"] == 9
    (rounded,) = llm.generate(oracle.get_input_embeddings().weight[prompt].bfloat16(), params)  # with a gradient
    assert rounded["meta_info"]["prompt_tokens"] == 9
    with pytest.raises(ClientError, match="input_embeds"):
        llm.generate(embeds[:, :-1], params)
