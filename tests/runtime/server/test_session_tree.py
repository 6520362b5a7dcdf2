"""Sessions against a model of ten lines: any requests, in any order, over a plain and over a streaming session."""

import sys
import tracemalloc
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ramet.ipc.messages import pack_ids, unpack_ids
from ramet.runtime.access.owner import Owner
from ramet.runtime.errors import ClientError, ServerError
from ramet.runtime.intake.calls import SessionParams
from ramet.runtime.server.http.session_tree import (
    MAX_SESSIONS,
    NEVER_FINISHED,
    NO_INPUT,
    TURN_BYTES,
    Sessions,
    SessionTurn,
    TurnEnded,
)
from tests.fakes.effort import num_lines

BOS = 1
TOKENS = st.lists(st.integers(0, 9), max_size=3)
DONE, ABORTED, FAILED = TurnEnded(), TurnEnded(aborted=True), TurnEnded(failed=True)


class Engine:
    """A request that runs: what it has drawn, and whether it was ended."""

    def __init__(self, drawn: list[int]) -> None:
        self.drawn, self.stopped = drawn, False

    def output(self) -> bytes:
        return pack_ids(self.drawn)

    def stop(self) -> None:
        self.stopped = True


class Model:
    """A session as the documentation has it: requests by rid, each [rid it goes on from, prompt, output, runs]."""

    def __init__(self) -> None:
        self.requests: dict[str, list[Any]] = {}

    def after(self, rid: str) -> set[str]:
        direct = {name for name, (before, *_) in self.requests.items() if before == rid}
        return direct.union(*map(self.after, direct))

    def begin(self, name: str, piece: list[int], rid: str | None, offset: int, drop: bool, replace: bool) -> None:
        if replace:
            for gone in self.after(rid) if rid else [*self.requests]:
                del self.requests[gone]
        if rid:
            self.requests[rid][3] = False
            _, prompt, output, _ = self.requests[rid]
            context = prompt + ([] if drop else output)
            piece = (context[:offset] if offset else context) + (piece[1:] if piece[:1] == [BOS] else piece)
        self.requests[name] = [rid, piece, [], True]


class PlainSession(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.sessions, self.model = Sessions(1 << 20), Model()
        self.sessions.bos = pack_ids([BOS])
        self.turns: dict[str, tuple[SessionTurn, Engine]] = {}
        self.ended: set[str] = set()
        self.num = 0

    @initialize()
    def opens(self) -> None:
        self.session = self.sessions.open("s", 60.0, 0.0)

    def begin(self, piece: list[int], rid: str | None, offset: int, drop: bool, replace: bool) -> None:
        self.num += 1
        name, engine = f"r{self.num}", Engine([self.num, self.num + 1])
        asked = SessionParams(id="s", rid=rid, offset=offset, drop_previous_output=drop, replace=replace)
        before = {name: list(request) for name, request in self.model.requests.items()}
        if rid and before[rid][3] and replace:
            self.model.requests[rid][2] = self.turns[rid][1].drawn
        self.model.begin(name, piece, rid, offset, drop, replace)
        refused = rid and before[rid][3] and not replace
        if refused or not self.model.requests[name][1]:
            self.model.requests = before
            with pytest.raises(ClientError, match=NEVER_FINISHED if refused else NO_INPUT):
                self.sessions.begin(asked, name, pack_ids(piece), engine, 0.0)
            return
        self.turns[name] = self.sessions.begin(asked, name, pack_ids(piece), engine, 0.0), engine

    @rule(piece=TOKENS, data=st.data(), offset=st.integers(-4, 6), drop=st.booleans(), replace=st.booleans())
    def continues(self, piece: list[int], data: Any, offset: int, drop: bool, replace: bool) -> None:
        rid = data.draw(st.sampled_from([None, *self.model.requests]))
        self.begin(piece, rid, offset, drop, replace)

    @precondition(lambda self: any(request[3] for request in self.model.requests.values()))
    @rule(data=st.data(), output=TOKENS, how=st.sampled_from([DONE, DONE, ABORTED, FAILED]))
    def ends(self, data: Any, output: list[int], how: TurnEnded) -> None:
        name = data.draw(st.sampled_from([name for name, request in self.model.requests.items() if request[3]]))
        self.sessions.end(self.turns[name][0], pack_ids(output), how, 0.0)
        self.model.requests[name][2:] = [output, False]
        self.ended.add(name)
        if how is FAILED:
            del self.model.requests[name]

    @rule()
    def a_request_that_another_replaced_ends_late(self) -> None:
        for name, (turn, engine) in self.turns.items():
            if engine.stopped and name not in self.model.requests:
                self.sessions.end(turn, pack_ids([7]), DONE, 0.0)

    @invariant()
    def agrees_with_the_model(self) -> None:
        found = self.sessions.by_id["s"].turns if "s" in self.sessions.by_id else {}
        assert found.keys() == self.model.requests.keys()
        for name, (_, prompt, output, runs) in self.model.requests.items():
            turn = found[name]
            assert unpack_ids(turn.prompt) == prompt and turn.num_prompt == len(prompt)
            assert (turn.run is not None) == runs
            assert runs or unpack_ids(turn.output) == output

    @invariant()
    def what_was_replaced_was_stopped_and_nothing_else(self) -> None:
        running = {name for name, request in self.model.requests.items() if request[3]}
        assert running == {name for name, (turn, engine) in self.turns.items() if turn.run is not None}
        stopped = {name for name, (_, engine) in self.turns.items() if engine.stopped}
        assert stopped == self.turns.keys() - running - self.ended

    @invariant()
    def every_byte_is_counted(self) -> None:
        kept = [turn for session in self.sessions.by_id.values() for turn in session.turns.values()]
        assert self.sessions.num_tokens == sum(len(turn.piece) + len(turn.output) for turn in kept) // 4
        assert self.sessions.num_bytes == sum(turn.num_bytes for turn in kept)


class StreamingSession(RuleBasedStateMachine):
    """The model of one is a list of tokens, and the request that runs."""

    @initialize()
    def opens(self) -> None:
        self.sessions, self.said, self.num = Sessions(1 << 20), list[int](), 0
        self.sessions.bos = pack_ids([BOS])
        self.sessions.open("s", 60.0, 0.0, streaming=True)
        self.running: SessionTurn | None = None

    @rule(piece=TOKENS)
    def appends(self, piece: list[int]) -> None:
        self.num += 1
        begun = bool(self.sessions.by_id["s"].turns)
        own = piece[1:] if begun and piece[:1] == [BOS] else piece
        if self.running is not None or not self.said + own:
            with pytest.raises(ClientError, match=NO_INPUT if self.running is None else NEVER_FINISHED):
                self.sessions.begin(SessionParams(id="s"), f"r{self.num}", pack_ids(piece), Engine([]), 0.0)
            return
        self.running = self.sessions.begin(SessionParams(id="s"), f"r{self.num}", pack_ids(piece), Engine([]), 0.0)
        assert unpack_ids(self.running.prompt) == self.said + own

    @precondition(lambda self: self.running is not None)
    @rule(output=TOKENS, how=st.sampled_from([DONE, DONE, ABORTED, FAILED]))
    def ends(self, output: list[int], how: TurnEnded) -> None:
        assert self.running is not None
        if how is DONE:
            self.said = unpack_ids(self.running.prompt) + output
        assert self.sessions.end(self.running, pack_ids(output), how, 0.0) is None
        self.running = None

    @rule(name=st.sampled_from(["replace", "drop_previous_output", "offset"]))
    def only_appends_are_taken(self, name: str) -> None:
        with pytest.raises(ClientError, match="takes appends only"):
            asked = SessionParams(id="s", **{name: 1 if name == "offset" else True})
            self.sessions.begin(asked, "other", pack_ids([3]), Engine([]), 0.0)

    @precondition(lambda self: self.running is not None)
    @rule()
    def closes_when_its_request_has_ended(self) -> None:
        assert self.running is not None and self.sessions.close("s") is None
        with pytest.raises(ClientError, match="session id 's' does not exist"):
            self.sessions.begin(SessionParams(id="s"), "late", pack_ids([3]), Engine([]), 0.0)
        assert self.sessions.end(self.running, b"", DONE, 0.0) is not None
        assert not self.sessions.by_id and self.sessions.num_bytes == 0
        self.opens()


TestPlainSessions = PlainSession.TestCase
TestPlainSessions.settings = settings(max_examples=120, stateful_step_count=25, deadline=None)
TestStreamingSessions = StreamingSession.TestCase
TestStreamingSessions.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)


def begun(sessions: Sessions, name: str, piece: list[int], now_s: float = 0.0, **asked: Any) -> SessionTurn:
    return sessions.begin(SessionParams(id="s", **asked), name, pack_ids(piece), Engine([5]), now_s)


def test_what_closed_sessions_of_an_owner_held_is_free_again() -> None:
    sessions, owner = Sessions(4000, 0.5), Owner("b", False)  # two of these requests would be too much
    for _ in range(3):
        sessions.open("s", 60.0, 0.0, owner=owner)
        sessions.begin(SessionParams(id="s"), "a", pack_ids([1] * 200), Engine([5]), 0.0, owner)
        sessions.close("s", owner)


def test_an_unknown_request_or_session_is_named_with_its_field() -> None:
    sessions = Sessions(1 << 20)
    sessions.open("s", 60.0, 0.0)
    for name in ("other", "o" * 10_000):
        with pytest.raises(ClientError, match=r"Invalid request session id.*'o.*\(session_params.rid: ") as error:
            begun(sessions, "a", [1], rid=name)
        assert len(str(error.value)) < 300
        with pytest.raises(
            ClientError, match=r"Invalid request: session id 'o.* not exist \(session_params.id: "
        ) as error:
            sessions.begin(SessionParams(id=name), "a", pack_ids([1]), Engine([]), 0.0)
        assert len(str(error.value)) < 300


def test_a_running_request_is_named_with_the_field_and_cut() -> None:
    sessions = Sessions(1 << 20, 1.0)
    sessions.open("s", 60.0, 0.0, streaming=True)
    begun(sessions, "r" * 10_000, [1])
    with pytest.raises(ClientError, match=r"hasn't finished. \(session_params.id: .*'rrr") as error:
        begun(sessions, "next", [1])
    assert len(str(error.value)) < 300


def test_two_requests_of_a_session_have_two_names() -> None:
    sessions = Sessions(1 << 20)
    sessions.open("s", 60.0, 0.0)
    sessions.end(begun(sessions, "a", [1]), b"", DONE, 0.0)
    with pytest.raises(ClientError, match="rid is 'a'"):
        begun(sessions, "a", [1], rid="a")
    assert begun(sessions, "a", [1], replace=True).rid == "a"  # everything is cleared first


def test_a_full_store_refuses_and_takes_again_what_is_cleared() -> None:
    sessions = Sessions(TURN_BYTES + sys.getsizeof("a") + 16)  # four tokens of one request
    sessions.open("s", 60.0, 0.0)
    sessions.end(begun(sessions, "a", [1, 2, 3]), b"", DONE, 0.0)
    with pytest.raises(ServerError, match="with 3 tokens"):
        begun(sessions, "b", [4, 5], rid="a")
    assert unpack_ids(begun(sessions, "b", [4, 5], replace=True).prompt) == [4, 5]
    sessions.close("s")
    assert sessions.num_bytes == 0


@pytest.mark.parametrize("rid", ["{:01d}", "{:0245d}", "\N{OWL}{:0200d}"])
def test_what_turns_take_is_counted(rid: str) -> None:
    """As tracemalloc has it: chains of requests, each with a token of its own."""
    sessions, num = Sessions(1 << 30), 2000
    sessions.open("s", 60.0, 0.0)
    engine, before = Engine([]), None
    tracemalloc.start()
    try:
        for number in range(num):
            name = rid.format(number)
            turn = sessions.begin(SessionParams(id="s", rid=before), name, pack_ids([number]), engine, 0.0)
            sessions.end(turn, pack_ids([number]), DONE, 0.0)
            before = name
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    del turn
    assert taken <= sessions.num_bytes < 2 * taken and sessions.num_tokens == 2 * num
    sessions.close("s")
    assert sessions.num_bytes == sessions.num_tokens == 0


def test_a_streaming_session_takes_its_tokens_twice() -> None:
    plain, streaming = (Sessions(1 << 20) for _ in range(2))
    for sessions in (plain, streaming):
        sessions.open("s", 60.0, 0.0, streaming=sessions is streaming)
        begun(sessions, "a", [1] * 100)
    assert streaming.num_bytes == plain.num_bytes + 400 and streaming.num_tokens == plain.num_tokens


def test_an_idle_session_is_closed_and_one_that_runs_is_not() -> None:
    sessions = Sessions(1 << 20)
    sessions.open("s", 10.0, 0.0)
    turn = begun(sessions, "a", [1], now_s=5.0)
    assert sessions.expire(100.0) == []
    sessions.end(turn, pack_ids([2]), DONE, 100.0)
    assert sessions.expire(110.0) == []
    assert [session.id for session in sessions.expire(110.1)] == ["s"] and sessions.num_bytes == 0


def test_only_so_many_sessions_are_open() -> None:
    sessions = Sessions(1 << 20)
    for number in range(MAX_SESSIONS):
        sessions.open(f"{number}", 1.0, 0.0)
    with pytest.raises(ServerError, match=f"{MAX_SESSIONS} sessions are open"):
        sessions.open("more", 1.0, 0.0)
    with pytest.raises(ClientError, match="'3'"):
        sessions.open("3", 1.0, 0.0)


def test_a_request_that_outlives_its_session_changes_nothing() -> None:
    sessions = Sessions(1 << 20)
    sessions.open("s", 10.0, 0.0)
    turn = begun(sessions, "a", [1])
    assert sessions.close("s") is not None and sessions.close("s") is None
    assert sessions.end(turn, pack_ids([2]), DONE, 1.0) is None
    assert sessions.num_bytes == 0


def test_clearing_a_request_compares_it_with_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands go on from one request, and all of them are cleared at once, or each as it fails."""
    compared = list[SessionTurn]()

    def is_same(turn: SessionTurn, other: object) -> bool:
        compared.append(turn)
        return turn is other

    sessions, num = Sessions(1 << 20), 200
    sessions.open("s", 60.0, 0.0)
    begun(sessions, "root", [1], replace=True)
    turns = [begun(sessions, f"{i}", [2], rid="root", replace=i == 0) for i in range(num)]
    monkeypatch.setattr(SessionTurn, "__eq__", is_same)
    for turn in turns[num // 2 :]:
        sessions.end(turn, b"", FAILED, 0.0)
    assert begun(sessions, "new", [3], replace=True).prompt == pack_ids([3])
    assert len(compared) < num and list(sessions.by_id["s"].turns) == ["new"]


def chained(num: int, piece: list[int]) -> Sessions:
    """A session of so many turns that have ended, each of which goes on from the one before it."""
    sessions, before = Sessions(1 << 30), None
    sessions.open("s", 10.0, 0.0)
    for number in range(num):
        turn = begun(sessions, f"{number}", piece if number else [1], rid=before)
        sessions.end(turn, b"", DONE, 0.0)
        before = turn.rid
    return sessions


def test_turns_without_tokens_cost_a_later_prompt_nothing() -> None:
    effort = list[int]()
    for num in (10, 3000):
        turn = begun(chained(num, []), "last", [2], rid=f"{num - 1}")
        effort.append(num_lines(lambda turn=turn: turn.prompt))
        assert turn.prompt == pack_ids([1, 2])
    assert effort[0] == effort[1]


def test_a_short_prompt_after_a_long_chain_is_found_in_a_few_steps() -> None:
    num = 3000
    for offset in (1, 7, num // 2, num - 1):
        sessions = chained(num, [2])
        asked = {"rid": f"{num - 1}", "offset": offset}
        assert num_lines(lambda sessions=sessions, asked=asked: begun(sessions, "last", [], **asked)) < 300
        turn = sessions.by_id["s"].turns["last"]
        assert turn.prompt == pack_ids([1, *[2] * (offset - 1)])
        assert offset > 10 or num_lines(lambda turn=turn: turn.prompt) < 150


def test_a_session_that_runs_is_found_without_a_look_at_its_turns() -> None:
    effort = list[int]()
    for num in (10, 3000):
        sessions = chained(num, [])
        begun(sessions, "last", [2], rid="0")
        effort.append(num_lines(lambda sessions=sessions: sessions.expire(100.0)))
        assert list(sessions.by_id) == ["s"]
    assert effort[0] == effort[1]
