"""LongRoPE's limit: a sequence that outgrows it has other keys from its first token on, so it begins anew.

Only of models that have such a limit. What longer sequences compute is cached apart from what shorter ones do.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ramet.ipc.spec import Namespace
from ramet.runtime.engine.extras import Command
from ramet.runtime.scheduler.feature import RowFeature
from ramet.runtime.scheduler.features.position_offsets import shift_row
from ramet.runtime.scheduler.request import FeatureState, Request
from ramet.runtime.scheduler.row_flag import RowFlag
from ramet.runtime.scheduler.rows import RunningRequest

LONG = "long"  # the kind of name in the namespace of sequences beyond their limit


@dataclass(slots=True)
class LongRope(FeatureState):
    limit: int  # tokens beyond which all of its keys are others
    is_long: bool = False  # it is beyond that

    def outgrow(self, request: Request) -> None:
        """It is longer than the limit from here on."""
        self.is_long = True
        request.cache_apart(LONG, self.limit)


def prompt_namespace(request: Request) -> Namespace:
    """Where its prompt is cached, whatever follows it."""
    own = request.own.get(LongRope)
    if own is None or not own.is_long or request.prompt_len > own.limit:
        return request.namespace
    return tuple(name for name in request.namespace if name != f"{LONG} {own.limit}")


class LimitedRows(RowFeature):
    """Rows of a model with a limit: a short one pauses there, and the tokens of a long one are at other positions."""

    flag = RowFlag.LONG_ROPE

    def begin(self, running: RunningRequest) -> Sequence[Command]:
        own = running.request.own[LongRope]
        if own.is_long:
            shift_row(running, -own.limit)
        else:
            running.table.until[running.row] = min(running.request.limit, own.limit + 1)
        return ()
