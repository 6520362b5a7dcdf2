"""Steps with prompts are listed, then run: the same numbers as call by call, which a model that calls torch gets."""

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from compiled import compiled_kernels
from steps import make_batch
from tiny_families import make_family
from tiny_model import make_tiny

from ramet.runtime.config import Args, CacheArgs, ExecArgs, ModelArgs, ScheduleArgs
from ramet.runtime.engine.extras import HiddenRows
from ramet.runtime.engine.runner import ModelRunner
from ramet.runtime.models.decoder import DecoderLayer

TOKENS = {row: np.random.RandomState(row).randint(5, 250, 200) for row in range(1, 9)}
SLOTS = {row: 200 * row + np.arange(200) for row in TOKENS}


def start(folder: Path, **execute: bool) -> ModelRunner:
    compiled_kernels()
    args = Args(
        model=ModelArgs(model_path=str(folder), context_length=256),
        cache=CacheArgs(max_total_tokens=4096),
        schedule=ScheduleArgs(max_running_requests=8),
        execute=ExecArgs(num_threads=2, **execute),
    )
    return ModelRunner(args, lambda name, seconds: None)


@pytest.mark.parametrize("family", ["llama", "gemma2", "gemma3", "qwen3"])
def test_prompts_have_the_same_logits_listed_first_as_call_by_call(family: str, tmp_path: Path) -> None:
    folder = make_tiny(tmp_path) if family == "llama" else make_family(tmp_path, family)
    runners = start(folder), start(folder, disable_cuda_graph=True)
    assert [runner._forward.lists_calls for runner in runners] == [True, False]
    steps = (
        make_batch([(1, 0, 100), (2, 0, 3)], TOKENS, SLOTS),
        make_batch([(3, 0, 150)], TOKENS, SLOTS, draws=[]),  # a prompt's first part: nothing is drawn
        make_batch([(1, 100, 101), (2, 3, 4), (3, 150, 190), (4, 0, 64)], TOKENS, SLOTS, draws=[0, 1, 3]),
        make_batch([(3, 190, 191), (4, 64, 70)], TOKENS, SLOTS),
    )
    for batch in steps:
        listed, called = (runner.forward(batch).drawn() for runner in runners)
        assert (listed is None) == (called is None) == (not len(batch.draws))
        assert listed is None or called is None or torch.equal(listed, called)


def test_the_last_layer_gives_rows_that_draw_what_it_gives_all(tmp_path: Path) -> None:
    folder = make_tiny(tmp_path)
    runners = start(folder), start(folder)
    for parts in ([(1, 0, 100), (2, 0, 3)], [(1, 100, 101), (2, 3, 40)]):
        batch = make_batch(parts, TOKENS, SLOTS)
        whole = replace(batch, asks=(HiddenRows(0, 1, summed=False),))
        few, all_rows = runners[0].forward(batch), runners[1].forward(whole)
        assert (len(few.x), len(all_rows.x)) == (2, sum(batch.num_new))
        of_few, of_all = few.drawn(), all_rows.drawn()
        assert of_few is not None and of_all is not None
        torch.testing.assert_close(of_few, of_all, atol=1e-5, rtol=1e-5)


def test_a_forward_pass_that_calls_torch_is_computed_call_by_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    feed = DecoderLayer.feed
    monkeypatch.setattr(DecoderLayer, "feed", lambda layer, *of: feed(layer, *of) * 2)
    with caplog.at_level(logging.INFO, "ramet"):
        runner = start(make_tiny(tmp_path))
    assert "call by call: the model's forward pass calls aten::mul" in caplog.text
    batch = make_batch([(1, 0, 100)], TOKENS, SLOTS)
    doubled = runner.forward(batch).drawn()
    plain = start(tmp_path, disable_cuda_graph=True).forward(batch).drawn()
    assert doubled is not None and plain is not None and torch.equal(doubled, plain)
