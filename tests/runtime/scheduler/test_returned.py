"""What prompts return is cut: no step computes or sends more than a bounded part of it, however large a reply is."""

import numpy as np
import pytest
from bench_top import BenchTop
from hash_runner import VOCABULARY, HashRunner, expected_output, hidden_state, logprob

from ramet.ipc.messages import TokenStep
from ramet.ipc.spec import HiddenMode, LogprobSpec
from ramet.runtime.scheduler.features.returned import LOGPROB_TOKENS, MAX_HIDDEN, MAX_LOGPROBS

LENGTH = 300


def prompt_of(seed: int, length: int = LENGTH) -> list[int]:
    return np.random.default_rng(seed).integers(0, VOCABULARY, length).tolist()


def places(step: TokenStep) -> int:
    """Prompt tokens whose log-probability a message has."""
    return sum(len(each.values) // 4 for each in step.logprobs if each.of_prompt)


def numbers(step: TokenStep) -> int:
    """Log-probabilities of prompt tokens that a message has."""
    return sum(len(each.values + each.top_values + each.chosen) // 4 for each in step.logprobs if each.of_prompt)


@pytest.mark.parametrize("chunk", [8, 64, 100])
def test_a_prompt_with_logprobs_counts_as_a_longer_one(chunk: int):
    top = BenchTop(chunked_prefill_size=chunk, rows=4)
    top.add(1, prompt_of(1), 2, logprobs=LogprobSpec(0))
    top.run()
    assert max(map(places, top.told)) <= chunk // LOGPROB_TOKENS + 1  # and the first token, which nothing predicts
    assert sum(map(places, top.told)) == LENGTH and top.tokens[1] == expected_output(prompt_of(1), 2)


def test_tokens_before_the_first_place_and_after_the_last_count_as_one():
    top = BenchTop(chunked_prefill_size=64)
    top.add(1, prompt_of(1), 1, logprobs=LogprobSpec(LENGTH - 2))
    assert top.run() == -(-LENGTH // 64)


def test_a_prompt_that_returns_nothing_goes_on_beside_one_that_does():
    asked, plain = prompt_of(1, 40), prompt_of(2, 40)
    top = BenchTop(chunked_prefill_size=64)
    top.add(1, asked, 1, logprobs=LogprobSpec(35))  # 35 tokens, and 5 that count eight times
    top.add(2, plain, 1)
    top.turn()
    assert 1 in top.opened and 2 in top.opened
    top.run()
    assert top.tokens[1] == expected_output(asked, 1) and top.tokens[2] == expected_output(plain, 1)


def test_no_step_returns_more_logprobs_than_the_bound(monkeypatch: pytest.MonkeyPatch):
    ask = LogprobSpec(0, num_top=VOCABULARY, ids=tuple(range(VOCABULARY)) * 10)
    each = 1 + VOCABULARY * 11
    top = BenchTop(chunked_prefill_size=-1, context=1024)
    for uid in (1, 2):
        top.add(uid, prompt_of(uid, 100), 1, logprobs=ask)
    top.run()
    assert all(numbers(step) <= MAX_LOGPROBS + 1 for step in top.told)
    assert [sum(place.token[0] is not None for place in top.scores[uid].prompt) for uid in (1, 2)] == [99, 99]
    assert sum(bool(places(step)) for step in top.told) >= 2 * 99 * each / MAX_LOGPROBS


def test_no_step_returns_more_hidden_states_than_the_bound(monkeypatch: pytest.MonkeyPatch):
    width = MAX_HIDDEN // 8
    monkeypatch.setattr(HashRunner, "hidden_size", width)
    monkeypatch.setattr("hash_runner.hidden_state", lambda read: hidden_state(read) + [0.0] * (width - 2))
    prompt = prompt_of(1, 20)
    top = BenchTop(chunked_prefill_size=-1)
    top.add(1, prompt, 1, hidden=HiddenMode.ALL)
    top.add(2, prompt_of(2, 20), 1, hidden=HiddenMode.LAST)
    top.run()
    sizes = [sum(len(each.values) // 4 for each in step.hidden if each.uid == 1) for step in top.told]
    assert max(sizes) == MAX_HIDDEN and sum(sizes) == 20 * width


@pytest.mark.parametrize("seed", range(6))
def test_cut_and_uncut_return_the_same(seed: int, monkeypatch: pytest.MonkeyPatch):
    """Random prompts, starts, chunks and memory; the bounds are a few numbers, or none."""
    draw = np.random.default_rng(seed)
    monkeypatch.setattr("ramet.runtime.scheduler.features.returned.MAX_LOGPROBS", int(draw.integers(1, 40)))
    monkeypatch.setattr("ramet.runtime.scheduler.features.returned.MAX_HIDDEN", int(draw.integers(1, 30)))
    top = BenchTop(
        total=420, chunked_prefill_size=int(draw.integers(1, 60)), schedule_conservativeness=0.01,
        overlap="on" if seed % 2 else "off",
    )  # fmt: skip
    prompts = {uid: prompt_of(uid % 5, int(draw.integers(1, 60))) for uid in range(1, 13)}
    asks = {}
    for uid, prompt in prompts.items():
        ask = LogprobSpec(int(draw.integers(0, len(prompt) + 1)), uid % 3, tuple(range(uid % 4)))
        hidden = (None, HiddenMode.ALL, HiddenMode.MEAN, HiddenMode.LAST)[uid % 4]
        asks[uid] = ask if draw.random() < 0.7 else None
        top.add(uid, prompt, 20, logprobs=asks[uid], hidden=hidden)
    top.run()
    for uid, prompt in prompts.items():
        whole = prompt + expected_output(prompt, 20)
        assert top.tokens[uid] == whole[len(prompt) :]
        if asks[uid] is not None:
            start = asks[uid].start
            values = [place.token[:2] for place in top.scores[uid].prompt]
            known = [(logprob(whole[:i], whole[i]), whole[i]) for i in range(start + 1, len(prompt))]
            assert values == ([(None, whole[start]), *known] if start < len(prompt) else [])
        if uid % 4 == 1:
            states = [hidden_state(whole[: i + 1]) for i in range(len(whole) - 1)]
            assert top.hidden[uid].meta().whole() == [states[: len(prompt)], *states[len(prompt) :]]
