"""The tokenizer process: what comes is answered by an Encoder (encoder.py).

Abort takes the same path as Generate, so it cannot overtake its request. One bad request never ends the loop.
"""

import time
from collections.abc import Callable
from functools import partial

from ramet.ipc import paths
from ramet.ipc.channel import BatchOutbox, Outbox, Receiver, Sender
from ramet.ipc.messages import (
    Abort,
    CallRefused,
    Detokenize,
    Generate,
    GenerateAll,
    Limits,
    Rejected,
    Render,
    RenderChoices,
    RenderPrompt,
    Tokenize,
    ToTokenizer,
)
from ramet.ipc.paths import SocketFolder
from ramet.ipc.ring import MessageRing
from ramet.runtime.config import Args
from ramet.runtime.errors import ErrorRecord
from ramet.runtime.log import LOGGER
from ramet.runtime.machine import collect_rarely, unmap_large_blocks
from ramet.runtime.text.bounded_rendering import chats_here
from ramet.runtime.text.dispatch import ChatText, Dispatch, uids_of
from ramet.runtime.text.encoder import Encoder
from ramet.runtime.text.healing import check_healing
from ramet.runtime.text.long_calls import is_long_text
from ramet.runtime.text.rendering import ChatsElsewhere, RenderWorkers
from ramet.runtime.text.tokenizer import Tokenizer


def answer(
    encoder: Encoder,
    message: ToTokenizer | ChatText,
    scheduler: BatchOutbox,
    server: Outbox,
    aside: Callable[[ChatText], None] | None = None,
) -> None:
    """As Desk.serve. A failure of ours ends that request alone."""
    try:
        match message:
            case Generate():
                admitted = encoder.admit(message)
                (server if isinstance(admitted, Rejected) else scheduler).send(admitted)
            case GenerateAll():
                batch, rejected = encoder.admit_all(message)
                scheduler.send_all(batch)
                for each in rejected:
                    server.send(each)
            case Abort():
                scheduler.send(message)
            case Tokenize():
                server.send(encoder.tokenize(message))
            case Render():
                _render(encoder, message, server, aside)
            case ChatText():
                server.send(encoder.read(message))
            case Detokenize():
                server.send(encoder.detokenize(message))
            case RenderPrompt():
                server.send(encoder.segments.render(message))
            case RenderChoices():
                server.send(encoder.segments.render_choices(message))
            case Limits():
                LOGGER.warning("limits arrived twice; the first ones stay")
    except Exception as error:  # noqa: BLE001 - logged, and sent to the caller
        LOGGER.exception("the tokenizer failed on one %s", type(message).__name__)
        fact = f"failed in the tokenizer: {type(error).__name__}: {error}"
        if isinstance(message, Generate | GenerateAll):
            server.send(Rejected(uids_of(message), ErrorRecord("the request", fact, status=500)))
        elif isinstance(message, Tokenize | Render | Detokenize | RenderPrompt | RenderChoices | ChatText):
            server.send(CallRefused(message.call, ErrorRecord("the call", fact, status=500)))


def _render(encoder: Encoder, call: Render, server: Outbox, aside: Callable[[ChatText], None] | None) -> None:
    written = encoder.write(call)
    if isinstance(written, CallRefused):
        server.send(written)
    elif aside is not None and is_long_text(written.text):
        aside(written)
    else:
        server.send(encoder.read(written))


class EncoderDesk:
    """A Desk."""

    def __init__(self, encoder: Encoder) -> None:
        self.write_here, self.serve = encoder.write_here, partial(answer, encoder)


def dispatch_to(
    encoder: Encoder, scheduler: BatchOutbox, server: Outbox, own_server: Callable[[], Outbox], share: float = 1.0
) -> Dispatch:
    return Dispatch(EncoderDesk(encoder), scheduler, server, own_server, share)


def run(args: Args, sockets: SocketFolder, worker: int, ready: Callable[[list[tuple[str, float]]], None]) -> None:
    """The whole life of one tokenizer process; it ends when it is killed."""
    collect_rarely()  # a call's arguments may be hundreds of thousands of lists
    unmap_large_blocks()  # texts may be as large as bodies, and come with many others
    started = time.perf_counter()
    ring = MessageRing(sockets.ring(paths.tokenizer(worker)), ToTokenizer, {Generate: "uids", GenerateAll: "items"})
    tokenizer = Tokenizer.from_folder(args.tokenizer_folder)
    check_healing(args, tokenizer)
    workers = RenderWorkers.of(args)
    loaded = time.perf_counter()
    inbox: Receiver[ToTokenizer] = Receiver(sockets.address(paths.tokenizer(worker)), ToTokenizer, large=True)
    scheduler = Sender(sockets.address(paths.SCHEDULER))
    server = Sender(sockets.address(paths.SERVER))
    ready([("load tokenizer", loaded - started), ("open sockets", time.perf_counter() - loaded)])
    limits, early = _await_limits(inbox)
    encoder = Encoder(tokenizer, limits, ChatsElsewhere(workers), chats_here=chats_here(workers.sources))
    own_server = partial(Sender, sockets.address(paths.SERVER))
    dispatch = dispatch_to(encoder, scheduler, server, own_server, args.share_per_key)
    dispatch.run(workers.warm)
    for message in early:
        dispatch.handle(message)
    ring.handle_all(inbox, dispatch.handle)


def _await_limits(inbox: Receiver[ToTokenizer]) -> tuple[Limits, list[ToTokenizer]]:
    """The limits, and what other senders said before them."""
    early: list[ToTokenizer] = []
    while not isinstance(message := inbox.recv(), Limits):
        assert message is not None, "a wait without a timeout ended without a message"
        early.append(message)
    return message, early
