"""Runs the logit processors of a step, each over all the rows that ask for it.

Decides that one request's processor harms no other: when a call fails, its rows are tried one by one, and those that
fail again end with an error of their own. Keeps what processors remember of each sequence until it has ended.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ramet.runtime.errors import describe
from ramet.runtime.log import LOGGER
from ramet.runtime.sampling.columns import REQUEST, ProcessorRow, ProcessorRows, RequestView
from ramet.runtime.sampling.processors import LogitProcessor


class RowFailure(NamedTuple):
    """Why a row cannot go on. `status` is 400 where other parameters would help, 500 where the processor failed."""

    message: str
    status: int


Failures = dict[int, RowFailure]  # by row
Memories = dict[int, dict[str, Any]]  # uid -> what its processor remembers


def process(
    logits: Tensor,
    groups: tuple[ProcessorRows, ...],
    processors: Mapping[str, LogitProcessor],
    memories: Memories,
) -> Failures:
    """WRITES logits [Q, V] float32 in the rows of the groups, and `memories`."""
    failures: Failures = {}
    for group in groups:
        call, rows = processors[group.name], torch.tensor([each.row for each in group.rows], device=logits.device)
        before = {each.uid: memories.setdefault(each.uid, {}).copy() for each in group.rows}
        try:
            logits[rows] = _checked(call, logits[rows], [_params(each, memories) for each in group.rows])
        except BaseException:  # noqa: BLE001 - others' code raises anything; logged, and tried again row by row
            LOGGER.exception("logit processor %s failed on %d rows; trying them one by one", group.name, len(rows))
            memories |= before
            failures |= _one_by_one(call, logits, group, memories)
        best = logits[rows].max(dim=-1).values
        for row in rows[~torch.isfinite(best)].tolist():
            message = f"logit processor {group.name} left no token that can be drawn"
            failures.setdefault(row, RowFailure(message, 400))
    return failures


def nothing_left(logits: Tensor, broken: Iterable[int]) -> Failures:
    """Of the rows that cannot draw, those in which every token is forbidden. logits [Q, V] as they were drawn from."""
    message = "no token is left that can be drawn: min_new_tokens, the logit processor and the constraint forbid them"
    return {row: RowFailure(message, 400) for row in broken if bool((logits[row] == -torch.inf).all())}


def _params(asked: ProcessorRow, memories: Memories) -> dict[str, Any]:
    """The ids are copied: what a processor writes to them must not reach the step's own."""
    view = RequestView(asked.prompt_ids.copy(), asked.output_ids.copy(), memories[asked.uid])
    return {**asked.params, REQUEST: view}


def _one_by_one(call: LogitProcessor, logits: Tensor, group: ProcessorRows, memories: Memories) -> Failures:
    failures: Failures = {}
    for asked in group.rows:
        row = asked.row
        try:
            logits[row : row + 1] = _checked(call, logits[row : row + 1].clone(), [_params(asked, memories)])
        except BaseException as error:  # noqa: BLE001 - logged above; the error ends its request
            failures[row] = RowFailure(
                f"logit processor {group.name} failed: {type(error).__name__}: {describe(error)}", 500
            )
    return failures


def _checked(call: LogitProcessor, logits: Tensor, custom_params: list[dict[str, Any]]) -> Tensor:
    """What the processor returns, if it is logits of the same shape, type and device."""
    done = call(logits, custom_params)
    if not isinstance(done, Tensor) or done.shape != logits.shape:
        shape = tuple(done.shape) if isinstance(done, Tensor) else type(done).__name__
        raise ValueError(f"it returned {shape}, must return logits of shape {tuple(logits.shape)}")
    if not done.is_floating_point() or done.device != logits.device:
        raise ValueError(f"it returned {done.dtype} on {done.device}, must return floating logits on {logits.device}")
    return done.to(logits.dtype)
