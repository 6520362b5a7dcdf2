"""A model with latents on a GPU that is none: tokens are those of plain torch, and no access is out of order."""

from pathlib import Path
from typing import Any

import pytest
from grammars import Grammars
from schedules import TOKENIZER
from test_recorded_schedules import ALL_GRAPHS, Bench, grammars, one_thread
from tiny_families import make_family

from ramet.runtime.llm import LLM

__all__ = ["grammars", "one_thread"]
PROMPTS = [[7, 9, 11], [8, 10, 12] * 6]
NUM_NEW = 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dense layer and one of experts, with the tokenizer's vocabulary, over which masks are."""
    sizes = dict(vocab_size=TOKENIZER.vocab_size, num_hidden_layers=2)
    return make_family(tmp_path_factory.mktemp("latents"), "deepseek-v3", **sizes)


@pytest.fixture(scope="module")
def expected(folder: Path) -> list[list[int]]:
    with LLM(str(folder), device="cpu", dtype="float32", attention_backend="reference", log_level="error") as llm:
        asked: dict[str, Any] = {"temperature": 0, "max_new_tokens": NUM_NEW, "ignore_eos": True}
        return [reply["output_ids"] for reply in llm.generate(PROMPTS, asked)]


@pytest.mark.parametrize(
    "way", [ALL_GRAPHS, pytest.param({"disable_cuda_graph": True}, marks=pytest.mark.slow)], ids=str
)
def test_steps_by_the_kernels_give_the_tokens_of_the_reference(
    folder: Path, grammars: Grammars, expected: list[list[int]], way: dict[str, Any]
) -> None:
    bench = Bench(folder, grammars, oracles=False)
    with pytest.MonkeyPatch.context() as monkeypatch, bench.device(monkeypatch) as device:
        top = bench.top("on", dict(total=256, rows=2, context=64), **way)
        before = device.num_replays
        for uid, prompt in enumerate(PROMPTS):
            top.add(uid, prompt, NUM_NEW, temperature=0.0, ignore_eos=True)
        top.run()
        assert [top.tokens[uid] for uid in range(len(PROMPTS))] == expected
        assert (device.num_replays > before + NUM_NEW) == (way is ALL_GRAPHS)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(10))
def test_overlapped_steps_are_ordered_and_give_what_plain_ones_do(folder: Path, grammars: Grammars, seed: int) -> None:
    Bench(folder, grammars, oracles=True).check(seed)
