"""The scheduler as somebody sees it who looks: the tree, the queue with its reasons, leases; asked for by messages.

Decides how much is told, and nothing else: reads all parts and changes none. It is called a few times a second while
somebody looks, and never by a step. What has changed of the tree is noted meanwhile by a `TreeWatch`, which ends with
`Unwatch`.
"""

from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np

from ramet.ipc.control import MatchPrefix, ReadNode, Unwatch, Watch
from ramet.ipc.live import MAX_ROWS, LeaseRow, LiveState, NodeTokens, PrefixFound, SequenceRow
from ramet.ipc.messages import unpack_ids
from ramet.runtime.arrays import Ints
from ramet.runtime.cache.watched import TreeWatch
from ramet.runtime.scheduler.control import ControlHandler
from ramet.runtime.scheduler.core import Core
from ramet.runtime.scheduler.features.composed import SchedulerFeatures
from ramet.runtime.scheduler.pausing import HELD
from ramet.runtime.scheduler.request import Request

MAX_IDS = 512  # of a node's run that are told
COMPILING = "grammar"  # what those wait for that are not in the queue yet


class LiveView:
    def __init__(self, core: Core, features: SchedulerFeatures, clock: Callable[[], float]) -> None:
        self._cache, self._running, self._waiting, self._why = core.cache, core.running, core.waiting, core.why
        self._features, self._pausing, self._clock = features, core.pausing, clock
        self._watch: TreeWatch | None = None

    def register(self, control: ControlHandler) -> None:
        control.on(Watch, lambda message: control.reply(message.call, self.look(message.begins)))
        control.on(Unwatch, lambda message: control.reply(message.call, self.stop()))
        control.on(MatchPrefix, lambda message: control.reply(message.call, self._find(message)))
        control.on(ReadNode, lambda message: self._read(control, message))

    def look(self, begins: bool) -> LiveState:
        """Everything, of the tree what has changed since the last call; all of it where somebody begins to look."""
        if begins or self._watch is None or not self._watch.is_on:
            self.stop()
            self._watch = TreeWatch(self._cache.tree)
        changes = self._watch.take()
        compiling = self._features.constraints.all_waiting()
        return LiveState(
            tree=changes,
            num_running=len(self._running),
            num_waiting=len(self._waiting) + len(compiling),
            num_leases=len(self._features.leases.kept) + len(self._features.follow_ups.kept_until),
            running=self._running_rows(self._watch),
            waiting=list(islice(self._waiting_rows(), MAX_ROWS)),
            reasons=dict([*self._why.counts(self._waiting), (COMPILING, len(compiling))]),
            leases=list(islice(self._lease_rows(self._watch), MAX_ROWS)),
        )

    def stop(self) -> dict[str, object]:
        """Nobody looks any more."""
        if self._watch is not None:
            self._watch.stop()
            self._watch = None
        return {}

    # -- inside -----------------------------------------------------------------------------------------------------

    def _running_rows(self, watch: TreeWatch) -> list[SequenceRow]:
        some, now, table = list(islice(self._running, MAX_ROWS)), self._clock(), self._running.table
        rows = np.fromiter((each.row for each in some), np.int32, len(some))
        columns = zip(some, table.applied[rows].tolist(), table.totals[rows].tolist(), strict=True)
        return [
            _row(each.request, "running", self._pausing.why, now, each.request.cached_tokens or 0, applied,
                 total - each.request.prompt_len, watch.number_of(each.lease.node))
            for each, applied, total in columns
        ]  # fmt: skip

    def _waiting_rows(self) -> Iterator[SequenceRow]:
        now = self._clock()
        for request in self._waiting.highest(MAX_ROWS):
            num_output = len(request.tokens) - request.prompt_len
            reason, cached = self._why.of(request.uid), request.match.length
            yield _row(request, "waiting", reason, now, cached, 0, num_output, 0)
        for request in self._waiting.held():
            yield _row(
                request, "waiting", self._pausing.why or HELD, now, 0, 0, len(request.tokens) - request.prompt_len, 0
            )
        for request, reason in self._features.constraints.all_waiting():
            yield _row(request, "waiting", reason, now, 0, 0, 0, 0)

    def _lease_rows(self, watch: TreeWatch) -> Iterator[LeaseRow]:
        now = self._clock()
        for kind, kept in (("client", self._features.leases.kept), ("program", self._features.follow_ups.kept_until)):
            for lease, until_s in kept:
                yield LeaseRow(kind, watch.number_of(lease.node), lease.length, round(until_s - now, 1))

    def _find(self, message: MatchPrefix) -> PrefixFound:
        """Where a prompt without a salt is cached, for the key that has most of it. The order of use stays."""
        tokens: Ints = np.array(unpack_ids(message.ids), dtype=np.int32)
        found, reused = self._cache.find(tokens)
        watch = self._watch if self._watch is not None and self._watch.is_on else None
        path = [(watch.number_of(node), common) for node, common in found] if watch is not None else []
        cached = sum(common for _, common in found)
        return PrefixFound(len(tokens), cached, reused, path)

    def _read(self, control: ControlHandler, message: ReadNode) -> None:
        node = self._watch.node(message.node) if self._watch is not None else None
        if node is None:
            control.reply(message.call, {"error": "there is no such node"}, ok=False)
        else:
            first = node.run[:MAX_IDS]
            ids = first if self._features.towers is None else self._features.towers.numbers.ids(first)
            control.reply(message.call, NodeTokens(ids.tolist(), len(node.run)))


def _row(
    request: Request, state: str, reason: str, now: float, cached: int, computed: int, num_output: int, node: int
) -> SequenceRow:
    age_s = round(now - request.arrival_s, 1)
    return SequenceRow(
        request.uid, "", state, reason, age_s, request.spec.priority, request.prompt_len, cached, computed,
        num_output, request.num_retractions, node,
    )  # fmt: skip
