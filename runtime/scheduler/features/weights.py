"""Other weights in the place of those that are served: when they are put there, and what becomes of what was computed.

A thread reads them while steps run. They are placed between two steps, while nothing runs or generation is paused.
What earlier weights have computed is never found again: the queue gives a number of weights to each request, which is
in its cache namespace. A request that runs on keeps its keys and its number; one without an output begins anew.
"""

import logging
from collections.abc import Callable
from concurrent.futures import Executor
from queue import SimpleQueue
from typing import Any

from ramet.ipc.control import HoldRequests, PlaceWeights, ReadWeights
from ramet.ipc.params import shown
from ramet.runtime.engine.batch import WeightSource
from ramet.runtime.errors import ConfigError, describe
from ramet.runtime.scheduler.control import ControlHandler
from ramet.runtime.scheduler.queue import WaitingQueue
from ramet.runtime.scheduler.results import Results
from ramet.runtime.scheduler.running import RunningSet

log = logging.getLogger("ramet")


class WeightUpdates:
    """`apply_in_flight` ends the step that runs, `forget` every cached prefix that no running request leases. `thread`
    reads, and after it `wake` has `settle` called on the scheduler's.
    """

    def __init__(
        self, source: WeightSource | None, running: RunningSet, waiting: WaitingQueue, results: Results,
        apply_in_flight: Callable[[], None], forget: Callable[[], None], thread: Executor, wake: Callable[[], None],
    ) -> None:  # fmt: skip
        self._source, self._running, self._waiting, self._results = source, running, waiting, results
        self._apply_in_flight, self._forget = apply_in_flight, forget
        self._thread, self._wake = thread, wake
        self._done: SimpleQueue[tuple[int, Any, str]] = SimpleQueue()  # the call, and weights or why there are none
        self._read: Any = None  # and not placed yet

    def register(self, control: ControlHandler) -> None:
        self._reply = control.reply
        control.on(ReadWeights, self._begin)
        control.on(HoldRequests, self._hold)
        control.on(PlaceWeights, self._place)

    def _begin(self, message: ReadWeights) -> None:
        if self._source is None:
            self._reply(message.call, {"error": "--runner is scripted: there is no model"}, ok=False)
            return
        self._read = None
        self._thread.submit(self._read_them, self._source, message)

    def _read_them(self, source: WeightSource, message: ReadWeights) -> None:
        self._done.put((message.call, *_tried(source, message.path)))
        self._wake()

    def settle(self) -> None:
        """Something was read, maybe weights."""
        while not self._done.empty():
            call, self._read, error = self._done.get()
            self._reply(call, {"error": error} if error else {}, ok=not error)

    def _hold(self, message: HoldRequests) -> None:
        if message.after_s is None:
            self._waiting.let_go()
            self._read = None  # what is not placed by now never will be
        else:
            self._waiting.hold_after(message.after_s)
        self._reply(message.call, {})

    def _place(self, message: PlaceWeights) -> None:
        assert self._source is not None and self._read is not None, "weights are read before they are placed"
        self._apply_in_flight()
        self._results.send()  # what came before is of the weights before
        num_paused = len(self._running) + len(self._waiting) - self._waiting.num_held
        read, self._read = self._read, None
        try:
            self._source.place(read)
        except ConfigError as error:
            self._reply(message.call, {"error": str(error)}, ok=False)
            return
        self._begin_anew(message.number)
        self._results.tell_weights(message.number)
        self._reply(message.call, {"num_paused_requests": num_paused})

    def _begin_anew(self, number: int) -> None:
        self._waiting.take_weights(number)
        for request in self._running.retract_without_output():
            self._waiting.add(request)
        for running in self._running:
            self._results.leases.withdraw(running.uid)
        self._forget()


def _tried(source: WeightSource, path: str) -> tuple[Any, str]:
    """Weights, or why there are none."""
    try:
        return source.read(path), ""
    except ConfigError as error:
        return None, str(error)
    except OSError as error:  # a name that no file has, or who may not read it
        return None, f"{shown(path)} cannot be read: {error.strerror or describe(error)}"
    except Exception as error:  # a folder is a client's: nothing in it may end the scheduler
        log.exception("the weights in %s cannot be read", shown(path))
        return None, f"{shown(path)} cannot be read: {describe(error)}"
