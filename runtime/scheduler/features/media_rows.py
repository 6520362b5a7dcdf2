"""What a step reads of media: features in the place of ids, and where their tokens are in time, height and width."""

import numpy as np

from ramet.runtime.engine.extras import MropePositions
from ramet.runtime.scheduler.feature import PromptLimit
from ramet.runtime.scheduler.features.media import RequestMedia
from ramet.runtime.scheduler.features.position_offsets import Shifts
from ramet.runtime.scheduler.rows import RunningRequest
from ramet.runtime.scheduler.step import StepBuilder


class WholePieces(PromptLimit):
    """No piece is cut whose tokens see each other: the first one of a step is computed whatever it counts as."""

    def take(self, running: RunningRequest, num: int, cost: int, room: int, *, is_first: bool) -> tuple[int, int]:
        media, start = running.request.own[RequestMedia], running.scheduled
        if not media.is_whole:
            return num, cost
        earlier, later = media.whole(start, start + num)
        taken = earlier - start if earlier > start or not is_first else later - start
        return taken, cost + taken - num


def plan(step: StepBuilder) -> None:
    places = None
    for index, first, running in step.prompts():
        start, end = running.scheduled, int(step.ends[index])
        media = running.request.own.get(RequestMedia)
        if media is None:
            continue
        if rows := list(media.rows(start, end, first)):
            step.inputs += rows
            step.to_ids = media.numbers.ids
        if media.turns is not None and start < media.turns.end:
            if places is None:
                shifts = step.table.own(Shifts).by_row[step.rows]
                places = np.tile(step.positions - np.repeat(shifts, step.num_new), (3, 1))
            own = media.turns.places[:, start:end]
            places[:, first : first + own.shape[1]] = own
    if places is not None:
        step.inputs.append(MropePositions(places))
