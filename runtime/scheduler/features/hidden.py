"""Hidden states: which tokens of a step return theirs, each by itself or as a part of a sum."""

from dataclasses import dataclass

import numpy as np

from ramet.ipc.spec import HiddenMode
from ramet.runtime.engine.extras import HiddenRows
from ramet.runtime.scheduler.features.returned import ReturnedStates
from ramet.runtime.scheduler.row_flag import RowFlag
from ramet.runtime.scheduler.step import StepBuilder, TokenSpan


@dataclass(frozen=True, slots=True)
class HiddenSpan(TokenSpan):
    """Tokens whose hidden states are returned."""

    last: bool  # only the last one of the whole sequence is returned


def plan(step: StepBuilder) -> None:
    table, firsts = step.table, step.firsts
    for index in np.flatnonzero(table.flags[step.rows] & RowFlag.HIDDEN).tolist():
        each, end = step.at(step.rows[index]), int(step.ends[index])
        own = each.request.own[ReturnedStates]
        mode, start, stop = own.mode, own.planned, end
        match mode:
            case HiddenMode.ALL:
                pass
            case HiddenMode.FIRST:
                stop = min(end, 1)
            case HiddenMode.MEAN:
                stop = min(end, each.request.prompt_len)
            case _:
                start, stop = end - 1, end if end == table.planned_totals[each.row] else end - 1
        if start < stop:
            own.planned = stop
            assert start >= each.scheduled, (each.uid, start)
            first = int(firsts[index]) + start - each.scheduled
            last = mode not in (HiddenMode.ALL, HiddenMode.FIRST, HiddenMode.MEAN)
            asked = HiddenRows(first, stop - start, summed=mode is HiddenMode.MEAN)
            step.ask(HiddenSpan(index, start, stop, last), asked)
