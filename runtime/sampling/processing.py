"""Runs the logit processors of a step, each over all the rows that ask for it.

Decides that one request's processor harms no other: when a call fails, its rows are tried one by one, and those that
fail again end with an error of their own. Knows no request.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ramet.runtime.log import LOGGER
from ramet.runtime.sampling.columns import ProcessorRows
from ramet.runtime.sampling.processors import LogitProcessor

Failures = dict[int, str]  # row -> why it cannot go on


def process(logits: Tensor, groups: tuple[ProcessorRows, ...], processors: Mapping[str, LogitProcessor]) -> Failures:
    """WRITES logits [Q, V] float32 in the rows of the groups."""
    failures: Failures = {}
    for group in groups:
        processor, rows = processors[group.name], torch.from_numpy(group.rows).long().to(logits.device)
        try:
            logits[rows] = _call(processor, logits[rows], group.params)
        except Exception:  # noqa: BLE001 - logged, and tried again row by row
            LOGGER.exception("logit processor %s failed on %d rows; trying them one by one", group.name, len(rows))
            failures |= _one_by_one(processor, logits, group)
        best = logits[rows].max(dim=-1).values
        for row in rows[~torch.isfinite(best)].tolist():
            failures.setdefault(row, f"logit processor {group.name} left no token that can be drawn")
    return failures


def _one_by_one(processor: LogitProcessor, logits: Tensor, group: ProcessorRows) -> Failures:
    failures: Failures = {}
    for row, params in zip(group.rows.tolist(), group.params, strict=True):
        try:
            logits[row : row + 1] = _call(processor, logits[row : row + 1].clone(), [params])
        except Exception as error:  # noqa: BLE001 - logged above, and the one who asked is told
            failures[row] = f"logit processor {group.name} failed: {type(error).__name__}: {error}"
    return failures


def _call(processor: LogitProcessor, logits: Tensor, params: list[dict[str, Any]]) -> Tensor:
    done = processor(logits, params)
    if not isinstance(done, Tensor) or done.shape != logits.shape:
        shape = tuple(done.shape) if isinstance(done, Tensor) else type(done).__name__
        raise ValueError(f"it returned {shape}, must return logits of shape {tuple(logits.shape)}")
    return done
