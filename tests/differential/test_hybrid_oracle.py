"""Models whose layers have states equal transformers while memory is short: forks, retractions, evicted snapshots.

Steps that decode are prepared and replayed, planned ahead of their results, and begin from states that were copied.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiled import compiled_kernels

sys.path.insert(0, str(Path(__file__).resolve().parent))
from oracle import Oracle
from tiny_families import VOCABULARY, make_family, make_hybrid_composite

from ramet.runtime.config import make_args
from ramet.runtime.engine.runner import ModelRunner
from ramet.runtime.llm import LLM
from ramet.runtime.scheduler.features import states

NUM_NEW, SHARED = 24, 30


class Case:
    def __init__(self, folder: Path) -> None:
        self.folder, self.oracle = folder, Oracle.load(folder)
        rng = np.random.default_rng(2)
        first = rng.integers(0, VOCABULARY, SHARED).tolist()
        self.prompts = [first + rng.integers(0, VOCABULARY, n).tolist() for n in (3, 11, 20, 1)]
        self.prompts.append(rng.integers(0, VOCABULARY, 9).tolist())
        self.expected = [self.oracle.greedy(prompt, NUM_NEW) for prompt in self.prompts]

    def check(self, llm: LLM) -> list[dict[str, Any]]:
        """Two samples of each, together; what is told of them."""
        params = {"temperature": 0, "max_new_tokens": NUM_NEW, "ignore_eos": True}
        replies = llm.generate(self.prompts, {**params, "n": 2})
        for i, reply in enumerate(replies):
            self.oracle.check(
                self.prompts[i // 2], reply["output_ids"], self.expected[i // 2], self._again(llm, params)
            )
        return [reply["meta_info"] for reply in replies]

    def _again(self, llm: LLM, params: dict[str, Any]) -> Any:
        return lambda p, n: llm.generate([p], {**params, "max_new_tokens": n})[0]["output_ids"]


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(make_family(tmp_path_factory.mktemp("hybrid"), "qwen3.5"))


@pytest.mark.parametrize("overlap", ["on", "off"])
def test_outputs_stay_equal_where_requests_are_retracted_and_snapshots_evicted(
    case: Case, overlap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(states, "INTERVAL", 8)
    options = {"max_total_tokens": 144, "max_running_requests": 6, "max_state_snapshots": 4, "num_threads": 2}
    options |= {"chunked_prefill_size": 16, "schedule_conservativeness": 0.01, "check_invariants": True}
    with LLM(str(case.folder), dtype="float32", overlap=overlap, **options) as llm:  # type: ignore[arg-type]
        told = [*case.check(llm), *case.check(llm)]
    assert sum(each["num_retractions"] for each in told) > 0
    assert any(0 < each["cached_tokens"] < SHARED + 40 for each in told)
    assert case.oracle.ties < 0.01 * case.oracle.positions


def test_decode_steps_are_prepared(case: Case) -> None:
    compiled_kernels()
    args = make_args(model_path=str(case.folder), dtype="float32", max_total_tokens=64, max_running_requests=2)
    runner = ModelRunner(args, lambda *_: None)
    assert runner._graphs is not None and runner._graphs.num_prepared > 0
    assert runner._forward.lists_calls


def test_the_decoder_of_a_qwen_3_5_with_a_vision_tower(tmp_path: Path) -> None:
    case = Case(make_hybrid_composite(tmp_path))
    with LLM(str(case.folder), dtype="float32", max_total_tokens=2048) as llm:
        case.check(llm)
