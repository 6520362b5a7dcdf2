"""Healed prompts against transformers: the output begins with the best, or a fair draw, of all sequences there are."""

import math
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from healed import Everything, load_hf, make_model, text_of
from samples import slow

from ramet.runtime.llm import LLM

TIE = 1e-4  # of two sequences' log-probabilities: closer ones are equal in float32
MOST = 12  # new tokens


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("healed"))


@pytest.fixture(scope="module")
def llm(folder: Path) -> Iterator[LLM]:
    with LLM(str(folder), device="cpu", dtype="float32", max_total_tokens=8192) as llm:
        yield llm


class Oracle:
    def __init__(self, folder: Path, llm: LLM) -> None:
        self.everything, self._tokenizer, self._logits = Everything(llm.tokenizer), llm.tokenizer, load_hf(folder)

    def sequences(
        self, text: str, most: int = MOST, temperature: float = 1.0
    ) -> tuple[list[int], bytes, dict[tuple[int, ...], float]]:
        """What stays of the prompt, its tail, and the log-probability of every sequence."""
        kept, tail = self.everything.tail(self._tokenizer.encode(text), most)

        def after(paths: list[tuple[int, ...]]) -> list[torch.Tensor]:
            return [torch.log_softmax(row / temperature, -1) for row in self._logits([[*kept, *p] for p in paths])]

        return kept, tail, self.everything.sequences(tail, most, after) if tail else {}


@pytest.fixture(scope="module")
def oracle(folder: Path, llm: LLM) -> Oracle:
    return Oracle(folder, llm)


def test_greedy_output_begins_with_the_best_sequence(llm: LLM, oracle: Oracle) -> None:
    draw, lengths, searched = random.Random(1), Counter[int](), 0
    texts = [text_of(draw) for _ in range(300)]
    asked = {"temperature": 0, "max_new_tokens": MOST, "ignore_eos": True}
    for text, reply in zip(texts, llm.generate(texts, asked, token_healing=True), strict=True):
        kept, tail, sequences = oracle.sequences(text)
        assert reply["meta_info"]["prompt_tokens"] == len(kept)
        if not tail:
            continue
        found = oracle.everything.first_of(reply["output_ids"], tail)
        best = max(sequences.values())
        assert sequences[found] > best - TIE, (text, tail, found)
        lengths[len(found)] += 1
        greedy = max((s for s in sequences if len(s) == 1), key=sequences.__getitem__, default=())
        searched += found != greedy
    assert lengths[1] > 50 and sum(lengths.values()) - lengths[1] > 20, lengths  # both kinds of answers came
    assert searched > 20


def test_fewer_new_tokens_leave_the_best_of_the_sequences_that_fit(llm: LLM, oracle: Oracle) -> None:
    draw, num = random.Random(2), 0
    for text in [text_of(draw) for _ in range(60)]:
        for most in (1, 2, 3):
            (reply,) = llm.generate(
                [text], {"temperature": 0, "max_new_tokens": most, "ignore_eos": True}, token_healing=True
            )
            kept, tail, sequences = oracle.sequences(text, most)
            assert reply["meta_info"]["prompt_tokens"] == len(kept) and len(reply["output_ids"]) == most
            if tail:
                num += 1
                found = oracle.everything.first_of(reply["output_ids"], tail)
                assert sequences[found] > max(sequences.values()) - TIE, (text, most)
    assert num > 100


@pytest.mark.parametrize("temperature", [1.0, slow(0.6), slow(1.7)])
def test_draws_have_the_distribution_of_all_sequences_that_begin_with_the_tail(
    llm: LLM, oracle: Oracle, temperature: float
) -> None:
    """Of N independent draws each sequence has N p ± sqrt(N p (1 - p)); 6 such deviations are passed by one in 5e8."""
    draw, tried = random.Random(int(temperature * 10)), 0
    while tried < 4:
        text = text_of(draw)
        _, tail, sequences = oracle.sequences(text, temperature=temperature)
        if len(tail) < 3 or max(map(len, sequences)) < 2:
            continue
        tried += 1
        total = math.log(sum(map(math.exp, sequences.values())))
        exact = {each: math.exp(value - total) for each, value in sequences.items()}
        asked = {"temperature": temperature, "max_new_tokens": MOST, "ignore_eos": True, "n": 128, "top_p": 1.0}
        seeds = [{**asked, "sampling_seed": seed} for seed in range(8)]
        replies = llm.generate([text] * len(seeds), seeds, token_healing=True)
        drawn = Counter(oracle.everything.first_of(reply["output_ids"], tail) for reply in replies)
        assert drawn.keys() <= exact.keys() and sum(drawn.values()) == len(replies) == 1024
        for each, p in exact.items():
            spread = math.sqrt(len(replies) * p * (1 - p))
            assert abs(drawn[each] - len(replies) * p) <= 6 * spread + 3, (text, each, drawn[each], p)
        by_length, expected = Counter(map(len, drawn.elements())), Counter[int]()
        for each, p in exact.items():
            expected[len(each)] += p  # type: ignore[assignment]
        for length, p in expected.items():
            assert abs(by_length[length] - len(replies) * p) <= 6 * math.sqrt(len(replies) * p * (1 - min(p, 1))) + 3


def test_a_sequences_log_probabilities_are_the_factors_of_its_probability(llm: LLM, oracle: Oracle) -> None:
    draw = random.Random(3)
    asked = {"temperature": 0, "max_new_tokens": MOST, "ignore_eos": True}
    for text in [text_of(draw) for _ in range(80)]:
        (reply,) = llm.generate([text], asked, token_healing=True, return_logprob=True)
        _, tail, sequences = oracle.sequences(text)
        if tail:
            found = oracle.everything.first_of(reply["output_ids"], tail)
            told = [entry[0] for entry in reply["meta_info"]["output_token_logprobs"][: len(found)]]
            assert sum(told) == pytest.approx(sequences[found], abs=1e-3)
