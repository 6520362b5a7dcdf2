"""Which thread of a tokenizer serves a message.

Decides: chats are rendered on two threads, long texts are tokenised on one, and keys of clients take turns on both.
So neither a slow template nor a long text keeps other messages waiting, which are served at once, in order. Of one
key's chats those of different size have equal shares of the threads, so that small ones overtake large ones. A small
chat whose template is known to take little is one of these. The text that a chat becomes is a long text like any other.
What a thread has to send to the scheduler goes through prompt_order.py.
"""

import threading
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from ramet.ipc import messages
from ramet.ipc.channel import BatchOutbox, Outbox
from ramet.ipc.message import Uid
from ramet.runtime.text.long_calls import is_long, is_long_text
from ramet.runtime.text.prompt_order import PromptOrder
from ramet.runtime.text.rendering import WORKERS
from ramet.runtime.workers.fair_threads import FairThreads


class ChatText(NamedTuple):
    """A chat as text, without its ids."""

    call: int
    owner: str
    text: str
    may_exceed: bool
    has_media: bool


class Desk(Protocol):
    """Serves messages, in any thread."""

    def write_here(self, call: messages.Render, /) -> ChatText | messages.CallRefused | None:
        """Render a chat if that takes little. None: it is left to another thread."""

    def serve(
        self,
        message: messages.ToTokenizer | ChatText,
        /,
        scheduler: BatchOutbox,
        server: Outbox,
        aside: Callable[[ChatText], None] | None = None,
    ) -> None:
        """`aside` takes a chat with a long text."""


class Dispatch:
    """`server` is for the thread that calls `handle`; `own_server` makes one for each other thread.

    `share`: the part of the threads that one key may have.
    """

    def __init__(
        self,
        desk: Desk,
        scheduler: BatchOutbox,
        server: Outbox,
        own_server: Callable[[], Outbox],
        share: float = 1.0,
    ) -> None:
        self._desk, self._scheduler, self._server = desk, PromptOrder(scheduler), server
        self._own_server, self._own = own_server, threading.local()
        self._chats = FairThreads(WORKERS, "ramet-chats", self._answer, share)
        self._long_texts = FairThreads(1, "ramet-long-texts", self._answer, share)

    def handle(self, message: messages.ToTokenizer) -> None:
        """For one thread, in the order of arrival."""
        if is_long(message):
            self._leave(message)
        elif type(message) is messages.Render:
            self._render(message)
        elif isinstance(message, messages.RenderPrompt | messages.RenderChoices) and _has_chat(message):
            self._chats.put(owner_of(message), message)
        elif (
            isinstance(message, messages.Tokenize) and message.after_prompts and self._scheduler.has_left(message.owner)
        ):
            self._long_texts.put(message.owner, message)
        else:
            self._desk.serve(message, self._scheduler, self._server)

    def run(self, work: Callable[[], None]) -> None:
        """Run `work` on one of the threads for chats: a process ends with the thread that started it."""
        self._chats.run(work)

    def close(self) -> None:
        """Drop what waits, and wait for what runs: after RenderWorkers.close that is no chat."""
        self._chats.close()
        self._long_texts.close()

    def _leave(self, message: messages.ToTokenizer) -> None:
        owner = owner_of(message)
        if isinstance(message, messages.Generate | messages.GenerateAll):
            self._scheduler.leaves(owner, uids_of(message))
        self._long_texts.put(owner, message)

    def _render(self, call: messages.Render) -> None:
        written = self._desk.write_here(call)
        if written is None:
            self._chats.put(call.owner, call, len(call.chat))
        elif isinstance(written, messages.CallRefused):
            self._server.send(written)
        elif is_long_text(written.text):
            self._put_aside(written)
        else:
            self._desk.serve(written, self._scheduler, self._server)

    def _put_aside(self, chat: ChatText) -> None:
        self._long_texts.put(chat.owner, chat)

    def _answer(self, message: Any) -> None:
        """On one of the threads."""
        if not hasattr(self._own, "server"):
            self._own.server = self._own_server()
        try:
            self._desk.serve(message, self._scheduler, self._own.server, self._put_aside)
        finally:
            if isinstance(message, messages.Generate | messages.GenerateAll):
                self._scheduler.returns(owner_of(message), uids_of(message))


def _has_chat(call: messages.RenderPrompt | messages.RenderChoices) -> bool:
    """Whether a prompt needs a chat template."""
    return any(isinstance(segment, messages.ChatTurn) for segment in call.segments)


def owner_of(message: Any) -> str:
    """The name of the key that sent a message; empty: it is not bounded."""
    match message:
        case messages.Generate():
            return message.spec.key_name
        case messages.GenerateAll(items=[first, *_]):
            return first.spec.key_name
    owner: str = getattr(message, "owner", "")
    return owner


def uids_of(prompt: messages.Generate | messages.GenerateAll) -> list[Uid]:
    items = prompt.items if isinstance(prompt, messages.GenerateAll) else [prompt]
    return [uid for item in items for uid in item.uids]
