"""Log-probabilities of prompts, asked of the step that computes what comes right before a token, and of draws."""

from dataclasses import dataclass, replace

import numpy as np

from ramet.ipc.message import Uid
from ramet.ipc.messages import Logprobs
from ramet.runtime.arrays import Ints
from ramet.runtime.engine.extras import PromptLogprobs
from ramet.runtime.sampling.columns import LogprobRow, PlaceLogprobs, SamplingColumns
from ramet.runtime.scheduler.drawing import DrawingRows
from ramet.runtime.scheduler.features.media import ids_of
from ramet.runtime.scheduler.features.returned import ReturnedLogprobs
from ramet.runtime.scheduler.row_flag import RowFlag
from ramet.runtime.scheduler.rows import RunningRequest
from ramet.runtime.scheduler.step import StepBuilder, TokenSpan

UNKNOWN = np.array([np.nan], dtype=np.float32).tobytes()  # the log-probability of a prompt's first token


@dataclass(frozen=True, slots=True)
class PromptSpan(TokenSpan):
    """Tokens of a prompt whose log-probabilities are returned."""


def packed(uid: Uid, of_prompt: bool, ids: Ints, values: PlaceLogprobs) -> Logprobs:
    """The message that returns them. ids [n]: the tokens that they are of"""
    return Logprobs(
        uid,
        of_prompt,
        ids.tobytes(),
        values.values.tobytes(),
        values.top_ids.tobytes(),
        values.top_values.tobytes(),
        values.chosen.tobytes(),
    )


def plan(step: StepBuilder) -> None:
    for index, first, running in step.prompts():
        request = running.request
        asked, own = request.spec.logprobs, request.own.get(ReturnedLogprobs)
        if asked is None or own is None or own.planned is None:
            continue
        start = own.planned
        stop = min(int(step.ends[index]) + 1, request.prompt_len)
        if start < stop:
            assert start > running.scheduled, (request.uid, start, running.scheduled)
            ids, targets = np.array(asked.ids, dtype=np.int32), ids_of(request, start, stop).copy()
            ask = PromptLogprobs(first + start - 1 - running.scheduled, targets, asked.num_top, ids)
            step.ask(PromptSpan(index, start, stop), ask)
            own.planned = stop if stop < request.prompt_len else None


def add_rows(columns: SamplingColumns, draws: DrawingRows) -> SamplingColumns:
    """What clients ask of drawn tokens; while a prompt is healed, also tokens that may turn out to be the output's."""
    inner = {each.row: each.inner for each in columns.healed}
    asked = [logprob_row(i, running) for i, running in draws.with_flag(RowFlag.LOGPROBS)]
    rows = (replace(row, ids=np.concatenate([row.ids, inner[row.row]])) if row.row in inner else row for row in asked)
    return replace(columns, logprobs=tuple(rows))


def logprob_row(at: int, running: RunningRequest) -> LogprobRow:
    asked = running.request.spec.logprobs
    assert asked is not None, running.uid
    return LogprobRow(at, asked.num_top, np.array(asked.ids, dtype=np.int32))
