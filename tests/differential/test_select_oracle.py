"""select scores each choice as transformers does that runs prompt and choice whole, one by one.

Prompts share beginnings and end inside words; choices overlap, begin with each other, merge with the prompt's end, and
have many tokens. With and without a cache, in both loops.
"""

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_model import make_tiny

from ramet.runtime.llm import LLM

CASES = 200
NEAR = 1e-4
ENDS, OPENING = [1, 3], [1]  # tokens that end an output of this model, and what stands before a text without a prompt
METHODS = (
    "token_length_normalized",
    "greedy_token_selection",
    "unconditional_likelihood_normalized",
    "exact_sequence",
)
BEGINNINGS = (
    "The answer is",
    "The answer is that ",
    '{"name": "',
    "Été, naïve, 東",
    "def fo",
    "Москва 😀.\n",
    "<|im_start|>user\nth",
)
PIECES = (
    " the", " th", "e", "at", " that", " is", "and", " an", "or", " 42", "7", ", ", '"', '": "', "}", "\n", ".", " ",
    "京", "é", "😀", "осква", "naïve", "return", " chou", "tr", "<|im_end|>", "  ", "(", "true",
)  # fmt: skip
WORDS = (" that", " which", " return", "true", '": "', "осква", "naïve", " from", "\n    return", " was", "the")
Ids = list[int]


@dataclass(frozen=True)
class Case:
    prompt: str
    choices: list[str]
    method: str
    healed: bool

    @property
    def body(self) -> dict[str, Any]:
        # in segments: where a text is cut into them changes nothing
        half = len(self.prompt) // 2
        prompt = [self.prompt[:half], self.prompt[half:]]
        return {"prompt": prompt, "choices": self.choices, "method": self.method, "token_healing": self.healed}


def drawn(seed: int) -> Case:
    draw = random.Random(seed)

    def text(most: int) -> str:
        return "".join(draw.choices(PIECES, k=draw.randint(1, most)))

    prompt = draw.choice((*BEGINNINGS, "", "")) + (text(4) if draw.random() < 0.4 else "")
    choices = [text(6)]
    if draw.random() < 0.6:  # a word that begins in the prompt
        word = draw.choice(WORDS)
        cut = draw.randint(1, len(word) - 1)
        prompt, choices = prompt + word[:cut], [word[cut:] + text(2)]
    prompt = prompt or draw.choice("ath(")
    while len(choices) < draw.randint(2, 7):
        known = draw.choice(choices)
        choices.append(draw.choice((known + text(3), known[: draw.randint(1, len(known))], text(6), text(1), known)))
    return Case(prompt, choices, METHODS[seed % len(METHODS)], draw.random() < 0.75)


def num_shared(each: list[Ids]) -> int:
    """How many tokens all of them begin with."""
    return next((i for i, column in enumerate(zip(*each)) if len(set(column)) > 1), min(map(len, each)))


class Oracle:
    """Nothing of it is shared with the code under test: tokenizer and model are transformers'."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self._expected: dict[Case, Expected] = {}

    def ids(self, text: str) -> Ids:
        found: Ids = self._tokenizer(text)["input_ids"]
        return found

    @torch.inference_mode()
    def rows(self, ids: Ids) -> torch.Tensor:
        """[i] is the distribution of the token behind ids[: i + 1]."""
        return torch.log_softmax(self._model(torch.tensor([ids])).logits[0].double(), dim=-1)

    def logprobs(self, before: Ids, choice: Ids) -> list[float]:
        rows = self.rows(before + choice)
        return [float(rows[len(before) + i - 1, token]) for i, token in enumerate(choice)]

    def end(self, before: Ids, choice: Ids) -> float:
        return float(torch.logsumexp(self.rows(before + choice)[-1, ENDS], 0))

    def tokens(self, case: Case) -> tuple[Ids, list[Ids]]:
        """What stands before every choice, and the tokens of each, by the definition."""
        prompt, whole = self.ids(case.prompt), joined(self, case)
        shared = num_shared([prompt, *whole])
        if case.healed and shared:
            return prompt[:shared], [ids[shared:] for ids in whole]
        return prompt, [self.ids(choice) for choice in case.choices]


class Expected:
    def __init__(self, oracle: Oracle, case: Case) -> None:
        self.before, self.each = oracle.tokens(case)
        self.logprobs = [oracle.logprobs(self.before, ids) for ids in self.each]
        self.sums = [sum(values) for values in self.logprobs]
        self.ends = [oracle.end(self.before, ids) for ids in self.each]
        self.bare = [sum(oracle.logprobs(OPENING, ids)) for ids in self.each]
        self._method = case.method

    @cached_property
    def scores(self) -> list[float]:
        means = [total / len(ids) for total, ids in zip(self.sums, self.each, strict=True)]
        match self._method:
            case "token_length_normalized":
                return means
            case "unconditional_likelihood_normalized":
                return [mean - bare / len(ids) for mean, bare, ids in zip(means, self.bare, self.each, strict=True)]
            case "exact_sequence":
                return [total + end for total, end in zip(self.sums, self.ends, strict=True)]
        steps, left, depth = [0.0] * len(means), list(range(len(means))), 0
        while len({tuple(self.each[i]) for i in left}) > 1:
            worth = {i: (self.logprobs[i] + [means[i]])[depth] for i in left}
            best = max(left, key=lambda i: worth[i])
            self.close = [i for i in left if 0 < worth[best] - worth[i] < NEAR]
            left = [i for i in left if self.each[i][depth : depth + 1] == self.each[best][depth : depth + 1]]
            for i in left:
                steps[i] += 1
            depth += 1
        return steps


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("select"), hidden=96, heads=6, kv_heads=2, vocab=512, context=256)


@pytest.fixture(scope="module")
def oracle(folder: Path) -> Oracle:
    return Oracle(folder)


@pytest.fixture(scope="module")
def expected(oracle: Oracle) -> list[Expected]:
    return [Expected(oracle, drawn(seed)) for seed in range(CASES)]


SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {"overlap": "off"},
    "plain, no cache": {"overlap": "off", "disable_radix_cache": True},
    "overlapped, pages of 16": {"overlap": "on", "page_size": 16},
    "overlapped, no cache": {"overlap": "on", "disable_radix_cache": True},
}


@pytest.fixture(scope="module", params=SETTINGS)
def llm(request: pytest.FixtureRequest, folder: Path) -> Iterator[LLM]:
    options = {"dtype": "float32", "check_invariants": True, "max_total_tokens": 4096}
    with LLM(str(folder), **options, **SETTINGS[request.param]) as made:
        yield made


def check(reply: dict[str, Any], case: Case, expected: Expected) -> None:
    infos = reply["meta_info"]["choices"]
    assert [info["text"] for info in infos] == case.choices
    for i, info in enumerate(infos):
        told = info["token_logprobs"]
        assert [token for _, token, _ in told] == expected.each[i]
        assert info["num_tokens"] == len(told)
        assert [value for value, _, _ in told] == pytest.approx(expected.logprobs[i], abs=NEAR)
        assert info["logprob"] == pytest.approx(expected.sums[i], abs=NEAR * len(told))
        if case.method == "exact_sequence":
            assert info["end_logprob"] == pytest.approx(expected.ends[i], abs=NEAR)
        if case.method == "unconditional_likelihood_normalized":
            assert info["unconditional_logprob"] == pytest.approx(expected.bare[i], abs=NEAR * len(told))
    assert reply["probabilities"] == pytest.approx(
        torch.softmax(torch.tensor(expected.sums, dtype=torch.float64), 0).tolist(), abs=NEAR * 10
    )
    near = NEAR * max(map(len, expected.each))
    assert reply["scores"] == pytest.approx(expected.scores, abs=near)
    best = max(expected.scores)
    candidates = [i for i, score in enumerate(expected.scores) if score > best - near]
    assert reply["index"] in candidates and reply["choice"] == case.choices[reply["index"]]
    if case.choices.count(reply["choice"]) > 1:
        assert reply["index"] == case.choices.index(reply["choice"])


def test_every_choice_of_every_case_is_scored_as_the_oracle_scores_it(llm: LLM, expected: list[Expected]) -> None:
    for seed, wanted in enumerate(expected):
        case = drawn(seed)
        check(llm.language.wait(llm.language.select(case.body)), case, wanted)


def test_calls_that_run_at_once_are_scored_as_those_that_run_alone(llm: LLM, expected: list[Expected]) -> None:
    async def ask() -> list[dict[str, Any]]:
        return await asyncio.gather(*(llm.language.select(drawn(seed).body) for seed in range(60)))

    for seed, reply in enumerate(asyncio.run(ask())):
        check(reply, drawn(seed), expected[seed])


def test_the_cases_are_those_that_are_hard(expected: list[Expected], oracle: Oracle) -> None:
    """Each kind is met often: of prompts whose last token is another one before a choice, and of choices."""
    cases = [drawn(seed) for seed in range(CASES)]
    healed = [len(wanted.before) < len(oracle.ids(case.prompt)) for case, wanted in zip(cases, expected, strict=True)]
    unhealed = [case.healed and wanted.before == oracle.ids(case.prompt) for case, wanted in zip(cases, expected)]
    prefixes = [any(a != b and b[: len(a)] == a for a in wanted.each for b in wanted.each) for wanted in expected]
    long = [max(map(len, wanted.each)) > 8 for wanted in expected]
    unicode = [any(not choice.isascii() for choice in case.choices) for case in cases]
    assert [sum(kind) > 35 for kind in (healed, unhealed, prefixes, long, unicode)] == [True] * 5
    alone = [case.healed and num_shared([oracle.ids(case.prompt), *joined(oracle, case)]) == 0 for case in cases]
    assert any(alone)  # nothing is shared, so that nothing is healed


def joined(oracle: Oracle, case: Case) -> list[Ids]:
    return [oracle.ids(case.prompt + choice) for choice in case.choices]


def test_what_choices_share_is_computed_once(folder: Path) -> None:
    """With a warm cache each token of the choices' trie is computed once, and before each leaf one token more."""
    with LLM(str(folder), dtype="float32", max_total_tokens=4096, overlap="off") as llm:
        prompt = "The answer is that the sum of all of them and of each is"
        choices = [" the one", " the one and only", " the one and other", " none"]
        body = {"prompt": [prompt], "choices": choices, "token_healing": False}
        first = llm.language.wait(llm.language.select(body))["meta_info"]
        before = llm.state()["prefill_tokens"]
        again = llm.language.wait(llm.language.select(body))["meta_info"]
        num = first["prompt_tokens"]
        assert num == again["prompt_tokens"] == len(llm.tokenize(prompt))
        assert (first["cached_tokens"], again["cached_tokens"]) == (0, num - 1)
        paths = [tuple(token for _, token, _ in info["token_logprobs"]) for info in again["choices"]]
        nodes = {path[:i] for path in paths for i in range(1, len(path) + 1)}
        assert len(nodes) < sum(map(len, paths))
        assert llm.state()["prefill_tokens"] - before == len(nodes) + 3


def test_a_draw_follows_seed_and_temperature(folder: Path) -> None:
    with LLM(str(folder), dtype="float32", max_total_tokens=4096) as llm:
        body = {"prompt": ["The answer is"], "choices": [" the", " and", " 42"]}
        greedy = llm.language.wait(llm.language.select(body | {"method": "exact_sequence"}))

        def drawn_at(temperature: float, seed: int) -> int:
            asked = body | {"temperature": temperature, "sampling_seed": seed}
            index: int = llm.language.wait(llm.language.select(asked))["index"]
            return index

        likeliest = max(range(3), key=greedy["probabilities"].__getitem__)
        assert {drawn_at(1e-9, seed) for seed in range(5)} == {likeliest}
        assert {drawn_at(1e6, seed) for seed in range(12)} == {0, 1, 2}
        assert [drawn_at(1.0, seed) for seed in range(5)] == [drawn_at(1.0, seed) for seed in range(5)]
