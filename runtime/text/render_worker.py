"""A rendering worker: `python -m ramet.runtime.text.render_worker TIMEOUT_S MEMORY_MB NICENESS`, ended by its parent.

It is a separate process because anybody may write a chat template, and a filter of Jinja cannot be interrupted. The
parent kills it at its deadline, and its memory beyond its libraries is bounded. Its first job holds the templates. It
ends by itself after a rendering that left much memory in use, so that the next one can use all that is allowed.
"""

import gc
import select
import sys
from collections.abc import Callable
from functools import partial

import msgspec

from ramet.ipc.media import MediaTokens
from ramet.runtime.errors import ClientError, ErrorRecord, describe
from ramet.runtime.machine import collect_rarely, keep_freed_blocks, trim_heap
from ramet.runtime.text.chat_template import ChatTemplate, RenderingEnded, RenderLimits, cannot_render
from ramet.runtime.text.chats import Chats
from ramet.runtime.text.context import TooManyBytes
from ramet.runtime.text.template_files import TemplateSources
from ramet.runtime.workers import subordinate

LEFT = 0.25  # the part of its memory which, if still in use after a rendering, makes the process end
SMALL = 1 << 14  # bytes of a chat up to which Python decides when it looks for the cycles that a rendering leaves
KEPT = 1 / 16  # the part of it that stays for the next rendering after it was freed
TRIM_AFTER_S = 1.0  # without a chat, after which freed memory goes back to the system


class Templates(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The first job of a process. It has no answer."""

    sources: TemplateSources


class RenderJob(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The chat is in a frame of its own: a Chat as JSON, whose numbers keep their digits."""

    media: MediaTokens  # of the kinds that the model takes
    max_bytes: int | None = None  # of a text that comes back; a longer one is not written to its end


class RendererReady(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The first frame: the libraries are loaded."""


class Rendered(msgspec.Struct, frozen=True, tag=True, array_like=True):
    text: str


class Withheld(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A text that has more bytes than it may have."""


class RenderingRefused(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """An error of the client's."""

    error: ErrorRecord


class ChatEnded(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The rendering exceeded a bound."""

    why: str


Outcome = Rendered | Withheld | RenderingRefused | ChatEnded
Frame = RendererReady | Outcome


def main(argv: list[str]) -> None:
    subordinate.be_subordinate(int(argv[3]))
    collect_rarely()  # a chat may be hundreds of thousands of objects
    stdin, stdout = sys.stdin.buffer, subordinate.private_stdout()
    limits = RenderLimits(float(argv[1]), float(argv[2]))
    chats, media = Chats(TemplateSources()), MediaTokens()
    gc.collect()
    gc.freeze()
    loaded = subordinate.mapped_bytes()
    subordinate.limit_memory(int(limits.memory_mb * (1 << 20)))
    keep_freed_blocks(int(KEPT * limits.memory_mb * (1 << 20)))
    subordinate.write_frame(stdout, msgspec.msgpack.encode(RendererReady()))
    while (data := subordinate.read_frame(stdin)) is not None:
        job = msgspec.msgpack.decode(data, type=Templates | RenderJob)
        if isinstance(job, Templates):
            chats, media = Chats(job.sources, ChatTemplate(job.sources, limits)), MediaTokens()
            continue
        if job.media != media:
            chats, media = chats.with_media(job.media), job.media
        if (chat := subordinate.read_frame(stdin)) is None:
            return
        subordinate.write_frame(stdout, _answer(partial(chats.render_json, chat, job.max_bytes), limits))
        is_small = len(chat) <= SMALL
        del data, job, chat
        if not is_small:
            gc.collect()
        if subordinate.mapped_bytes() - loaded > LEFT * limits.memory_mb * (1 << 20):
            return
        if not select.select([stdin], [], [], TRIM_AFTER_S)[0]:
            trim_heap()


def _answer(render: Callable[[], str], limits: RenderLimits) -> bytes:
    try:
        return msgspec.msgpack.encode(Rendered(render()))
    except TooManyBytes:
        return msgspec.msgpack.encode(Withheld())
    except RenderingEnded as error:
        return msgspec.msgpack.encode(ChatEnded(error.why))
    except MemoryError:  # from the code around the rendering
        return msgspec.msgpack.encode(ChatEnded(limits.too_large))
    except ClientError as error:
        return msgspec.msgpack.encode(RenderingRefused(error.record))
    except Exception as error:  # noqa: BLE001 - a text with lone surrogates, a chat that is nested too deeply
        refused = cannot_render(f"{type(error).__name__}: {describe(error)}")
        return msgspec.msgpack.encode(RenderingRefused(refused.record))


if __name__ == "__main__":
    main(sys.argv)
