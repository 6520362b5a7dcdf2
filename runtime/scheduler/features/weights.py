"""Other weights in the place of those that are served: when they are put there, and what becomes of what was computed.

A thread reads them while steps run. They are placed between two steps, while nothing runs or generation is paused.
What earlier weights have computed is never found again: the queue gives a number of weights to each request, which is
in its cache namespace. A request that runs on keeps its keys and its number; one without an output begins anew.
"""

from functools import partial
from typing import TYPE_CHECKING, Any

from ramet.ipc.channel import Outbox
from ramet.ipc.control import HoldRequests, PlaceWeights, ReadWeights
from ramet.ipc.messages import TokenStep
from ramet.ipc.params import shown
from ramet.runtime.errors import ConfigError, describe
from ramet.runtime.scheduler.control import ControlHandler
from ramet.runtime.scheduler.core import Core
from ramet.runtime.scheduler.features.background import Background, ReadFailure
from ramet.runtime.scheduler.features.prefix_leases import PrefixLeases
from ramet.runtime.scheduler.row_flag import RowFlag
from ramet.runtime.scheduler.step_runner import StepRunner

if TYPE_CHECKING:
    from ramet.runtime.engine.reloading import WeightReader


class WeightUpdates:
    def __init__(
        self, source: "WeightReader | None", core: Core, leases: PrefixLeases, background: Background,
        steps: StepRunner, control: ControlHandler, detokenizer: Outbox,
    ) -> None:  # fmt: skip
        self._source, self._core, self._background, self._steps = source, core, background, steps
        self._leases, self._control, self._detokenizer = leases, control, detokenizer
        self._read: Any = None  # and not placed yet
        control.on(ReadWeights, self._begin)
        control.on(HoldRequests, self._hold)
        control.on(PlaceWeights, self._place)

    def _reply(self, call: int, answer: dict[str, object], ok: bool = True) -> None:
        self._control.reply(call, answer, ok=ok)

    def _begin(self, message: ReadWeights) -> None:
        if self._source is None:
            self._reply(message.call, {"error": "--runner is scripted: there is no model"}, ok=False)
            return
        self._read = None

        def take(read: Any) -> None:
            self._read, error = (None, read.why) if isinstance(read, ReadFailure) else (read, "")
            self._reply(message.call, {"error": error} if error else {}, ok=not error)

        act = partial(_read, self._source, message.path)
        self._background.read(f"{shown(message.path)} cannot be read", act, take)

    def _hold(self, message: HoldRequests) -> None:
        if message.after_s is None:
            self._core.waiting.let_go()
            self._read = None  # what is not placed by now never will be
        else:
            self._core.waiting.hold_after(message.after_s)
        self._reply(message.call, {})

    def _place(self, message: PlaceWeights) -> None:
        assert self._source is not None and self._read is not None, "weights are read before they are placed"
        self._steps.apply_in_flight()
        self._core.results.send()  # what came before is of the weights before
        num_paused = len(self._core.running) + len(self._core.waiting) - self._core.waiting.num_held
        read, self._read = self._read, None
        try:
            self._source.place(read)
        except ConfigError as error:
            self._reply(message.call, {"error": str(error)}, ok=False)
            return
        self._begin_anew(message.number)
        self._detokenizer.send(TokenStep([], b"", weights=message.number))  # what follows is computed with these
        self._reply(message.call, {"num_paused_requests": num_paused})

    def _begin_anew(self, number: int) -> None:
        self._core.waiting.take_weights(number)
        for running in self._core.running:
            if not running.num_output or running.request.flags & RowFlag.HEALING:  # nothing was told of its output
                self._core.waiting.add(self._core.running.retract(running))
        for running in self._core.running:
            self._leases.withdraw(running.uid)
        self._control.flush()


def _read(source: "WeightReader", path: str) -> Any:
    try:
        return source.read(path)
    except OSError as error:  # a name that no file has, or who may not read it
        raise ConfigError(f"{shown(path)} cannot be read: {error.strerror or describe(error)}") from None
