"""The engine within this process: the scheduler and the tokenizer on threads of their own, the same messages.

    event loop ── Generate, Abort, Render ──> tokenizer thread ── Generate, Abort ──> scheduler thread
    event loop <── TokenStep, ControlReply, Stats ── scheduler thread

Decides which thread does what. The model is loaded and run on the scheduler's thread alone, so that its pool of CPU
threads ends with it. Prompts are tokenized on the tokenizer's thread, which keeps their order, so that an Abort cannot
overtake its prompt and a long prompt cannot hold up the event loop. Chats are rendered beside it (text/rendering.py).
Tokens are decoded on the event loop, while the scheduler computes the next step: those of streams at every step, others
some steps at a time.
"""

import asyncio
import gc
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ramet.ipc.channel import ThreadInbox
from ramet.ipc.folders import OwnedFolder
from ramet.ipc.loop_thread import call_soon
from ramet.ipc.message import Message
from ramet.ipc.messages import Limits, TokenStep, ToScheduler, ToServer, ToTokenizer, Wake
from ramet.runtime.config import Args
from ramet.runtime.engine.batch import LoadedRunner
from ramet.runtime.engine_client.client import EngineClient
from ramet.runtime.errors import ConfigError, EngineClosed, EngineFailed
from ramet.runtime.log import LOGGER
from ramet.runtime.media.service import MediaIntake
from ramet.runtime.metrics.table import Metrics
from ramet.runtime.processes.threads import Arrivals, EngineThread
from ramet.runtime.scheduler.process.compose import SchedulerChannels, compose
from ramet.runtime.scheduler.process.start import limits_of, make_grammars
from ramet.runtime.text.bounded_rendering import chats_here
from ramet.runtime.text.detokenizer_process import Detokenizer
from ramet.runtime.text.dispatch import Dispatch
from ramet.runtime.text.encoder import Encoder
from ramet.runtime.text.rendering import ChatsElsewhere, RenderWorkers
from ramet.runtime.text.tokenizer import Tokenizer
from ramet.runtime.text.tokenizer_process import dispatch_to

FILES = "ramet-media-"  # of the folder for prepared media


class InProcessEngine:
    """Belongs to the event loop that it was started on."""

    client: EngineClient  # its handle, from `_begin` on

    def __init__(self, args: Args, tokenizer: Tokenizer, load: Callable[[], LoadedRunner]) -> None:
        self._args, self._tokenizer, self._rendering = args, tokenizer, RenderWorkers.of(args)
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._to_scheduler: ThreadInbox[ToScheduler] = ThreadInbox()
        self._to_tokenizer: ThreadInbox[ToTokenizer] = ThreadInbox()
        self._arrivals = Arrivals(self._loop, self._deliver, self._can_wait)
        self._detokenizer = Detokenizer(tokenizer)
        self._media: MediaIntake | None = None
        self._dispatch: Dispatch | None = None
        self._threads = [EngineThread("scheduler", self._loop, partial(self._schedule, load), self._failed)]

    @classmethod
    async def start(cls, args: Args, tokenizer: Tokenizer, load: Callable[[], LoadedRunner]) -> "InProcessEngine":
        """Returns when `load`, which the scheduler's thread calls, has loaded the model. Raises what that raises.

        Raises ConfigError for a chat template that cannot be read. Cancelled, it leaves the thread to end by itself.
        """
        engine = cls(args, tokenizer, load)
        try:
            await asyncio.shield(engine._ready)
        except Exception:
            await engine._threads[0].ended()
            raise
        except asyncio.CancelledError:
            engine._stop()
            raise
        return engine

    async def close(self) -> None:
        """Every open call ends with EngineClosed, then the threads: the scheduler's after the step that runs now."""
        self.client.fail(EngineClosed())
        self._stop()
        for thread in self._threads:
            await thread.ended()
        self._rendering.close()
        if self._dispatch is not None:
            self._dispatch.close()
        if self._media is not None:
            await self._media.close()
            self._files.remove()
        gc.collect()  # the model, whose parts refer to one another; a collection beside another thread's does nothing

    def _stop(self) -> None:
        self._to_tokenizer.stop()
        self._to_scheduler.stop()

    def owns(self, thread: threading.Thread) -> bool:
        return thread in self._threads

    # -- on the scheduler's thread ----------------------------------------------------------------------------------

    def _schedule(self, load: Callable[[], LoadedRunner]) -> None:
        runner = load()
        wake = partial(self._to_scheduler.send, Wake())
        channels = SchedulerChannels(self._to_scheduler, self._arrivals, self._arrivals, wake)
        grammars = make_grammars(self._args, self._tokenizer, runner.facts.vocab_size, wake)
        eos_ids = self._tokenizer.eos_ids
        scheduler = compose(self._args, runner, channels, self._tokenizer, eos_ids, grammars=grammars).scheduler
        call_soon(self._loop, self._loaded, limits_of(runner, scheduler))
        try:
            scheduler.run()
        finally:
            scheduler.close()

    def _can_wait(self, message: Message) -> bool:
        """Nobody reads a token before the end of its request, unless there is a stream."""
        if not isinstance(message, TokenStep):
            return False
        return not (message.opened or message.closed or self.client.requests.num_streams)

    # -- on the tokenizer's thread ----------------------------------------------------------------------------------

    def _tokenize(self, dispatch: Dispatch) -> None:
        while True:
            for message in self._to_tokenizer.drain(block=True):
                dispatch.handle(message)

    # -- on the event loop ------------------------------------------------------------------------------------------

    def _loaded(self, limits: Limits) -> None:
        try:
            self._begin(limits)
        except Exception as error:  # noqa: BLE001 - whoever waits for the start gets it
            self._failed("start", error)

    def _begin(self, limits: Limits) -> None:
        if limits.media:
            self._files = _files()
            self._media = MediaIntake(self._args.model_folder, self._files.path, self._args.media)
        self.client = EngineClient(
            [self._to_tokenizer],
            self._to_scheduler,
            limits,
            Metrics(),
            self._args,
            max_numbers=None,  # the bound is for servers, whose other clients wait while a reply is written
            media=self._media,
        )
        sources = self._rendering.sources
        chats = ChatsElsewhere(self._rendering)
        encoder = Encoder(self._tokenizer, limits, chats, chats_here=chats_here(sources))
        self._dispatch = dispatch_to(encoder, self._to_scheduler, self._arrivals, lambda: self._arrivals)
        tokenize = partial(self._tokenize, self._dispatch)
        self._threads.append(EngineThread("tokenizer", self._loop, tokenize, self._failed))
        self._ready.set_result(None)

    def _deliver(self, message: TokenStep | ToServer) -> None:
        try:
            self.client.deliver(self._detokenizer.step(message) if isinstance(message, TokenStep) else message)
        except Exception as error:  # noqa: BLE001 - logged, and every call ends with it
            self._failed("detokenizer", error)

    def _failed(self, name: str, error: BaseException) -> None:
        """A part of the engine ended with this exception: so does the engine."""
        self._stop()
        if not self._ready.done():
            self._ready.set_exception(error)
            return
        LOGGER.error("the in-process engine's %s failed", name, exc_info=error)
        self.client.fail(EngineFailed(name, error))


def _files() -> OwnedFolder:
    """For prepared media. Raises ConfigError."""
    try:
        return OwnedFolder.make(Path(tempfile.gettempdir()), FILES)
    except OSError as error:
        raise ConfigError(f"no folder for prepared media can be made: {error}; set TMPDIR to one with room") from None
