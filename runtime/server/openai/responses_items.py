"""The output of a response: reasoning, message and function_call items, which grow part by part, and their events.

A response that is not streamed is read the same way, without events.
"""

import asyncio
from typing import Any

from msgspec.structs import replace

from ramet.ipc.messages import Finish, FinishKind
from ramet.runtime.engine_client.submission import Sequence
from ramet.runtime.errors import ClientError, RametError
from ramet.runtime.intake import prompts
from ramet.runtime.intake.parsers.tools import CallArguments, CallStart
from ramet.runtime.intake.reading import MAX_AT_ONCE, Part, Reader, Thought, refuse_aborted
from ramet.runtime.server.http import problems, sse
from ramet.runtime.server.openai import responses_replies as replies
from ramet.runtime.server.openai.logprobs import token_logprobs
from ramet.runtime.server.openai.replies import CachedTokens, ReasoningTokens, TokenLogprob


class Output:
    """Reads one sequence, by `events` for a stream or by `read_whole`. Then `response` is the whole response."""

    def __init__(self, sequence: Sequence, reader: Reader, response: replies.ResponseReply) -> None:
        self._sequence, self._reader, self.response = sequence, reader, response
        self._items: list[replies.OutputItem] = []  # those that are closed
        self._open: replies.OutputItem | None = None
        self._texts: list[str] = []  # of the open item
        self._logprobs: list[TokenLogprob] = []  # of the open item
        self._pending: list[TokenLogprob] = []  # of tokens whose text is not certain yet
        self._events: list[bytes] | None = []  # not written yet; None: the response is not streamed
        self._number = 0

    def events(self) -> bytes:
        """The events of what is new."""
        sequence, first = self._sequence, self._sequence.num_taken
        if not self._number:
            self._emit(replies.ResponseCreated, response=self.response)
            self._emit(replies.ResponseInProgress, response=self.response)
        texts, _ = sequence.take()
        self._read(texts, first)
        if sequence.finish is not None:
            self._end(sequence.finish)
        return self._taken()

    async def read_whole(self) -> None:
        """All of a sequence that has ended, without events. Other requests are served in between."""
        self._events = None
        texts, _ = self._sequence.take()
        for start in range(0, len(texts), MAX_AT_ONCE):
            self._read(texts[start : start + MAX_AT_ONCE], start)
            await asyncio.sleep(0)
        assert self._sequence.finish is not None
        self._end(self._sequence.finish)

    def failure(self, error: RametError) -> bytes:
        """The last events of a stream that failed."""
        self._close("incomplete")
        body = problems.openai(error)
        code = (body.code or "invalid_prompt") if isinstance(error, ClientError) else "server_error"
        self._finish(replies.ResponseFailed, "failed", error=replies.ResponseError(code, body.message))
        return self._taken()

    def _taken(self) -> bytes:
        events, self._events = b"".join(self._events or ()), []
        return events

    def _read(self, texts: list[str], first: int) -> None:
        """`first`: the place of the first of these tokens."""
        lists = self._sequence.logprobs
        for place, text in enumerate(texts, first):
            if lists is not None:
                self._pending += token_logprobs(lists, place, place + 1)
            thinking = self._reader.thinking
            parts = self._reader.push(text)
            if thinking and not self._reader.thinking and not parts:
                self._pending.clear()  # the tag that closed a thought
            for part in parts:
                self._add(part)

    def _add(self, part: Part) -> None:
        if not isinstance(part, str):
            self._pending.clear()  # of a thought's tokens, or a call's
        match part:
            case Thought(text):
                if not isinstance(self._open, replies.ReasoningItem):
                    self._begin(replies.ReasoningItem(f"rs_{prompts.new_id()}"), replies.ReasoningText(""))
                self._emit(replies.ReasoningDelta, **self._at, delta=text)
            case str(text):
                if not isinstance(self._open, replies.MessageItem):
                    self._begin(
                        replies.MessageItem(f"msg_{prompts.new_id()}"), replies.OutputText(text="", logprobs=[])
                    )
                logprobs, self._pending = self._pending, []
                self._logprobs += logprobs
                self._emit(replies.OutputTextDelta, **self._at, delta=text, logprobs=logprobs)
            case CallStart(name):
                self._begin(replies.CallItem(f"fc_{prompts.new_id()}", call_id=self._reader.new_call_id(), name=name))
                return
            case CallArguments(text):
                self._emit(replies.ArgumentsDelta, **self._at, delta=text)
        self._texts.append(text)

    def _begin(self, item: replies.OutputItem, part: replies.OutputPart | None = None) -> None:
        self._close()
        self._open = item
        self._emit(replies.ItemAdded, output_index=len(self._items), item=item)
        if part is not None:
            self._emit(replies.PartAdded, **self._at, part=part)

    def _close(self, status: replies.ItemStatus = "completed") -> None:
        item, text, logprobs = self._open, "".join(self._texts), self._logprobs
        match item:
            case None:
                return
            case replies.CallItem():
                self._emit(replies.ArgumentsDone, **self._at, name=item.name, arguments=text)
                item = replace(item, arguments=text, status=status)
            case replies.MessageItem():
                said = replies.OutputText(text=text, logprobs=logprobs)
                self._emit(replies.OutputTextDone, **self._at, text=text, logprobs=logprobs)
                self._emit(replies.PartDone, **self._at, part=said)
                item = replace(item, content=[said], status=status)
            case replies.ReasoningItem():
                thought = replies.ReasoningText(text)
                self._emit(replies.ReasoningDone, **self._at, text=text)
                self._emit(replies.PartDone, **self._at, part=thought)
                item = replace(item, content=[thought], status=status)
        self._emit(replies.ItemDone, output_index=len(self._items), item=item)
        self._items.append(item)
        self._open, self._texts, self._logprobs = None, [], []

    def _end(self, finish: Finish) -> None:
        for part in self._reader.close(self._sequence.tail):
            self._add(part)
        refuse_aborted(finish)
        if self._open is None and not self._items:
            self._begin(*_empty_message())
        if finish.kind is FinishKind.LENGTH:
            self._close("incomplete")
            reason = {"reason": "max_output_tokens"}
            self._finish(replies.ResponseIncomplete, "incomplete", incomplete_details=reason, usage=self._usage())
        else:
            self._close()
            self._finish(replies.ResponseCompleted, "completed", usage=self._usage())

    def _finish(self, event: type[replies.Event], status: str, **fields: Any) -> None:
        self.response = replace(self.response, status=status, output=self._items, **fields)
        self._emit(event, response=self.response)

    def _usage(self) -> replies.ResponseUsage:
        sequence, reasoning_tokens = self._sequence, self._reader.reasoning_tokens
        return replies.ResponseUsage(
            sequence.num_prompt,
            CachedTokens(sequence.num_cached),
            sequence.num_generated,
            ReasoningTokens(reasoning_tokens),
            sequence.num_prompt + sequence.num_generated,
        )

    @property
    def _at(self) -> dict[str, Any]:
        """The fields that locate the open item."""
        assert self._open is not None, "a part came before its item"
        return {"item_id": self._open.id, "output_index": len(self._items)}

    def _emit(self, event: type[replies.Event], **fields: Any) -> None:
        if self._events is not None:
            self._events.append(sse.named(event(sequence_number=self._number, **fields)))
            self._number += 1


def _empty_message() -> tuple[replies.MessageItem, replies.OutputText]:
    return replies.MessageItem(f"msg_{prompts.new_id()}"), replies.OutputText(text="", logprobs=[])
