"""Sessions on the server: opening and closing them, and a request that goes on from another one of its session.

What it goes on from is decided in http/session_tree.py, when its own text has become ids. The whole prompt is then sent
as ids, as any client could have sent it; that its beginning is cached makes it fast. What a streaming session has said
is held in the cache by a lease on a prompt (`prefix_lease_s`): of all of its tokens, renewed with each turn. Such a
request is no client's, and if it is refused the tokens stay cached for as long as nobody needs the memory.
"""

import time
from typing import Annotated, TypeVar

from aiohttp import web
from msgspec import UNSET, Meta, Struct

from ramet.ipc.content import Content
from ramet.ipc.messages import pack_ids, unpack_ids
from ramet.ipc.params import about
from ramet.ipc.spec import RequestSpec
from ramet.runtime.access.owner import CURRENT as OWNER
from ramet.runtime.access.owner import Owner
from ramet.runtime.engine_client.client import EngineClient
from ramet.runtime.engine_client.prompt import Prompt
from ramet.runtime.engine_client.submission import Submission
from ramet.runtime.errors import ClientError, RametError
from ramet.runtime.intake.calls import SessionParams
from ramet.runtime.intake.prompts import new_id
from ramet.runtime.intake.reading import ThoughtCount
from ramet.runtime.intake.reply import GrowingReply
from ramet.runtime.log import LOGGER
from ramet.runtime.server.http import sse
from ramet.runtime.server.http.exchange import read_body, read_command, respond, respond_in_turn
from ramet.runtime.server.http.service import Service
from ramet.runtime.server.http.session_tree import Session, SessionTurn, TurnEnded
from ramet.runtime.server.native.progress import Progress

T = TypeVar("T")
MAX_ID = 256
PROBE_TEXT = "a"  # tokenised with and without special tokens, which shows the one that texts begin with
SessionId = Annotated[str, Meta(min_length=1, max_length=MAX_ID)]


class OpenBody(Struct, frozen=True, kw_only=True):
    capacity_of_str_len: Annotated[int | None, about("accepted; nothing is reserved")] = None
    session_id: Annotated[SessionId | None, about("its id; a new one if it is absent")] = None
    streaming: Annotated[
        bool | None, about("requests come one at a time and only append; needs `--enable-streaming-session`")
    ] = None
    timeout: Annotated[
        Annotated[float, Meta(gt=0)] | None,
        about("seconds without a request after which it is closed; absent: `--session-timeout-s`"),
    ] = None


class CloseBody(Struct, frozen=True, kw_only=True):
    session_id: Annotated[str, about("of a session; one that is not open is none to close")]


async def open_session(service: Service, request: web.Request) -> web.Response:
    """Open a session, whose requests go on from one another by their ids; the reply is its id, a JSON string."""
    body = await read_command(request, OpenBody)
    if body.streaming and not service.args.serve.enable_streaming_session:
        raise ClientError("streaming", "is True, but this server opens no such sessions", "--enable-streaming-session")
    _expire(service)
    timeout_s = body.timeout or service.args.serve.session_timeout_s
    opened = service.sessions.open(
        body.session_id or new_id(), timeout_s, time.monotonic(), streaming=bool(body.streaming), owner=OWNER.get()
    )
    return respond(opened.id)


async def close_session(service: Service, request: web.Request) -> web.Response:
    """Forget a session. What runs goes on; a streaming session closes when that has ended."""
    body = await read_body(request, CloseBody)
    if service.sessions.find(body.session_id, OWNER.get()) is None:
        LOGGER.info("a session was to be closed that is not open")
    _let_go(service, service.sessions.close(body.session_id, OWNER.get()))
    return web.Response()


async def take_turn(
    service: Service,
    request: web.Request,
    asked: SessionParams,
    prompt: Prompt,
    thought: ThoughtCount | None,
    *,
    stream: bool,
) -> web.StreamResponse:
    """A request of a session from the time when it is read, whole or as a stream."""
    deltas = service.args.serve.incremental_streaming_output
    with service.client.open(stream) as submission:
        piece = await submission.during(_ids_of(service, prompt))
        run = TurnRun(service, submission)
        _expire(service)
        origin, now_s = submission.origin, time.monotonic()
        turn = run.turn = service.sessions.begin(asked, prompt.rid, piece, run, now_s, origin.owner)
        submission.origin = origin._replace(owner=turn.session.owner)  # with the admin key it is another one's
        try:
            service.client.send([prompt._replace(content=Content(ids=turn.prompt))], submission)
            (sequence,) = submission.sequences
            if stream:
                run.growing = progress = Progress(sequence, UNSET, thought, deltas)
                return await sse.stream(request, submission, [lambda: run.noted(progress.events())])
            run.growing = GrowingReply(sequence, thought=thought)
            await submission.finished()
            return await respond_in_turn(request, run.noted(run.growing.whole()))
        finally:
            run.close()


class TurnRun:
    """A turn while the engine has it: what it has drawn, and how it ends."""

    def __init__(self, service: Service, submission: Submission) -> None:
        self._service, self._submission = service, submission
        self.turn: SessionTurn | None = None
        self.growing: GrowingReply | None = None  # None: it is not sent yet

    def output(self) -> bytes:
        return pack_ids(self.growing.ids) if self.growing is not None else b""

    def stop(self) -> None:
        self._service.client.end(self._submission, "another request of its session has taken its place")

    def noted(self, made: T) -> T:
        """Of a reply, or a part of one, that is about to be written: a client that reads the end may go on at once."""
        if self._submission.sequences[0].finish is not None:
            self.close()
        return made

    def close(self) -> None:
        """It has ended, or its client went away: the session has what has come. Later calls change nothing."""
        turn = self.turn
        if turn is None or turn.run is None:
            return
        sequence = self._submission.sequences[0] if self._submission.sequences else None
        finish = sequence.finish if sequence is not None else None
        ended = TurnEnded(finish is None or finish.aborted, self._submission.error is not None or sequence is None)
        closed = self._service.sessions.end(turn, self.output(), ended, time.monotonic())
        if sequence is not None and turn.session.last is turn and turn.session.streaming and closed is None:
            _hold(self._service, turn, sequence.prompt.spec)
        _let_go(self._service, closed)


async def _ids_of(service: Service, prompt: Prompt) -> bytes:
    """A request's own tokens, packed."""
    client, sessions = service.client, service.sessions
    if sessions.bos is None:
        whole, bare = [unpack_ids((await client.text.tokenize(PROBE_TEXT, special)).ids) for special in (True, False)]
        sessions.bos = pack_ids(whole[:1]) if whole[:1] != bare[:1] else b""
    if prompt.content.ids is not None:
        return prompt.content.ids
    assert prompt.content.text is not None, "a prompt of a session has a text or ids"
    return (await client.text.tokenize(prompt.content.text)).ids


def _expire(service: Service) -> None:
    for session in service.sessions.expire(time.monotonic()):
        _let_go(service, session)


# -- what the cache holds for streaming sessions -----------------------------------------------------------------------


def _hold(service: Service, turn: SessionTurn, spec: RequestSpec) -> None:
    """All tokens of its last turn, and no longer those of the one before."""
    before, held = turn.session.held, Prompt(f"session-{turn.rid}", spec, Content(ids=turn.prompt + turn.output))
    turn.session.held = held
    seconds = service.args.cache.max_prefix_lease_s
    asked = [(held, seconds)] if before is None else [(held, seconds), (before, 0.0)]
    service.client.background.begin(_ask_for(service.client, asked, turn.session.owner))


def _let_go(service: Service, session: Session | None) -> None:
    """Of a session that is closed."""
    if session is not None and session.held is not None:
        service.client.background.begin(_ask_for(service.client, [(session.held, 0.0)], session.owner))


async def _ask_for(client: EngineClient, leases: list[tuple[Prompt, float]], owner: Owner) -> None:
    """`owner`: of the session, whoever has asked now."""
    OWNER.set(owner)
    try:
        for held, seconds in leases:
            with client.submit([held._replace(spec=held.spec.holding(seconds))], False, probe=True) as submission:
                await submission.finished()
    except RametError as error:
        LOGGER.debug("the tokens of a streaming session are not held: %s", error)
