"""Running requests whose prompt is healed: the search for the sequence that begins with its tail, in the request's row.

A row's output is the node that is looked at, or one on the way to it. Each step adds or replaces one token, which needs
no memory, and nobody is told of any until the answer is found. Then it is an output as any other: its row is planned
without waiting, and its penalties, lengths and stop texts are those of the tokens that it has.
Knows no tensor.
"""

import math
from collections.abc import Callable

from ramet.ipc.message import Uid
from ramet.ipc.messages import Finish, Logprobs
from ramet.runtime.arrays import Floats
from ramet.runtime.sampling.columns import HealedPlace
from ramet.runtime.scheduler.features.constrained import Constrained
from ramet.runtime.scheduler.features.constrained_rows import ConstrainedRows, Send
from ramet.runtime.scheduler.features.returned import ReturnedStates, num_logprob_ids
from ramet.runtime.scheduler.features.rewriting import RewrittenRows
from ramet.runtime.scheduler.features.tail_search import MAX_NODES, Healing, Path
from ramet.runtime.scheduler.request import Request
from ramet.runtime.scheduler.row_flag import RowFlag
from ramet.runtime.scheduler.rows import RunningRequest
from ramet.runtime.scheduler.running import RunningSet

NOTHING_LEFT = "finds no output that begins with the healed end of the prompt"
TOO_MANY = f"has looked for the healed end of the prompt in {MAX_NODES} steps (send token_healing: false)"


class HealedRows:
    """`send` and `show` tell the client of tokens and hidden states, `push` of a token that may end its request."""

    def __init__(
        self,
        running: RunningSet,
        rewritten: RewrittenRows,
        constrained: ConstrainedRows,
        *,
        push: Callable[[RunningRequest, int, Logprobs | None], Finish | None],
        send: Send,
        show: Callable[[Uid, Floats], None],
    ) -> None:
        self._running, self._rewritten, self._constrained = running, rewritten, constrained
        self._push, self._send, self._show = push, send, show

    def hold(self, running: RunningRequest, states: Floats) -> None:
        """states [n, N] of the last token of its output, before the token that was just drawn: it may be taken back."""
        _of(running.request).states[_path(running)] = states

    def push(self, running: RunningRequest, token: int, place: HealedPlace, reported: Logprobs | None) -> Finish | None:
        """`token` was drawn, of which the client gets `reported`. Why the request ends, if it does."""
        healing, path, constrained = _of(running.request), _path(running), running.request.own.get(Constrained)
        if constrained is not None:
            constrained.parse_s = constrained.mask_s
        if constrained is not None and constrained.failure is not None:
            return constrained.failure
        if constrained is not None and constrained.undo:
            self._constrained.take_back(running, constrained)
            return None
        search = healing.search
        if path == search.at:
            healing.keep(path, reported)
            search.learn(place, token, healing.covers and place.covered > -math.inf)
            if search.failed:
                why = NOTHING_LEFT if search.num_nodes < MAX_NODES else TOO_MANY
                return Finish.abort("token_healing", why)
        if not (search.found and (*path, token) == search.at) and not self._move(running, path, search.at):
            self._running.retract_next(running)
            return None
        return self._found(running, healing) if search.found and _whole(running) == search.at else None

    def _move(self, running: RunningRequest, path: Path, goal: Path) -> bool:
        """In the place of the token that was drawn, one more of `goal`, after those that `path` has of it.

        Also where it is the same token: its row is planned anew. False: a state goes back further, and memory for
        that is short.
        """
        differing = (i for i, (own, other) in enumerate(zip(path, goal)) if own != other)
        kept = next(differing, min(len(path), len(goal) - 1))
        if not self._rewritten.replace(running, len(path) + 1 - kept, 1):
            return False
        running.append(goal[kept])
        self._rewritten.extend(running)
        self._rewritten.forget(running)
        return True

    def _found(self, running: RunningRequest, healing: Healing) -> Finish | None:
        request, path, offset = running.request, healing.search.at, healing.search.offset
        beyond = healing.tail.beyond_of(path[-1], offset)
        request.start = request.start._replace(num_tokens=len(path) if not beyond else len(path) - 1)
        del request.own[Healing]
        self._running.clear_flag(running, RowFlag.HEALING)
        self._tell_hidden(running, healing, path)
        num_asked, ends = num_logprob_ids(request), range(1, len(path) + 1)
        told = [(path[i - 1], healing.logprobs_of(path[:i], num_asked)) for i in ends]
        if request.flags & RowFlag.CONSTRAINED:
            return self._constrained.begin_with(running, told, beyond, healing.tail.table.spell(beyond) or [])
        for token, reported in told[:-1]:
            self._send(running.uid, token, reported)
        return self._push(running, *told[-1])

    def _tell_hidden(self, running: RunningRequest, healing: Healing, path: Path) -> None:
        for i in range(1, len(path)):
            states = healing.states.get(path[:i])
            if states is not None:
                self._show(running.uid, states)
                running.request.own[ReturnedStates].next = running.request.prompt_len + i


def _of(request: Request) -> Healing:
    return request.own[Healing]


def _whole(running: RunningRequest) -> Path:
    return tuple(running.output.tolist())


def _path(running: RunningRequest) -> Path:
    """Its output before the token that was just drawn."""
    return _whole(running)[:-1]
