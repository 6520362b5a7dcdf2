"""Sessions: trees of requests whose tokens later ones go on from, with SGLang's semantics.

Decides what a request of a session begins with, which requests it replaces, and what is kept. Knows token ids (packed
int32) and times, no text, no engine and no HTTP. A turn keeps its own part alone; what comes before it are the first
tokens of the turn that it goes on from:

    prompt = (prompt + output of `before`)[:kept] + piece
"""

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from ramet.ipc.params import shown
from ramet.ipc.spec import owned
from ramet.runtime.access.owner import NOBODY, Owner
from ramet.runtime.access.shares import over, part
from ramet.runtime.engine_client.prompt import Prompt
from ramet.runtime.errors import ClientError, ServerError
from ramet.runtime.intake.calls import SessionParams
from ramet.runtime.metrics.table import Metrics

ID_BYTES = 4  # of a token id
# Of a turn, beside its tokens and its rid: the objects, their headers and its place in a dictionary.
# tracemalloc counts 208 to 250 with Python 3.11, and the allocator's gaps are not among them.
TURN_BYTES = 400
MAX_SESSIONS = 4096
NEVER_FINISHED = "Session request is appending to a request that hasn't finished."
NO_INPUT = "A session request must contain input tokens after restoring history."


class SessionRun(Protocol):
    """A request while the engine has it."""

    def output(self) -> bytes:
        """What it has drawn so far."""

    def stop(self) -> None:
        """End it: another request has taken its place."""


@dataclass(slots=True, eq=False)
class SessionTurn:
    rid: str
    session: "Session"
    before: "SessionTurn | None"
    kept: int
    piece: bytes
    run: SessionRun | None  # None: it has ended
    output: bytes = b""
    # Thousands may go on from one turn, so a list of these would be searched for each that is cleared.
    newest: "SessionTurn | None" = field(default=None, repr=False)  # of those that go on from it
    older: "SessionTurn | None" = field(default=None, repr=False)  # that goes on from the same turn, as does the next
    newer: "SessionTurn | None" = field(default=None, repr=False)
    name_bytes: int = 0  # of its rid, and of the UTF-8 that Python may keep beside it
    # `source` is the nearest earlier turn of which the prompt has own tokens. `jump` is a turn further up the chain of
    # sources, placed so that a search takes logarithmic time: Myers, "An applicative random-access stack".
    source: "SessionTurn | None" = field(default=None, repr=False)
    jump: "SessionTurn | None" = field(default=None, repr=False)
    num_sources: int = 0

    def __post_init__(self) -> None:
        self.name_bytes = sys.getsizeof(self.rid) + len(self.rid.encode())
        self.source = source = self._find_source()
        if source is None:
            return
        self.num_sources, self.jump, further = source.num_sources + 1, source, source.jump
        if further is not None:
            after = further.jump.num_sources if further.jump is not None else -1
            if source.num_sources - further.num_sources == further.num_sources - after:
                self.jump = further.jump

    @property
    def num_prompt(self) -> int:
        return self.kept + len(self.piece) // ID_BYTES

    @property
    def num_tokens(self) -> int:
        return self.num_prompt + len(self.output) // ID_BYTES

    @property
    def num_own_tokens(self) -> int:
        return (len(self.piece) + len(self.output)) // ID_BYTES

    @property
    def num_bytes(self) -> int:
        """That it takes. A streaming session has its tokens once more, in the prompt that the cache holds for it."""
        copies = 2 if self.session.streaming else 1
        return TURN_BYTES + self.name_bytes + copies * self.num_own_tokens * ID_BYTES

    @property
    def prompt(self) -> bytes:
        """The whole of it."""
        parts, needed, turn = [self.piece], self.kept, self.source
        while turn is not None:
            parts.append((turn.piece + turn.output)[: (needed - turn.kept) * ID_BYTES])
            needed, turn = turn.kept, turn.source
        return b"".join(reversed(parts))

    def _find_source(self) -> "SessionTurn | None":
        """The nearest earlier turn that keeps fewer tokens than this one: only its own tokens are part of the prompt.

        Turns before one that another goes on from have ended, so their tokens stay as they are.
        """
        turn = self.before
        while turn is not None and turn.kept >= self.kept:
            turn = turn.jump if turn.jump is not None and turn.jump.kept >= self.kept else turn.source
        return turn

    def and_after(self) -> Iterator["SessionTurn"]:
        """It and all that go on from it."""
        todo = [self]
        while todo:
            turn = todo.pop()
            yield turn
            following = turn.newest
            while following is not None:
                todo.append(following)
                following = following.older

    def attach(self) -> None:
        """Make it the newest turn of those that go on from `before`."""
        if self.before is None:
            return
        self.older = self.before.newest
        if self.older is not None:
            self.older.newer = self
        self.before.newest = self

    def detach(self) -> None:
        """Remove it from those that go on from `before`."""
        if self.newer is not None:
            self.newer.older = self.older
        elif self.before is not None:
            self.before.newest = self.older
        if self.older is not None:
            self.older.newer = self.newer


@dataclass(slots=True, eq=False)
class Session:
    id: str
    streaming: bool
    timeout_s: float
    used_s: float  # when it was opened, or a turn began or ended
    owner: Owner = NOBODY
    turns: dict[str, SessionTurn] = field(default_factory=dict)
    num_running: int = 0  # turns that the engine has
    closes: bool = False  # once its turn has ended
    held: Prompt | None = None  # tokens that the cache keeps for it, asked for as a prompt

    @property
    def name(self) -> str:
        """Its id, which other owners may have given as well."""
        return owned(self.owner.name, self.id)

    @property
    def last(self) -> SessionTurn | None:
        return next(reversed(self.turns.values()), None)


class TurnEnded(NamedTuple):
    """How a request ended: by itself, by an abort, or refused and failed."""

    aborted: bool = False
    failed: bool = False


class Sessions:
    """`max_bytes`: of all turns. All times are monotonic seconds."""

    def __init__(self, max_bytes: int, share: float = 1.0) -> None:
        self._max_bytes, self._share = max_bytes, share
        self._bytes_of = Counter[str]()  # by the owner's name
        self.by_id: dict[str, Session] = {}  # by its name, which is its id where there is one owner
        self.num_bytes = 0  # of all turns
        self.num_tokens = 0
        self.bos: bytes | None = None  # the token that the tokenizer puts before a text; None: nobody has looked yet

    def count(self, metrics: Metrics) -> None:
        """How many there are, and what they keep."""
        streaming = [each for each in self.by_id.values() if each.streaming]
        metrics.sessions.open.set(len(self.by_id))
        metrics.sessions.tokens.set(self.num_tokens)
        metrics.sessions.streaming.set(len(streaming))
        num_bytes = sum(each.held.content.size for each in streaming if each.held)
        metrics.sessions.streaming_tokens.set(num_bytes // ID_BYTES)

    def find(self, session_id: str, owner: Owner = NOBODY) -> Session | None:
        """The owner's own; for the admin key else the first of this id."""
        own = self.by_id.get(owned(owner.name, session_id))
        if own is not None or not (owner.name and owner.is_admin):
            return own
        return next((each for each in self.by_id.values() if each.id == session_id), None)

    def open(
        self, session_id: str, timeout_s: float, now_s: float, *, streaming: bool = False, owner: Owner = NOBODY
    ) -> Session:
        session = Session(session_id, streaming, timeout_s, now_s, owner)
        if session.name in self.by_id:
            raise ClientError("session_id", f"is {shown(session_id)}, and a session with this id is open")
        most, own = part(MAX_SESSIONS, self._share), sum(each.owner.name == owner.name for each in self.by_id.values())
        if owner.bounded and own >= most:
            raise over("sessions", most, own, "close some")
        if len(self.by_id) >= MAX_SESSIONS:
            raise ServerError(f"{MAX_SESSIONS} sessions are open, and no more may be: close some.", 503)
        self.by_id[session.name] = session
        return session

    def close(self, session_id: str, owner: Owner = NOBODY) -> Session | None:
        """The session, if it is closed now; a streaming one closes when its turn has ended. What runs goes on."""
        session = self.find(session_id, owner)
        if session is None or session.closes:
            return None
        if session.streaming and session.num_running:
            session.closes = True
            return None
        return self._forget(session)

    def expire(self, now_s: float) -> list[Session]:
        """Closes those that were idle for too long."""
        late = [each for each in self.by_id.values() if now_s - each.used_s > each.timeout_s and not each.num_running]
        return [self._forget(each) for each in late]

    def begin(
        self, asked: SessionParams, rid: str, piece: bytes, run: SessionRun, now_s: float, owner: Owner = NOBODY
    ) -> SessionTurn:
        """A request begins: `piece` are its own tokens. Raises ClientError; nothing has changed then."""
        session = self.find(asked.id or "", owner)
        if session is None or session.closes:
            fact = f"Invalid request: session id {shown(asked.id)} does not exist"
            raise _refused("id", fact, "/open_session opens one")
        before = _last(session, asked) if session.streaming else _before(session, asked)
        kept = 0 if before is None else _num_kept(before, asked)
        if before is not None and self.bos:
            piece = piece.removeprefix(self.bos)
        if not kept and not piece:
            why = "nothing is kept of an earlier request, and this one has no input of its own"
            raise _refused("rid" if before is None else "offset", NO_INPUT, why)
        replaced = _replaced(session, asked, before)
        if rid in session.turns and session.turns[rid] not in replaced:
            raise ClientError("rid", f"is {shown(rid)}, which a request of this session has", "send another, or none")
        made = SessionTurn(rid, session, before, kept, piece, run)
        self._check_room(made, replaced)
        for turn in replaced:
            self._drop(turn)
        if before is not None and before.run is not None:
            self._stop(before)
        made.attach()
        session.turns[rid], session.used_s = made, now_s
        session.num_running += 1
        self._count(made)
        return made

    def end(self, turn: SessionTurn, output: bytes, how: TurnEnded, now_s: float) -> Session | None:
        """The request has ended, or was left. Returns the session if that closes it."""
        if turn.run is None:
            return None  # another has taken its place, or its session is gone
        session = turn.session
        _taken(turn)
        if self.by_id.get(session.name) is not session:
            return None
        session.used_s = now_s
        self._set_output(turn, output)
        if how.failed or (session.streaming and how.aborted):
            self._drop(turn)
        return self._forget(session) if session.closes else None

    def _check_room(self, made: SessionTurn, replaced: list[SessionTurn]) -> None:
        freed, owner = sum(turn.num_bytes for turn in replaced), made.session.owner
        own, most = self._bytes_of[owner.name] - freed, int(self._max_bytes * self._share)
        if owner.bounded and own + made.num_bytes > most:
            raise over("bytes of sessions", most, own, "close some, or replace")
        if self.num_bytes - freed + made.num_bytes > self._max_bytes:
            taken = f"{self.num_bytes} of {self._max_bytes} bytes (--sessions-mb) with {self.num_tokens} tokens"
            raise ServerError(f"Sessions take {taken}: close some, or replace.", 503)

    def _count(self, turn: SessionTurn, sign: Literal[1, -1] = 1) -> None:
        self.num_bytes += sign * turn.num_bytes
        self._bytes_of[turn.session.owner.name] += sign * turn.num_bytes
        self.num_tokens += sign * turn.num_own_tokens

    def _set_output(self, turn: SessionTurn, output: bytes) -> None:
        self._count(turn, -1)
        turn.output = output
        self._count(turn)

    def _stop(self, turn: SessionTurn) -> None:
        """One that another goes on from: what it has drawn so far is its output."""
        run = _taken(turn)
        assert run is not None, f"{turn.rid} has ended"
        self._set_output(turn, run.output())
        run.stop()

    def _drop(self, turn: SessionTurn) -> None:
        run = _taken(turn)
        if run is not None:
            run.stop()
        turn.detach()
        del turn.session.turns[turn.rid]
        self._count(turn, -1)

    def _forget(self, session: Session) -> Session:
        for turn in session.turns.values():
            self._count(turn, -1)
        del self.by_id[session.name]
        return session


def _taken(turn: SessionTurn) -> SessionRun | None:
    """What runs of the turn, which from now on counts as ended."""
    run, turn.run = turn.run, None
    turn.session.num_running -= run is not None
    return run


def _before(session: Session, asked: SessionParams) -> SessionTurn | None:
    """What a request goes on from; None: it is a root."""
    if asked.rid is None:
        return None
    before = _named(session, asked.rid)
    if before.run is not None and not asked.replace:
        raise _refused("rid", NEVER_FINISHED, f"{shown(asked.rid)} runs; session_params.replace ends it")
    return before


def _last(session: Session, asked: SessionParams) -> SessionTurn | None:
    """The same of a streaming session: its last turn."""
    for name, value in (
        ("replace", asked.replace),
        ("offset", asked.offset),
        ("drop_previous_output", asked.drop_previous_output),
    ):
        if value:
            fact = f"is {shown(value)}, but a streaming session takes appends only"
            raise ClientError(f"session_params.{name}", fact, "open one without streaming")
    last = session.last
    if last is not None and last.run is not None:
        why = f"a streaming session takes one request at a time; {shown(last.rid)} runs"
        raise _refused("id", NEVER_FINISHED, why)
    if asked.rid is not None and _named(session, asked.rid) is not last:
        fact = f"is {shown(asked.rid)}, but a streaming session goes on from its last request"
        raise ClientError("session_params.rid", fact, "omit it")
    return last


def _named(session: Session, rid: str) -> SessionTurn:
    if rid not in session.turns:
        fact = f"Invalid request session id: this session has no request {shown(rid)}"
        raise _refused("rid", fact, "send the rid of one that it has, or none")
    return session.turns[rid]


def _num_kept(before: SessionTurn, asked: SessionParams) -> int:
    """Tokens of it that a request begins with."""
    output = before.output if before.run is None else before.run.output()
    length = before.num_prompt + (0 if asked.drop_previous_output else len(output) // ID_BYTES)
    return len(range(length)[: asked.offset]) if asked.offset else length


def _replaced(session: Session, asked: SessionParams, before: SessionTurn | None) -> list[SessionTurn]:
    """The turns that a request clears, each before those that it goes on from."""
    if not asked.replace:
        return []
    if before is None:
        return list(reversed(session.turns.values()))
    return [turn for turn in reversed(list(before.and_after())) if turn is not before]


def _refused(field: str, fact: str, hint: str) -> ClientError:
    """The fact is in SGLang's words, so the field of session_params stands in the hint."""
    return ClientError("", fact, f"session_params.{field}: {hint}")
