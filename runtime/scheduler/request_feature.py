"""What an optional feature adds to a request: hooks that are called for requests that ask for it, and for no others.

A new feature that returns something for each token is written into these places, in the order of a request:

1. the field of a request (`ipc/spec.py`) and of the bodies that have it (`runtime/intake/specs.py`),
2. a bit of `RowFlag` (`scheduler/row_flag.py`), set by a `RequestFeature` (`scheduler/request_feature.py`; listed in
   `scheduler/process/compose.py`) or, where nothing is to be refused or kept, by an entry of MARKS (`requests.py`),
3. its own file in scheduler/features/: what it knows of a request (a `FeatureState`), what it does when a row begins
   or ends (a `RowFeature`), and which questions it adds to a step, which `planned.py` lists by bit,
4. the question and its answer (`runtime/engine/extras.py`), computed by the runner (`runtime/engine/step_extras.py`),
5. what becomes of the answer (`answers.py`), in a field of `TokenStep` (`ipc/messages.py`),
6. the reply (`runtime/engine_client/sequences.py`, `runtime/intake/reply.py`).

One that only changes how tokens are drawn needs 1 to 3. `runtime/sampling/filters.py` and
`runtime/sampling/penalties.py` say what a new sampling parameter needs.
"""

from typing import Any, ClassVar

from ramet.ipc.messages import Finish, Generate
from ramet.runtime.arrays import Ints
from ramet.runtime.scheduler.admission import AdmissionRound, Refused
from ramet.runtime.scheduler.request import Request
from ramet.runtime.scheduler.rows import RunningRequest
from ramet.runtime.scheduler.unpublished import Announcement


class RequestFeature:
    """What some requests ask beyond tokens: those whose message differs from a plain one in the field `asked_by`."""

    asked_by: ClassVar[str]  # the path of a field of `Generate`
    flag: ClassVar[int] = 0  # the bits of RowFlag that they have

    def receive(self, message: Generate, prompt: Ints) -> Any:
        """What the samples of a request share: the hooks below are given it. prompt [prompt tokens]"""

    def refuse(self, request: Request, shared: Any) -> Finish | None:
        """Why the request cannot be served; None: it can. Nothing is kept for it yet."""

    def arrive(self, request: Request, shared: Any) -> Finish | bool | None:
        """It will wait to run. Why it ends instead; True: it waits here, until the feature puts it in the queue."""

    def fails(self, request: Request) -> Finish | None:
        """Why a request that has waited can never run."""

    def waits(self, request: Request, round: AdmissionRound) -> Refused | None:
        """Why it cannot run yet, before anything is looked up for it."""

    def announces(self, request: Request) -> Announcement | None:
        """What others may wait for while it is computed, in the place of its tokens; None: these."""

    def admit(self, request: Request, round: AdmissionRound) -> RunningRequest | Refused | None:
        """Admit it in the feature's own way; None: in the way of all others."""

    def lacks(self, request: Request, num_cached: int) -> Refused | None:
        """Why it cannot run yet, where so many tokens of it are cached."""

    def yields(self, request: Request, round: AdmissionRound, needed: int, num_cached: int) -> Refused | None:
        """Why it leaves the `needed` tokens of memory, which are free, to others."""

    def begins(self, request: Request, round: AdmissionRound, num_cached: int) -> None:
        """It runs from here on."""
