"""Replies of an `LLM` while they grow: cumulative, one for each sequence that has something new."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from typing import Any

from msgspec import UNSET, UnsetType

from ramet.ipc.owned import NotCopied
from ramet.runtime.engine_client.client import EngineClient
from ramet.runtime.engine_client.prompt import Prompt
from ramet.runtime.engine_client.submission import GeneratedSequence, Submission
from ramet.runtime.intake.programs import ChatCall
from ramet.runtime.intake.reply import GrowingReply, made_in_turn
from ramet.runtime.replies.long_list import Listed, LongList, parts_of

Reply = dict[str, Any]


def sending(prompts: list[Prompt]) -> Callable[[EngineClient, Submission], Awaitable[None]]:
    return lambda handle, submission: handle.send_in_pieces(prompts, submission)


async def send_chat(call: ChatCall, handle: EngineClient, submission: Submission) -> None:
    prompt, _ = await submission.during(call(handle.text.render, handle.preparing(submission)))
    handle.send([prompt], submission)


class ReplyStream(NotCopied):
    """One request's replies as they grow. It is submitted with the first `next`. For the engine's event loop."""

    only_one = "it is one request that runs; ask once more"

    def __init__(self, handle: EngineClient, send: Callable[[EngineClient, Submission], Awaitable[None]]) -> None:
        self._handle, self._send = handle, send
        self._block = ExitStack()
        self._submission: Submission | None = None

    async def next(self) -> list[Reply]:
        """One for each sequence that has something new; [] at the end."""
        if self._submission is None:
            self._submission = self._block.enter_context(self._handle.open(streaming=True, as_batch=True))
            await self._send(self._handle, self._submission)
            several = len(self._submission.sequences) > 1
            self._replies = [GrownReply(s, s.index if several else UNSET) for s in self._submission.sequences]
        return [await made_in_turn(self._replies[each.index].whole()) for each in await self._submission.next()]

    def leave(self) -> None:
        """What has not ended is aborted."""
        self._block.close()


class GrownReply(GrowingReply):
    """For a stream: entries that were made for a reply are in the later ones as well."""

    def __init__(self, sequence: GeneratedSequence, index: int | UnsetType) -> None:
        super().__init__(sequence, index)
        self._lists: dict[str, list[Any]] = defaultdict(list)  # by the fields of meta_info

    def _grown(self, name: str, new: Listed) -> LongList:
        return LongList(_remembered(self._lists[name], new))


def _remembered(made: list[Any], new: Listed) -> Iterator[list[Any]]:
    yield made.copy()
    for part in parts_of(new):
        assert isinstance(part, list), "a log-probability is no list of lists"
        made += part
        yield part
