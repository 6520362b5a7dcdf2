"""What a step reads of media: features in the place of ids, and where their tokens are in time, height and width."""

import numpy as np

from ramet.runtime.engine.extras import MropePositions
from ramet.runtime.scheduler.step import StepBuilder


def plan(step: StepBuilder) -> None:
    places = None
    for _, first, prefill in step.prompts():
        request, start = prefill.running.request, prefill.running.scheduled
        if request.media is None:
            continue
        if rows := list(request.media.rows(start, prefill.end, first)):
            step.inputs += rows
            step.token_ids = request.media.numbers.ids(step.token_ids)
        if request.turns is not None and start < request.turns.end:
            if places is None:
                places = np.tile(step.positions - np.repeat(step.table.shifts[step.rows], step.num_new), (3, 1))
            own = request.turns.places[:, start : prefill.end]
            places[:, first : first + own.shape[1]] = own
    if places is not None:
        step.inputs.append(MropePositions(places))
