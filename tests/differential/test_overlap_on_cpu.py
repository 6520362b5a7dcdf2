"""On a real model, steps that are planned ahead give the replies of steps one by one, field for field (float32)."""

import ctypes
import random
from collections.abc import Iterator
from typing import Any

import pytest

from ramet.kernels.cpu.build import load_library
from ramet.runtime.config import BUNDLED_MODEL
from ramet.runtime.llm import LLM
from ramet.runtime.text.tokenizer import Tokenizer

OPTIONS: dict[str, Any] = {
    "dtype": "float32",
    "num_threads": 2,  # so that prepared steps run beside the scheduler
    "check_invariants": True,
    "random_seed": 3,
    "chunked_prefill_size": 24,
    "enable_custom_logit_processor": True,
}
WHEN = ("id", "e2e_latency", "cached_tokens", "num_retractions")  # what depends on when a request ran


@pytest.fixture(scope="module", params=[4096, 160], ids=["room", "memory runs out"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[LLM, LLM]]:
    options = {**OPTIONS, "max_total_tokens": request.param, "schedule_conservativeness": 0.01}
    with LLM(overlap="off", **options) as plain, LLM(overlap="on", **options) as overlapped:
        yield plain, overlapped


def make_params(draw: random.Random) -> dict[str, Any]:
    params: dict[str, Any] = {"max_new_tokens": draw.choice([0, 1, 9, 30]), "temperature": 0}
    for given in (
        {"temperature": 0.8, "sampling_seed": draw.randrange(99), "top_k": 20},
        {"frequency_penalty": 0.7, "repetition_penalty": 1.3},
        {"stop": [" the", "."]},
        {"stop_regex": ["[aeiou]s "]},
        {"n": 2},
        {"ignore_eos": True},
        {"logit_bias": {"40": 4.0}},
    ):
        if draw.random() < 0.35:
            params |= given
    return params


def seen(reply: dict[str, Any]) -> dict[str, Any]:
    return {**reply, "meta_info": {k: v for k, v in reply["meta_info"].items() if k not in WHEN}}


def check_same(a: Any, b: Any, at: str = "") -> None:
    """Equal but for numbers that other batches round differently."""
    assert type(a) is type(b), (at, a, b)
    if isinstance(a, dict):
        assert a.keys() == b.keys(), at
        for name in a:
            check_same(a[name], b[name], f"{at}.{name}")
    elif isinstance(a, list | tuple):
        assert len(a) == len(b), at
        for i, (one, other) in enumerate(zip(a, b)):
            check_same(one, other, f"{at}[{i}]")
    elif isinstance(a, float):
        assert a == pytest.approx(b, abs=1e-4), at
    else:
        assert a == b, at


@pytest.mark.parametrize(
    "extras",
    [
        {},
        {"return_logprob": True, "logprob_start_len": 2, "top_logprobs_num": 2},
        {"return_hidden_states": True},
        {"return_hidden_states": "last"},
        {"custom_logit_processor": "no_repeat_ngram"},
    ],
    ids=lambda extras: next(iter(extras), "plain"),
)
def test_the_replies_are_the_same(pair: tuple[LLM, LLM], extras: dict[str, Any]):
    draw = random.Random(len(extras))
    tokenizer = Tokenizer.from_folder(BUNDLED_MODEL)
    text = "The capital of France is Paris, and the sea is a long way from the old house on the hill."
    words = text.split()
    prompts = [tokenizer.encode(" ".join(draw.choices(words, k=draw.randint(1, 30)))) for _ in range(14)]
    params = [make_params(draw) for _ in prompts]
    if "custom_logit_processor" in extras:
        params = [{**each, "custom_params": {"ngram_size": 2}} for each in params]
    plain, overlapped = (list(map(seen, llm.generate(prompts, params, **extras))) for llm in pair)
    check_same(plain, overlapped)
    assert any(reply["meta_info"]["finish_reason"]["type"] == "stop" for reply in plain)


def test_kernels_release_the_interpreter_lock():
    """PyDLL would keep it: nothing else of the process could then go on while the scheduler works on a step."""
    assert isinstance(load_library(), ctypes.CDLL) and not isinstance(load_library(), ctypes.PyDLL)
