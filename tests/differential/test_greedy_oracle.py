"""float32 greedy output equals transformers token for token, however the runtime cuts, shares, retracts or batches."""

import asyncio
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from samples import sampled, slow

sys.path.insert(0, str(Path(__file__).resolve().parent))
from oracle import Oracle

from ramet.runtime.llm import LLM

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
from tiny_model import make_tiny

NUM_NEW = 14
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
SHAPES: dict[str, dict[str, Any]] = {
    "mha-tied": {"hidden": 64, "layers": 2, "heads": 4, "kv_heads": 4, "tied": True},
    "gqa-untied-llama3": {"hidden": 96, "layers": 3, "heads": 6, "kv_heads": 2, "tied": False, "rope_scaling": LLAMA3},
    "mqa-wide": {"hidden": 128, "layers": 2, "heads": 4, "kv_heads": 1, "intermediate": 96, "tied": True, "seed": 5},
}


class Case:
    """One checkpoint, its oracle, and 33 prompts of mixed lengths, every third sharing a prefix with another."""

    def __init__(self, folder: Path, shape: dict[str, Any]) -> None:
        self.folder = make_tiny(folder, vocab=512, context=512, **shape)
        self.oracle = Oracle.load(self.folder)
        rng = np.random.default_rng(1)
        lengths = [1, 2, 15, 16, 17, 31, 32, 33, 47, 48, 49, *rng.integers(1, 60, 22).tolist()]
        self.prompts = [rng.integers(0, 512, n).tolist() for n in lengths]
        for i in range(2, len(self.prompts), 3):
            self.prompts[i] = self.prompts[i - 2][:40] + self.prompts[i]
        self.expected = [self.oracle.greedy(prompt, NUM_NEW) for prompt in self.prompts]

    def llm(self, **options: Any) -> LLM:
        return LLM(
            model_path=str(self.folder),
            dtype="float32",
            check_invariants=True,
            random_seed=0,
            **{"max_total_tokens": 8192, **options},
        )

    def check(self, llm: LLM, which: range) -> None:
        outputs = greedy(llm, [self.prompts[i] for i in which], NUM_NEW)
        for i, output in zip(which, outputs, strict=True):
            self.oracle.check(self.prompts[i], output, self.expected[i], lambda p, n: greedy(llm, [p], n)[0])


def greedy(llm: LLM, prompts: list[list[int]], num_new: int) -> list[list[int]]:
    replies = llm.generate(prompts, {"temperature": 0, "max_new_tokens": num_new, "ignore_eos": True})
    return [reply["output_ids"] for reply in replies]


@pytest.fixture(scope="module", params=SHAPES, ids=list(SHAPES))
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp(request.param), SHAPES[request.param])


@pytest.fixture(scope="module", autouse=True)
def few_ties(case: Case) -> Any:
    """Over all checks of a checkpoint, under 0.1 % of the positions may be ties that fell the other way."""
    yield
    assert case.oracle.positions > 1000 and case.oracle.ties < 0.001 * case.oracle.positions


GRID = product(["reference", "cpu"], [1, 16, 64], [1, 7, 64], [False, True])


@pytest.mark.parametrize(("backend", "page_size", "chunk", "cache_off"), sampled(GRID, 4, seed=5))
def test_greedy_equals_the_oracle(case: Case, backend: str, page_size: int, chunk: int, cache_off: bool):
    llm = case.llm(
        attention_backend=backend, page_size=page_size, chunked_prefill_size=chunk, disable_radix_cache=cache_off
    )
    case.check(llm, range(33) if chunk > 1 else range(0, 33, 3))
    if not cache_off:
        case.check(llm, range(0, 33, 2))  # now with a warm cache


@pytest.mark.parametrize("size", sampled([1, 2, 3, 8, 32, 33], 3, seed=1))
def test_any_batch_size_gives_the_same_tokens(case: Case, size: int):
    case.check(case.llm(), range(size))


@pytest.mark.parametrize("page_size", [1, 16, slow(64)])
def test_retracted_requests_give_the_same_tokens(case: Case, page_size: int):
    llm = case.llm(max_total_tokens=192, page_size=page_size, schedule_conservativeness=0.01)
    case.check(llm, range(33))
    assert llm.state()["retractions"] > 0


@pytest.mark.parametrize("page_size", [1, 16])
def test_a_list_of_prefixes_gives_the_same_tokens(case: Case, page_size: int):
    llm = case.llm(prefix_cache="list", page_size=page_size, chunked_prefill_size=64)
    for which in (range(33), range(0, 33, 2)):  # the second time from copies
        case.check(llm, which)
    assert llm.state()["cached_tokens"] > 0


def test_gathered_prefixes_give_the_same_tokens(case: Case):
    llm = case.llm(attention_backend="gather", chunked_prefill_size=64)
    for which in (range(33), range(0, 33, 2)):
        case.check(llm, which)
    assert llm.resolved["attention_backend"] == "gather" and llm.state()["cached_tokens"] > 0


def test_aborted_neighbours_do_not_change_the_tokens(case: Case):
    llm = case.llm(chunked_prefill_size=32)
    params = {"temperature": 0, "max_new_tokens": NUM_NEW, "ignore_eos": True}

    async def aborting() -> list[dict[str, Any]]:
        victims = [asyncio.create_task(llm.agenerate(prompt, params)) for prompt in case.prompts[::2]]
        others = asyncio.create_task(llm.agenerate(case.prompts[1::2], params))
        for victim in victims:
            await asyncio.to_thread(llm.state)  # answered between two steps: each ends at another one
            victim.cancel()
        return await others

    outputs = [reply["output_ids"] for reply in asyncio.run(aborting())]
    again = lambda p, n: greedy(llm, [p], n)[0]  # noqa: E731
    for i, output in enumerate(outputs):
        case.oracle.check(case.prompts[1::2][i], output, case.expected[1::2][i], again)
    llm.flush_cache()  # once nothing runs
    assert llm.state()["leased_tokens"] == 0


def test_a_repeated_prompt_reports_its_cached_tokens(case: Case):
    for page_size in (1, 16, 64):
        llm = case.llm(page_size=page_size)
        prompt = case.prompts[2] * 4
        params = {"temperature": 0, "max_new_tokens": 2, "ignore_eos": True}
        first, second = (llm.generate([prompt], params)[0]["meta_info"]["cached_tokens"] for _ in range(2))
        assert (first, second) == (0, page_size * ((len(prompt) - 1) // page_size))
