"""What arrives between two steps: prompts are queued, aborts begun, and everything else is answered after them."""

from collections.abc import Callable, Sequence

from ramet.ipc.control import Control
from ramet.ipc.messages import Abort, Generate, ProgramsEnded, Wake
from ramet.ipc.spec import owned
from ramet.runtime.scheduler.aborts import Aborts
from ramet.runtime.scheduler.arrivals import Inbox, TakeShare, taken_from
from ramet.runtime.scheduler.control import ControlHandler
from ramet.runtime.scheduler.core import Core
from ramet.runtime.scheduler.enqueue import Enqueuer
from ramet.runtime.scheduler.feature import TurnFeature

ProgramEnded = Callable[[str], None]


class MessageReceiver:
    """`program_ended` is told of programs that make no further call; `apply_in_flight` ends the step that runs."""

    def __init__(
        self, inbox: Inbox, core: Core, enqueuer: Enqueuer, control: ControlHandler,
        features: Sequence[TurnFeature], aborts: Aborts, clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self._inbox, self._core, self._enqueuer, self.control = inbox, core, enqueuer, control
        self._features, self.aborts = features, aborts
        self._take_share = TakeShare(clock)
        self.program_ended: ProgramEnded = lambda _: None

    def receive(self, block: bool, wait_s: float | None, apply_in_flight: Callable[[], None]) -> None:
        """Take what has arrived, as far as a turn may; if `block`, wait for something, `wait_s` seconds at most."""
        asked, aborts, running = list[Control](), list[Abort](), self._core.running
        most = self._take_share.most(running.table.arrivals[running.decoding])
        messages = taken_from(self._inbox, block, wait_s, most)
        for feature in self._features:
            if feature.work:
                feature.before_messages()
        for message in messages:
            match message:
                case Generate():
                    self._enqueuer.enqueue(message)
                case Abort():
                    aborts.append(message)
                case Wake():
                    for feature in self._features:
                        feature.wake()
                case ProgramsEnded():
                    for program in message.programs:
                        self.program_ended(owned(message.owner, program))
                case control:
                    asked.append(control)
        self._take_share.taken(messages, waited=block)
        if aborts:  # whose prompts came before them
            self.aborts.begin(aborts)
        if self.aborts.left:
            self.aborts.proceed()
        for feature in self._features:
            if feature.work:
                feature.after_messages()
        if asked and not len(running):  # what has ended holds nothing any more, so say so
            apply_in_flight()
        for control in asked:
            self.control.handle(control)
