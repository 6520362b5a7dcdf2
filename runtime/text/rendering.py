"""Writes chats in worker processes, which are killed if a template takes too long: the parent's side.

A chat passes through as JSON: only the worker looks into it. A text that has too many bytes for a prompt does not come
back, and is not written to its end. Decides how many workers exist and how failures are
handled: a rendering whose worker was killed from outside is tried again in a new process, because another chat may have
taken the machine's memory. A worker's process starts with its first rendering or ahead of it (`warm`). What runs in the
process is in render_worker.py.
"""

import queue
import time

from ramet.ipc.media import MediaTokens
from ramet.ipc.messages import Chat
from ramet.runtime.config import Args
from ramet.runtime.errors import ClientError, describe
from ramet.runtime.exact_json import Bytes, encode
from ramet.runtime.log import LOGGER
from ramet.runtime.text.chat_template import ChatTemplate, RenderingEnded, RenderLimits, cannot_render
from ramet.runtime.text.chats import Chats
from ramet.runtime.text.context import TooManyBytes
from ramet.runtime.text.render_worker import (
    ChatEnded,
    Frame,
    Outcome,
    Rendered,
    RendererReady,
    RenderingRefused,
    RenderJob,
    Templates,
    Withheld,
)
from ramet.runtime.text.template_files import TemplateSources, read_templates
from ramet.runtime.workers.subordinate import WAITED_FOR
from ramet.runtime.workers.worker_process import TRIES, TimedOut, WorkerEnded, WorkerProcess, tried

WORKERS = 2  # so that one slow chat leaves a worker to the others
GRACE_S = 0.5  # beyond a rendering's time: most late renderings report it themselves, and their process continues
BUSY = 6  # times its timeout that a rendering may take while other processes have the machine's cores
QUIET_S = 10.0  # between two lines of the log about renderings that were ended


class RenderWorkers:
    """Render chats for any thread. A caller waits for a free worker and then for the text."""

    def __init__(self, sources: TemplateSources, limits: RenderLimits) -> None:
        self.limits, self.sources = limits, sources
        options = [str(limits.timeout_s), str(limits.memory_mb), str(WAITED_FOR)]
        module = "ramet.runtime.text.render_worker"
        self._workers: list[WorkerProcess[Frame]] = [WorkerProcess(module, options, Frame) for _ in range(WORKERS)]
        self._free: queue.LifoQueue[WorkerProcess[Frame]] = queue.LifoQueue()  # the last has a process
        for worker in self._workers:
            self._free.put(worker)
        self._closed = False
        self._noted_s = float("-inf")  # when the log last said that a rendering was ended

    @classmethod
    def of(cls, args: Args) -> "RenderWorkers":
        """Raises ConfigError for a template that cannot be read or compiled."""
        model = args.model
        limits = RenderLimits(model.chat_template_timeout_s, model.chat_template_memory_mb)
        sources = read_templates(args.tokenizer_folder, model.chat_template)
        ChatTemplate(sources, limits).check()
        return cls(sources, limits)

    def warm(self) -> None:
        """Start a worker, so that the first chat need not wait for it, if there is a template."""
        if not self.sources.by_name:
            return
        worker = self._free.get()
        try:
            self._start(worker)
        except (TimedOut, WorkerEnded) as error:  # the first chat tries again
            LOGGER.warning("no rendering worker could be started ahead of time: %s", error or "it takes too long")
        finally:
            self._free.put(worker)

    def render(self, chat: Bytes, media: MediaTokens, max_bytes: int | None = None) -> str:
        """What Chats.render_json makes of the chat. Raises ClientError and TooManyBytes."""
        if not self.sources.by_name:  # it is refused, and no process is needed for that
            return Chats(self.sources).with_media(media).render_json(chat)
        worker = self._free.get()
        try:
            outcome = self._tried(worker, RenderJob(media, max_bytes), chat)
        except TimedOut as error:
            self._note(self.limits.too_long)
            if error.starved:
                raise RenderingEnded(f"{self.limits.too_long}, but the machine was busy", 503) from None
            raise RenderingEnded(self.limits.too_long) from None
        except WorkerEnded as error:
            raise self._ended(error) from None
        finally:
            self._free.put(worker)
        match outcome:
            case Rendered(text):
                return text
            case Withheld():
                raise TooManyBytes
            case ChatEnded(why):
                self._note(why)
                raise RenderingEnded(why)
            case RenderingRefused(record):
                raise ClientError.of(record)

    def _note(self, why: str) -> None:
        """Log that a rendering was ended, at most once in QUIET_S: any client can send such a chat again and again."""
        now_s = time.monotonic()
        if now_s - self._noted_s > QUIET_S:
            self._noted_s = now_s
            LOGGER.warning("the rendering of a chat was ended: %s", why)

    def close(self) -> None:
        """When this returns, the processes have ended. Renderings in progress fail."""
        self._closed = True
        for worker in self._workers:
            worker.close()

    def _tried(self, worker: WorkerProcess[Frame], job: RenderJob, chat: Bytes) -> Outcome:
        line = "a rendering worker ended with %s; its chat is tried again"
        return tried(
            lambda: self._run(worker, job, chat), lambda: self._closed, lambda error: LOGGER.warning(line, error)
        )

    def _run(self, worker: WorkerProcess[Frame], job: RenderJob, chat: Bytes) -> Outcome:
        self._start(worker)
        timeout_s = self.limits.timeout_s + GRACE_S
        outcome = worker.run(job, timeout_s, BUSY * timeout_s, attached=chat)
        assert not isinstance(outcome, RendererReady)
        return outcome

    def _start(self, worker: WorkerProcess[Frame]) -> None:
        if worker.start() is not None:
            worker.tell(Templates(self.sources), self.limits.timeout_s)

    def _ended(self, error: WorkerEnded) -> RenderingEnded:
        if self._closed:
            return RenderingEnded("the engine was closed", 503)
        LOGGER.warning("a rendering worker ended with %s", error)
        if error.from_outside:
            return RenderingEnded(f"{TRIES} processes ended with {error}, which may mean that memory ran out", 503)
        return RenderingEnded(f"{self.limits.too_large}, or is nested too deeply: its process ended with {error}")


class ChatsElsewhere:
    """A ChatWriter by worker processes."""

    def __init__(self, workers: RenderWorkers, media: MediaTokens | None = None) -> None:
        self._workers, self._media = workers, media or {}

    @property
    def limits(self) -> RenderLimits:
        return self._workers.limits

    def with_media(self, media: MediaTokens) -> "ChatsElsewhere":
        return ChatsElsewhere(self._workers, media)

    def render(self, asked: Chat) -> str:
        try:
            chat = encode(asked)
        except RecursionError as error:
            raise cannot_render(f"RecursionError: {describe(error)}") from None
        return self.render_json(chat)

    def render_json(self, chat: Bytes, max_bytes: int | None = None) -> str:
        return self._workers.render(chat, self._media, max_bytes)
