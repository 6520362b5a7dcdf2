"""What features do when a request that asked for them is opened, has its prompt computed, ends and is closed."""

from msgspec.structs import replace

from ramet.ipc.messages import Finish, Logprobs
from ramet.runtime.scheduler.features.beside_tokens import BesideTokens
from ramet.runtime.scheduler.features.follow_ups import FollowUps
from ramet.runtime.scheduler.features.late_tokens import LateTokens
from ramet.runtime.scheduler.features.logprobs import UNKNOWN
from ramet.runtime.scheduler.features.media import ids_of
from ramet.runtime.scheduler.features.parts import Parts
from ramet.runtime.scheduler.features.pooled import add_states
from ramet.runtime.scheduler.features.prefix_leases import PrefixLeases
from ramet.runtime.scheduler.features.programs import num_calls
from ramet.runtime.scheduler.features.routes import ReturnedRoutes
from ramet.runtime.scheduler.features.unsound import UnsoundPrefixes
from ramet.runtime.scheduler.request import Request
from ramet.runtime.scheduler.rows import RunningRequest


class Lifecycle:
    """Called for requests with the bit RowFlag.WATCHED."""

    def __init__(
        self, parts: Parts, leases: PrefixLeases, follow_ups: FollowUps, late: LateTokens,
        unsound: UnsoundPrefixes, routes: ReturnedRoutes, beside: BesideTokens,
    ) -> None:  # fmt: skip
        self._parts, self._leases, self._follow_ups, self._late = parts, leases, follow_ups, late
        self._unsound, self._routes, self._beside = unsound, routes, beside

    def open(self, request: Request) -> None:
        """Its Opened message was made."""
        asked = request.spec.logprobs
        if asked is not None and asked.start is not None and asked.start < request.prompt_len:
            first = ids_of(request, asked.start, asked.start + 1)
            self._beside.add_logprobs([Logprobs(request.uid, True, first.tobytes(), UNKNOWN)])

    def begin(self, running: RunningRequest) -> Finish | None:
        """It runs and is open. Returns why it ends without a step, if so."""
        if running.base_length:
            self._add_parts(running.request)
        return self._late.begin(running)

    def computed(self, request: Request) -> None:
        """Its whole prompt is computed and published: the lease that it asked for begins."""
        if request.uid in self._leases.open:
            self._leases.begin(request)

    def park(self, running: RunningRequest) -> None:
        self._parts.park(running)

    def end(self, running: RunningRequest, finish: Finish) -> bytes:
        """It is about to give back its row. Returns the experts of its tokens, if it asked for them."""
        request = running.request
        if request.spec.follow_up is not None and not finish.aborted and not running.base_length:
            self._parts.memory.publish_all(running)
            added = running.total - (request.cached_tokens or 0)
            self._follow_ups.keep(request.spec.follow_up, running.lease, added, num_calls(request) + 1)
        return self._routes.of(running) if request.spec.expert_routes is not None else b""

    def close(self, request: Request, finish: Finish) -> None:
        """It has ended, or never ran."""
        self._late.close(request)
        self._unsound.forget(request)
        if request.uid in self._leases.open:
            (self._leases.withdraw if finish.aborted else self._leases.keep)(request.uid)

    def _add_parts(self, request: Request) -> None:
        """Tell what was computed of the parts of its prompt before it was open."""
        assembly = self._parts.assemblies[request.uid]
        self._beside.add_logprobs(replace(each, uid=request.uid) for each in assembly.logprobs)
        for states in assembly.states:
            if (returned := add_states(request, states)) is not None:
                self._beside.add_states(request.uid, returned)
