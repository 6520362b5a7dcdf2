"""bench/offline.py compares like with like: one checkpoint that both sides load, the same prompts, the same lengths."""

from argparse import Namespace
from pathlib import Path

import pytest

from ramet.bench.loads import GROWTH, LOADS, SHAPE, Load
from ramet.bench.offline import POOL_TOKENS, _outcome, grow, make_checkpoint, ours, theirs

TINY = SHAPE | {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
                "intermediate_size": 64}  # fmt: skip


def test_both_sides_load_the_checkpoint_and_make_the_asked_tokens(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, TINY)
    prompts = Load("tiny", 3, 4, 5, 6, 1.0, 3).prompts(0)
    llm, generate = ours(tmp_path, None)
    assert generate(prompts, 6) == theirs(tmp_path, llm.resolved["num_threads"])(prompts, 6) == [6, 6, 6]


def test_the_checkpoint_is_the_same_for_the_same_seed(tmp_path: Path) -> None:
    files = []
    for number, seed in enumerate((0, 0, 1)):
        folder = tmp_path / str(number)
        folder.mkdir()
        make_checkpoint(folder, TINY, seed)
        files.append((folder / "model.safetensors").read_bytes())
    assert files[0] == files[1] != files[2]


def test_growth_says_the_lengths_of_each_load(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, TINY)
    options = Namespace(rounds=2, num_threads=1)
    loads = grow(tmp_path, options, [Load("few", 2, 0, 5, 3, 1.0, 2), Load("long", 1, 0, 40, 1, 1.0, 1)])["growth"]
    assert [(each["requests"], each["own"], each["output"]) for each in loads] == [(2, 5, 3), (1, 40, 1)]
    assert all(len(each["seconds"]["ramet"]) == 2 for each in loads)


@pytest.mark.parametrize("load", GROWTH, ids=lambda load: load.name)
def test_the_pool_holds_every_batch_that_grows(load: Load) -> None:
    assert load.requests * (load.shared + load.own + load.output) <= POOL_TOKENS


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.name)
def test_prompts_share_exactly_what_the_load_says(load: Load) -> None:
    prompts = load.prompts(0)
    assert len(prompts) == load.requests and {len(p) for p in prompts} == {load.shared + load.own}
    assert len({tuple(p[: load.shared]) for p in prompts}) == 1
    assert len({tuple(p[load.shared : load.shared + 8]) for p in prompts}) == load.requests
    assert prompts == load.prompts(0) and prompts[0][:8] != load.prompts(1)[0][:8]


def test_the_ratio_is_the_median_over_rounds_of_one_round_each(capsys: pytest.CaptureFixture[str]) -> None:
    seconds = {"ramet": [1.0, 2.0, 10.0], "transformers": [2.0, 6.0, 10.0]}
    result = _outcome(Load("x", 2, 0, 1, 10, 3.0, 2), seconds)
    assert result["ratio"] == 2.0 and result["ramet"] == {"output_tokens_per_s": 10.0, "requests_per_s": 1.0}
    assert "MISSED" in capsys.readouterr().out
