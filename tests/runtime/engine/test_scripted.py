"""The runner without a model: a pure formula, and no torch."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
from steps import make_batch

from ramet.runtime.engine.batch import Batch
from ramet.runtime.engine.scripted import ScriptedRunner


def batch(seeds: list[int], positions: list[int]) -> Batch:
    rows = list(range(1, len(seeds) + 1))
    plain = make_batch([(r, 0, 1) for r in rows], dict.fromkeys(rows, np.zeros(1)), dict.fromkeys(rows, np.zeros(1)))
    params = replace(plain.sampling.draw_params, seeds=np.array(seeds, np.uint64))
    columns = replace(plain.sampling, draw_params=params, positions=np.array(positions, np.int64))
    return replace(plain, sampling=columns)


def test_a_token_depends_on_seed_and_position_alone() -> None:
    runner = ScriptedRunner(vocab_size=1000, context_length=64, max_total_tokens=64, max_running=4)
    crowd = runner.launch(batch([2**64 - 1, 5, 5, 6], [0, 0, 1, 0])).result().tokens.tolist()
    alone = runner.launch(batch([5], [1])).result().tokens.tolist()
    assert alone == [crowd[2]] and len(set(crowd)) == 4
    assert all(0 <= token < 1000 for token in crowd)


def test_a_script_of_ones_own() -> None:
    runner = ScriptedRunner(10, 64, 64, 4, script=lambda seeds, positions: positions % 10)
    assert runner.launch(batch([1, 1], [3, 14])).result().tokens.tolist() == [3, 4]


def test_a_step_takes_what_it_is_told_to_and_more_for_each_token_of_a_prompt() -> None:
    waits: list[float] = []
    runner = ScriptedRunner(10, 64, 64, 4, step_s=0.5, token_s=0.25, wait=waits.append)
    ids = {row: np.zeros(9) for row in (1, 2)}
    runner.launch(make_batch([(1, 3, 4)], ids, ids))
    runner.launch(make_batch([(1, 4, 5), (2, 0, 9)], ids, ids))
    assert waits == [0.5, 0.5 + 9 * 0.25]
    plain = ScriptedRunner(10, 64, 64, 4, wait=waits.append)
    plain.launch(make_batch([(1, 3, 4)], ids, ids))
    assert len(waits) == 2  # without a pace nothing waits


def test_importing_it_loads_no_torch() -> None:
    code = "import sys, ramet.runtime.engine.scripted; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
