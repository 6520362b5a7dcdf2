"""Log-probabilities reach the token they belong to: any start, chunk, cache, retraction and company."""

import numpy as np
import pytest
from bench_top import BenchTop
from hash_runner import VOCABULARY, expected_output, hidden_state, logprob

from ramet.ipc.messages import FinishKind
from ramet.ipc.spec import HiddenMode, LogprobSpec


def prompt_of(seed: int, length: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, VOCABULARY, length).tolist()


def check(top: BenchTop, uid: int, prompt: list[int], num_new: int, ask: LogprobSpec) -> None:
    whole = prompt + expected_output(prompt, num_new)
    start = len(prompt) if ask.start is None else ask.start
    lists = top.scores[uid]
    told = [(i, place) for i, place in zip(range(start, len(prompt)), lists.prompt, strict=True)]
    told += [(i, place) for i, place in zip(range(len(prompt), len(whole)), lists.output, strict=True)]
    for i, place in told:
        if i == start < len(prompt):
            assert place.token == (None, whole[i], None) and place.top is None and place.chosen is None
            continue
        assert place.token == (logprob(whole[:i], whole[i]), whole[i], None)
        assert place.top == [(logprob(whole[:i], t), t, None) for t in range(ask.num_top)]
        assert place.chosen == [(logprob(whole[:i], t), t, None) for t in ask.ids]


@pytest.mark.parametrize("chunk", [1, 3, 16, -1])
@pytest.mark.parametrize("page", [1, 16])
@pytest.mark.parametrize("start", [None, 0, 1, 17, 38, 39, 40])
def test_every_start_with_a_warm_and_a_cold_cache(start: int | None, page: int, chunk: int):
    prompt, ask = prompt_of(1, 40), LogprobSpec(start, 2, (5, 90))
    top = BenchTop(chunked_prefill_size=chunk, page_size=page)
    top.add(1, prompt, 6, logprobs=ask)
    top.run()
    top.add(2, prompt, 6, logprobs=ask)
    top.add(3, prompt, 6)
    top.run()
    for uid in (1, 2):
        assert top.tokens[uid] == expected_output(prompt, 6)
        check(top, uid, prompt, 6, ask)
    assert top.opened[2].cached_tokens <= (39 if start is None else min(start, 39))
    assert top.opened[3].cached_tokens >= 39 - page


def test_rows_that_ask_and_rows_that_do_not_share_steps_and_memory():
    top = BenchTop(total=320, chunked_prefill_size=16, schedule_conservativeness=0.01)
    asks = {uid: LogprobSpec(uid % 5 or None, uid % 3, tuple(range(uid % 4))) for uid in range(1, 13)}
    prompts = {uid: prompt_of(uid % 3, 20 + uid) for uid in asks}
    for uid, ask in asks.items():
        top.add(uid, prompts[uid], 40, **({"logprobs": ask} if uid % 2 else {}))
    top.run()
    assert sum(finish.num_retractions for finish in top.finish.values()) > 0
    for uid, ask in asks.items():
        assert top.tokens[uid] == expected_output(prompts[uid], 40)
        if uid % 2:
            check(top, uid, prompts[uid], 40, ask)
        else:
            assert uid not in top.scores


def test_scoring_alone_needs_no_output():
    prompt, ask = prompt_of(4, 50), LogprobSpec(0)
    top = BenchTop(chunked_prefill_size=7)
    top.add(1, prompt, 0, logprobs=ask)
    top.run()
    check(top, 1, prompt, 0, ask)
    assert top.tokens[1] == [] and top.finish[1].kind is FinishKind.LENGTH


@pytest.mark.parametrize("chunk", [1, 7, -1])
def test_hidden_states_of_every_token_once_and_in_order(chunk: int):
    prompts = {uid: prompt_of(uid % 2, 20 + uid) for uid in range(1, 7)}
    top = BenchTop(total=100, chunked_prefill_size=chunk, schedule_conservativeness=0.01)
    for uid, prompt in prompts.items():
        top.add(uid, prompt, 30, hidden=(HiddenMode.ALL, HiddenMode.LAST, None)[uid % 3])
    top.run()
    assert sum(finish.num_retractions for finish in top.finish.values()) > 0
    for uid, prompt in prompts.items():
        whole = prompt + top.tokens[uid]
        states = [hidden_state(whole[: i + 1]) for i in range(len(whole) - 1)]  # the last token is never read
        assert top.tokens[uid] == expected_output(prompt, 30)
        match uid % 3:
            case 0:
                assert top.hidden[uid].meta().whole() == [states[: len(prompt)], *states[len(prompt) :]]
            case 1:
                assert top.hidden[uid].meta() == states[-1]
            case _:
                assert uid not in top.hidden


def mean_of(prompt: list[int]) -> list[float]:
    states = [hidden_state(prompt[: i + 1]) for i in range(len(prompt))]
    return [sum(column) / len(prompt) for column in zip(*states, strict=True)]


@pytest.mark.parametrize("page", [1, 16])
@pytest.mark.parametrize("chunk", [1, 7, 64, -1])
def test_the_mean_is_over_every_prompt_token_whatever_is_cached(chunk: int, page: int):
    prompt = prompt_of(1, 40)
    top = BenchTop(chunked_prefill_size=chunk, page_size=page)
    for uid in (1, 2):  # cold, then warm
        top.add(uid, prompt, 0, hidden=HiddenMode.MEAN)
        top.add(uid + 10, prompt, 0, hidden=HiddenMode.LAST)
        top.run()
        assert top.hidden[uid].pooled == pytest.approx(mean_of(prompt)) and top.tokens[uid] == []
        assert top.hidden[uid + 10].pooled == hidden_state(prompt)
    assert top.opened[2].cached_tokens == 0, "what is summed must be computed"
    assert top.opened[12].cached_tokens >= 39 - page, "the last state alone can do with a cached prefix"
    (told,) = [states for step in top.told for states in step.hidden if states.uid == 1]
    assert len(told.values) == 4 * told.width, "one row for the whole prompt"


@pytest.mark.parametrize("page", [1, 16])
@pytest.mark.parametrize("chunk", [1, 7, -1])
def test_the_first_state_is_computed_whatever_is_cached(chunk: int, page: int):
    prompt = prompt_of(1, 40)
    top = BenchTop(chunked_prefill_size=chunk, page_size=page)
    for uid in (1, 2):  # cold, then warm
        top.add(uid, prompt, 0, hidden=HiddenMode.FIRST)
        top.run()
        assert top.hidden[uid].pooled == hidden_state(prompt[:1]) and top.tokens[uid] == []
        assert top.opened[uid].cached_tokens == 0


def test_a_mean_survives_retractions_and_ends_with_the_prompt():
    prompts = {uid: prompt_of(uid % 3, 30 + uid) for uid in range(1, 9)}
    top = BenchTop(total=120, chunked_prefill_size=9, schedule_conservativeness=0.01)
    for uid, prompt in prompts.items():
        top.add(uid, prompt, 25 * (uid % 2), hidden=HiddenMode.MEAN if uid % 4 else HiddenMode.FIRST)
    top.run()
    assert sum(finish.num_retractions for finish in top.finish.values()) > 0
    for uid, prompt in prompts.items():
        assert top.hidden[uid].pooled == (pytest.approx(mean_of(prompt)) if uid % 4 else hidden_state(prompt[:1]))
        assert top.tokens[uid] == expected_output(prompt, 25 * (uid % 2))
