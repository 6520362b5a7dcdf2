"""The model of a step on a card: its sums, and how far it is from what a card was measured to take."""

import json
from pathlib import Path

import pytest

from ramet.bench.gpu import model
from ramet.bench.loads import SHAPE_8B

ROOT = Path(__file__).parents[2]
H200 = model.CARDS[0]


def test_weights_and_keys_of_llama_3_8b() -> None:
    kernels = model.kernels_of(SHAPE_8B, rows=1, context=1000)
    weights = sum(kernel.launches * kernel.once for kernel in kernels if kernel.kind == "product")
    kept = sum(kernel.launches * kernel.once for kernel in kernels if kernel.kind == "attention")
    assert weights == pytest.approx(15.0e9, rel=0.01) and kept == 1000 * 128 * 1024


@pytest.mark.parametrize("sheet", model.CARDS, ids=lambda sheet: str(sheet.name))
@pytest.mark.parametrize("rows", model.BATCHES)
@pytest.mark.parametrize("context", model.CONTEXTS)
def test_a_step_is_its_limit_and_what_is_lost(sheet: model.Sheet, rows: int, context: int) -> None:
    step = model.predict(sheet, SHAPE_8B, rows, context)
    assert step.seconds == pytest.approx(step.limit + sum(step.lost.values()))
    assert 0.5 < step.share < 1 and all(lost >= -1e-12 for lost in step.lost.values())
    more = model.predict(sheet, SHAPE_8B, 2 * rows, context)
    assert step.seconds < more.seconds < 2.1 * step.seconds


def test_a_shared_prefix_is_read_once() -> None:
    of = {"rows": model.SHARERS, "context": 8192 + 352}
    alone, shared = (model.predict(H200, SHAPE_8B, **of, shared=num) for num in (0, 8192))
    assert 5 < alone.seconds / shared.seconds < 9
    kept = [kernel for kernel in model.kernels_of(SHAPE_8B, **of, shared=8192) if kernel.kind == "attention"]
    assert sum(kernel.launches * kernel.once for kernel in kept) == (8192 + 352 * model.SHARERS) * 128 * 1024
    assert len(list(model.shared_table(SHAPE_8B))) > 3


def test_what_does_not_fit_is_not_in_the_table() -> None:
    assert model.fits(H200, SHAPE_8B, 256, 1024) and not model.fits(model.CARDS[3], SHAPE_8B, 256, 1024)
    shown = list(model.table(SHAPE_8B, (1, 256), (1024,)))
    assert sum("256 x 1024" in line for line in shown) < sum("| 1 x 1024" in line for line in shown) == len(model.CARDS)


def test_the_h200_took_no_less_and_not_much_more_than_predicted() -> None:
    lines = [json.loads(line) for line in (ROOT / "bench/results/gpu.jsonl").read_text().splitlines()]
    (steps, *_) = [line["steps"] for line in reversed(lines) if "steps" in line and "H200" in line["card"]["name"]]
    for rows in (1, 8, 32, 64, 128, 256):
        predicted = model.predict(H200, SHAPE_8B, rows, model.MEASURED_CONTEXT).seconds * 1e3
        assert predicted < steps[f"decode {rows} x {model.PROMPT}"]["ms"] < 1.25 * predicted
