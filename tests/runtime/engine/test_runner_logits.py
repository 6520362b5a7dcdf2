"""ModelRunner against transformers in float32: prefixes, chunks, mixed batches, every shape of the family."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from steps import make_batch
from tiny_model import make_tiny

from ramet.runtime.config import Args, CacheArgs, ExecArgs, ModelArgs, ScheduleArgs
from ramet.runtime.engine.extras import HiddenRows, SlotUpdate
from ramet.runtime.engine.runner import ModelRunner
from ramet.runtime.errors import ConfigError

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
SHAPES: dict[str, dict[str, Any]] = {
    "gqa-tied": {},
    "mha-untied": {"heads": 4, "kv_heads": 4, "tied": False},
    "mqa-wide-head": {"heads": 4, "kv_heads": 1, "head_dim": 32},
    "llama3": {"rope_scaling": {**LLAMA3, "original_max_position_embeddings": 64}},
    "linear": {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    "biased": {"attention_bias": True, "mlp_bias": True},
    "odd-head": {"hidden": 72, "heads": 3, "kv_heads": 1, "intermediate": 100},
}
PROMPT = np.random.RandomState(3).randint(5, 512, 150)


def start(folder: Path, backend: str = "auto", **cache: Any) -> ModelRunner:
    args = Args(
        model=ModelArgs(model_path=str(folder), context_length=256),
        cache=CacheArgs(max_total_tokens=1024, **cache),
        schedule=ScheduleArgs(max_running_requests=8),
        execute=ExecArgs(attention_backend=backend, num_threads=2),
    )
    return ModelRunner(args, lambda name, seconds: None)


def oracle(folder: Path, prompt: np.ndarray) -> torch.Tensor:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.inference_mode():
        return model(torch.from_numpy(prompt)[None]).logits[0]


def chunked(runner: ModelRunner, prompt: np.ndarray, chunk: int) -> dict[int, torch.Tensor]:
    """Logits after each chunk, by the position of its last token; the slots are scattered."""
    slots = {1: 16 + np.random.RandomState(1).permutation(len(prompt))}
    found = {}
    for at in range(0, len(prompt), chunk):
        end = min(at + chunk, len(prompt))
        logits = runner.forward(make_batch([(1, at, end)], {1: prompt}, slots)).drawn()
        assert logits is not None
        found[end - 1] = logits[0].clone()
    return found


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_equal_transformers_however_chunked(tmp_path: Path, shape: str) -> None:
    folder = make_tiny(tmp_path, seed=1, **SHAPES[shape])
    want = oracle(folder, PROMPT)
    for backend in ("cpu", "reference") if SHAPES[shape].get("hidden") is None else ("auto",):
        runner = start(folder, backend)
        for chunk in (1, 7, 70, 150) if backend == "cpu" else (40,):
            for position, logits in chunked(runner, PROMPT, chunk).items():
                torch.testing.assert_close(logits, want[position], rtol=0, atol=1e-4)


def test_a_cached_prefix_given_by_a_fill_equals_computing_it(tmp_path: Path) -> None:
    folder = make_tiny(tmp_path)
    runner, want = start(folder), oracle(folder, PROMPT)
    slots = 16 + np.arange(300, dtype=np.int32)
    runner.forward(make_batch([(1, 0, 100)], {1: PROMPT}, {1: slots})).drawn()
    own = np.concatenate([slots[:100], slots[200:250]])
    fill = SlotUpdate(row=5, start=0, slots=own[:100].astype(np.int32))
    logits = runner.forward(make_batch([(5, 100, 150)], {5: PROMPT}, {5: own}, slot_updates=(fill,))).drawn()
    assert logits is not None
    torch.testing.assert_close(logits[0], want[149], rtol=0, atol=1e-4)


def test_a_mixed_batch_equals_its_rows_alone(tmp_path: Path) -> None:
    """Decoding rows, a short extend, a long one on a prefix, and a row that does not draw, all in one step."""
    folder = make_tiny(tmp_path)
    runner = start(folder)
    tokens = {row: np.roll(PROMPT, row) for row in (1, 2, 3, 4)}
    slots = {row: 16 + row * 150 + np.arange(150) for row in tokens}
    warm = [(1, 0, 9), (2, 0, 130), (4, 0, 50)]
    assert runner.forward(make_batch(warm, tokens, slots, draws=[])).drawn() is None
    parts = [(1, 9, 10), (2, 130, 131), (3, 0, 6), (4, 50, 150)]
    logits = runner.forward(make_batch(parts, tokens, slots, draws=[0, 1, 3])).drawn()
    assert logits is not None
    for got, (row, position) in zip(logits, [(1, 9), (2, 130), (4, 149)], strict=True):
        torch.testing.assert_close(got, oracle(folder, tokens[row])[position], rtol=0, atol=1e-4)


def test_the_last_layer_feeds_the_tokens_whose_states_are_read(tmp_path: Path) -> None:
    """All of them if hidden states are returned, else those that draw; the logits are the same."""
    runner = start(make_tiny(tmp_path))
    last, fed = runner._forward.model.layers[-1], []
    last.mlp.register_forward_pre_hook(lambda _, inputs: fed.append(len(inputs[0])))
    tokens = {row: np.roll(PROMPT, row) for row in (1, 2, 3)}
    slots = {row: 16 + row * 150 + np.arange(150) for row in tokens}
    batch = make_batch([(1, 0, 1), (2, 0, 60), (3, 0, 90)], tokens, slots, draws=[1, 2])
    few, whole = runner.forward(batch).drawn(), runner.forward(replace(batch, asks=(HiddenRows(1, 3),))).drawn()
    assert few is not None and whole is not None
    torch.testing.assert_close(few, whole, rtol=0, atol=1e-5)
    assert runner.forward(make_batch([(1, 1, 9)], tokens, slots, draws=[])).drawn() is None
    assert fed == [2, 151]


def test_launch_draws_the_best_token_and_reports_phases(tmp_path: Path) -> None:
    folder = make_tiny(tmp_path)
    runner, slots = start(folder), {1: 16 + np.arange(150)}
    result = runner.launch(make_batch([(1, 0, 150)], {1: PROMPT}, slots)).result()
    assert result.tokens.tolist() == [int(oracle(folder, PROMPT)[149].argmax())]
    assert result.broken == () and set(result.phases) == {"forward", "sample"}
    silent = runner.launch(make_batch([(1, 0, 150)], {1: PROMPT}, slots, draws=[])).result()
    assert silent.tokens.tolist() == []


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_stays_near_float32(tmp_path: Path, dtype: str) -> None:
    """Packed weights and the compiled kernels included: nearer to float32 than transformers' own half precision is."""
    from transformers import AutoModelForCausalLM

    folder = make_tiny(tmp_path, tied=False, dtype=dtype)
    want = oracle(folder, PROMPT)
    with torch.inference_mode():
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
        theirs = (model(torch.from_numpy(PROMPT)[None]).logits[0].float() - want).square().mean().sqrt()
    ours = chunked(start(folder), PROMPT, 10)
    errors = torch.stack([logits - want[position] for position, logits in ours.items()]).square().mean().sqrt()
    assert errors < 1.5 * theirs + 1e-6


def test_context_is_bounded_by_option_and_pool(tmp_path: Path) -> None:
    folder = make_tiny(tmp_path, context=2048)
    runner = start(folder)
    facts = runner.facts
    found = facts.context_length, facts.max_total_tokens, facts.max_running_requests, facts.vocab_size
    assert found == (256, 1024, 8, 512)
    small = Args(model=ModelArgs(model_path=str(folder)), cache=CacheArgs(max_total_tokens=100, page_size=16))
    paged = ModelRunner(small, lambda name, seconds: None)
    assert (paged.facts.max_total_tokens, paged.facts.context_length, len(paged.pool.keys[0])) == (96, 96, 112)


def test_dummy_weights_need_the_config_alone(tmp_path: Path) -> None:
    folder = make_tiny(tmp_path)
    (folder / "model.safetensors").unlink()
    args = Args(
        model=ModelArgs(model_path=str(folder), load_format="dummy"),
        cache=CacheArgs(max_total_tokens=256),
        schedule=ScheduleArgs(random_seed=3),
    )
    batch = make_batch([(1, 0, 20)], {1: PROMPT}, {1: 16 + np.arange(20)})
    first, second = (ModelRunner(args, lambda name, seconds: None).forward(batch).drawn() for _ in range(2))
    assert first is not None and second is not None
    assert torch.equal(first, second) and bool(first.isfinite().all()) and first.std() > 0.1


def test_start_up_phases_are_reported_in_order(tmp_path: Path) -> None:
    names: list[str] = []
    args = Args(model=ModelArgs(model_path=str(make_tiny(tmp_path))), cache=CacheArgs(max_total_tokens=64))
    ModelRunner(args, lambda name, seconds: names.append(name))
    assert names == ["kernels", "arithmetic", "weights", "kv pool", "warm-up", "cost of steps"]


def test_cpu_backend_refuses_a_head_size_it_is_not_compiled_for(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--attention-backend is cpu.*head size 24"):
        start(make_tiny(tmp_path, **SHAPES["odd-head"]), "cpu")
