"""When a sequence ends, told by the whole scheduler: end token, stop ids, stop text, length, and which goes first."""

import random
import re
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from bench_top import BenchTop
from hash_runner import VOCABULARY, expected_output

from ramet.ipc.messages import FinishKind
from ramet.ipc.params import SamplingParams
from ramet.runtime.config import BUNDLED_MODEL
from ramet.runtime.scheduler.stopping import StopWatch
from ramet.runtime.text.decode import TextDecoder
from ramet.runtime.text.tokenizer import Tokenizer

LENGTH = 12


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_folder(BUNDLED_MODEL)


def prompt_of(seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, VOCABULARY, 10).tolist()


def prompt_whose_last_token_is_new(tokenizer: Tokenizer) -> tuple[list[int], list[int], str]:
    """A prompt, its output of LENGTH tokens without special ones, and the last token's text: nowhere before."""
    for seed in range(1000):
        prompt = prompt_of(seed)
        output = expected_output(prompt, LENGTH)
        last = tokenizer.decode(output[-1:])
        if not tokenizer.special_ids.intersection(output) and last not in tokenizer.decode(output[:-1]):
            return prompt, output, last
    raise AssertionError("no such prompt")


@pytest.mark.parametrize("at", [0, 4])
def test_the_end_token_stops_and_stays_in_the_output(at: int):
    output = expected_output(prompt_of(1), LENGTH)
    assert output.index(output[at]) == at
    top = BenchTop(eos_ids={output[at]})
    top.add(1, prompt_of(1), LENGTH)
    top.run()
    assert top.tokens[1] == output[: at + 1]
    assert (top.finish[1].kind, top.finish[1].matched) == (FinishKind.STOP, output[at])


def test_any_of_several_end_tokens_stops():
    output = expected_output(prompt_of(1), LENGTH)
    top = BenchTop(eos_ids={output[6], output[3]})
    top.add(1, prompt_of(1), LENGTH)
    top.run()
    assert top.tokens[1] == output[:4] and top.finish[1].matched == output[3]


def test_ignore_eos_goes_on_to_the_length():
    output = expected_output(prompt_of(1), LENGTH)
    top = BenchTop(eos_ids={output[4]})
    top.add(1, prompt_of(1), LENGTH, ignore_eos=True)
    top.run()
    assert top.tokens[1] == output and (top.finish[1].kind, top.finish[1].length) == (FinishKind.LENGTH, LENGTH)


def test_stop_token_ids_stop_where_the_end_token_is_ignored():
    output = expected_output(prompt_of(1), LENGTH)
    top = BenchTop(eos_ids={output[2]})
    top.add(1, prompt_of(1), LENGTH, ignore_eos=True, stop_token_ids=(output[5],))
    top.run()
    assert top.tokens[1] == output[:6] and top.finish[1].matched == output[5]


def test_an_end_token_as_the_last_allowed_one_is_a_stop():
    output = expected_output(prompt_of(1), LENGTH)
    top = BenchTop(eos_ids={output[4]})
    top.add(1, prompt_of(1), 5)
    top.run()
    assert (top.finish[1].kind, top.finish[1].matched) == (FinishKind.STOP, output[4])


def test_a_stop_id_goes_before_stop_text_and_that_before_the_length(tokenizer: Tokenizer):
    prompt, output, last = prompt_whose_last_token_is_new(tokenizer)
    top = BenchTop(tokenizer=tokenizer)
    top.add(1, prompt, LENGTH, stop=(last,), stop_token_ids=(output[-1],))
    top.add(2, prompt, LENGTH, stop=(last,))
    top.add(3, prompt, LENGTH)
    top.run()
    assert [top.tokens[uid] for uid in (1, 2, 3)] == [output] * 3
    assert (top.finish[1].kind, top.finish[1].matched) == (FinishKind.STOP, output[-1])
    assert (top.finish[2].kind, top.finish[2].matched) == (FinishKind.STOP, last)
    assert (top.finish[3].kind, top.finish[3].length) == (FinishKind.LENGTH, LENGTH)


def test_the_end_token_goes_before_stop_text(tokenizer: Tokenizer):
    prompt, output, last = prompt_whose_last_token_is_new(tokenizer)
    top = BenchTop(tokenizer=tokenizer, eos_ids={output[-1]})
    top.add(1, prompt, LENGTH, stop=(last,))
    top.run()
    assert top.finish[1].matched == output[-1]


@pytest.mark.parametrize(("no_stop_trim", "kept"), [(False, LENGTH - 2), (True, LENGTH)])
def test_stop_text_over_two_tokens_is_cut_at_its_start_or_kept(tokenizer: Tokenizer, no_stop_trim: bool, kept: int):
    prompt, output, _ = prompt_whose_last_token_is_new(tokenizer)
    text = tokenizer.decode(output)
    assert len(text) == LENGTH  # one character a token
    top = BenchTop(tokenizer=tokenizer)
    top.add(1, prompt, LENGTH + 5, stop=(text[-2:],), no_stop_trim=no_stop_trim)
    top.run()
    assert top.tokens[1] == output and top.finish[1].cut == kept


def test_a_stop_pattern_ends_the_request_and_is_named(tokenizer: Tokenizer):
    prompt, output, last = prompt_whose_last_token_is_new(tokenizer)
    pattern = f"[{last}]"
    top = BenchTop(tokenizer=tokenizer)
    top.add(1, prompt, LENGTH + 5, stop_regex=(pattern,))
    top.run()
    assert top.tokens[1] == output and top.finish[1].matched == pattern


@pytest.mark.parametrize("pattern", [r"\S$", r"^.{3}\Z", r"\w\b", r"(?m)^.+$", r"\B\W", r"\A.+\b."])
def test_a_pattern_with_anchors_stops_at_the_first_token_after_which_re_finds_it(tokenizer: Tokenizer, pattern: str):
    top = BenchTop(tokenizer=tokenizer)
    for seed in range(20):
        top.add(seed, prompt_of(seed), 8, stop_regex=(pattern,))
    top.run()
    stopped = 0
    for seed in range(20):
        decoder = TextDecoder(tokenizer)
        texts = list(accumulate(map(decoder.push, expected_output(prompt_of(seed), 8))))
        end = next((i for i, text in enumerate(texts) if text and re.search(pattern, text)), None)
        assert len(top.tokens[seed]) == (8 if end is None else end + 1)
        assert top.finish[seed].matched == (None if end is None else pattern)
        stopped += end is not None
    assert stopped > 10


def test_each_request_watches_its_own_text(tokenizer: Tokenizer):
    prompt, _, last = prompt_whose_last_token_is_new(tokenizer)
    top = BenchTop(tokenizer=tokenizer)
    top.add(1, prompt, LENGTH + 3, stop=(last,))
    top.add(2, prompt_of(5), 3)
    top.add(3, prompt, LENGTH - 1, stop=(last,))
    top.run()
    assert top.finish[1].matched == last
    assert top.finish[2].kind is FinishKind.LENGTH and top.finish[3].kind is FinishKind.LENGTH


class Reads(list[str]):
    """Pieces of tokens that count how often one is read."""

    num_read = 0

    def __getitem__(self, index: Any) -> Any:
        self.num_read += 1
        return super().__getitem__(index)


class Letters:
    """A tokenizer whose tokens are the bytes of Latin-1."""

    special_ids = frozenset[int]()

    def __init__(self) -> None:
        self.pieces = Reads(map(chr, range(256)))


@pytest.mark.parametrize("asked", [{"stop": ("abcab", "xyx")}, {"stop_regex": ("ab+c$", "x.{3,9}y")}])
def test_tokens_that_are_taken_back_are_read_again_and_no_others(asked: dict[str, Any]):
    draw, letters, params = random.Random(1), Letters(), SamplingParams(**asked)
    text, watch = b"", StopWatch(params, letters, 0, rewinds=True)  # type: ignore[arg-type]
    num_read = 0
    for _ in range(300):
        kept = max(len(text) - draw.randrange(3), 0)
        text = text[:kept] + bytes(draw.choices(b"abcxy z", k=draw.randrange(1, 8)))
        assert watch.rewind(kept)
        found = [watch.push(token) for token in text[kept:]]
        fresh = StopWatch(params, Letters(), 0)  # type: ignore[arg-type]
        assert found == [fresh.push(token) for token in text][kept:]
        num_read += len(found)
        if found[-1] is not None:
            text = text[:-2]
            assert watch.rewind(len(text))
    assert letters.pieces.num_read == num_read > 1000
    assert not watch.rewind(0)
