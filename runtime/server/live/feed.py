"""What viewers of the live state are sent: one question to the scheduler twice a second for all of them together.

Decides how often it is asked, and what a viewer gets that did not read for a while: the whole state instead of the
changes that it has missed. So a viewer holds the bytes that are being written to it and nothing more, and the scheduler
does not know how many there are. Nobody is asked while there is no viewer.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import msgspec
from msgspec.structs import replace

from ramet.ipc.control import Unwatch, Watch
from ramet.ipc.live import LiveState, NodeRow, SequenceRow, TreeChanges
from ramet.runtime.engine_client.client import EngineClient
from ramet.runtime.errors import RametError, ServerError
from ramet.runtime.log import LOGGER
from ramet.runtime.server.http import problems
from ramet.runtime.server.http.sse import named
from ramet.runtime.server.live.history import History

ASK_EVERY_S = 0.5
MAX_VIEWERS = 32


class LiveEvent(msgspec.Struct, frozen=True, tag="state", tag_field="type"):
    """`state.tree.begins`: what was sent before is void. `sample`: the newest of /ui/history."""

    version: int
    state: LiveState
    sample: dict[str, float]


class LiveFeed:
    def __init__(self, client: Callable[[], EngineClient], history: History) -> None:
        self._client, self._history = client, history
        self._nodes: dict[int, NodeRow] = {}
        self._state: LiveState | None = None  # with the last changes; None: nobody asks
        self._version = 0
        self._encoded: dict[bool, bytes] = {}  # of this version: the changes, and (True) everything
        self._news = asyncio.Condition()
        self._num_viewers = 0
        self._asking: asyncio.Task[None] | None = None
        self._failure: RametError | None = None
        self._is_closed = False

    @contextmanager
    def viewing(self) -> Iterator["Viewer"]:
        """Raises ServerError where there are too many."""
        if self._num_viewers >= MAX_VIEWERS:
            raise ServerError(f"{MAX_VIEWERS} clients look at the live state already, no more are served.", 503)
        self._client().check_alive()
        self._num_viewers += 1
        if self._asking is None and not self._is_closed:
            self._failure = None
            self._asking = asyncio.create_task(self._ask())
        try:
            yield Viewer(self)
        finally:
            self._num_viewers -= 1

    async def close(self) -> None:
        """Every stream ends."""
        self._is_closed = True
        if self._asking is not None:
            self._asking.cancel()
        await self._tell()

    async def after(self, seen: int) -> tuple[int, bytes] | None:
        """The next version after the one that was seen (0: none), and its event. None: there will be none."""
        async with self._news:
            await self._news.wait_for(lambda: self._is_over or (self._state is not None and self._version > seen))
        if self._is_over:
            return None
        return self._version, self._event(whole=seen + 1 != self._version)

    @property
    def _is_over(self) -> bool:
        return self._is_closed or self._failure is not None

    async def _ask(self) -> None:
        """As long as there are viewers, and one turn longer."""
        try:
            begins = True
            while self._num_viewers:
                reply = await self._client().admin.control(partial(Watch, begins=begins))
                await self._take(msgspec.json.decode(reply.body, type=LiveState))
                begins = False
                await asyncio.sleep(ASK_EVERY_S)
                if not self._num_viewers:
                    self._state, begins = None, True
                    await self._client().admin.control(Unwatch)
        except RametError as error:
            await self._fail(error)
        except Exception:  # noqa: BLE001  a bug ends the streams alone
            LOGGER.exception("the live state cannot be shown")
            await self._fail(problems.internal())
        finally:
            self._asking, self._state = None, None

    async def _take(self, state: LiveState) -> None:
        tree = state.tree
        if tree.begins:
            self._nodes.clear()
        for number in (*tree.removed, *tree.left_out):
            self._nodes.pop(number, None)
        self._nodes.update((row.id, row) for row in tree.nodes)
        self._state = replace(state, running=self._named(state.running), waiting=self._named(state.waiting))
        self._version += 1
        self._encoded.clear()
        await self._tell()

    def _named(self, rows: list[SequenceRow]) -> list[SequenceRow]:
        """With the ids that clients know."""
        return [replace(row, rid=self._client().admin.id_of(row.uid)) for row in rows]

    def _event(self, whole: bool) -> bytes:
        assert self._state is not None
        if whole not in self._encoded:
            state = replace(self._state, tree=self._whole(self._state.tree)) if whole else self._state
            self._encoded[whole] = named(LiveEvent(self._version, state, self._history.newest))
        return self._encoded[whole]

    def _whole(self, tree: TreeChanges) -> TreeChanges:
        return replace(tree, begins=True, nodes=list(self._nodes.values()), removed=[], left_out=[])

    async def _fail(self, error: RametError) -> None:
        self._failure = error
        await self._tell()

    async def _tell(self) -> None:
        async with self._news:
            self._news.notify_all()


class Viewer:
    def __init__(self, feed: LiveFeed) -> None:
        self._feed, self._seen = feed, 0

    async def next(self) -> bytes | None:
        """The next event, once there is one. None: the stream ends."""
        found = await self._feed.after(self._seen)
        if found is None:
            return None
        self._seen, event = found
        return event
