"""The output of a response: reasoning, message and function_call items, and their events."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ramet.ipc.messages import Finish, FinishKind
from ramet.runtime.engine_client.submission import Sequence
from ramet.runtime.errors import ClientError, RametError
from ramet.runtime.intake import prompts
from ramet.runtime.intake.parsers.tools import CallStart
from ramet.runtime.intake.reading import Part, Reader, Thought
from ramet.runtime.server.http import problems
from ramet.runtime.server.http.items import Items
from ramet.runtime.server.openai import responses_replies as replies
from ramet.runtime.server.openai.logprobs import token_logprobs
from ramet.runtime.server.openai.replies import CachedTokens, ReasoningTokens, TokenLogprob


class Output(Items[replies.OutputItem]):
    """Once it is read, `response` is the whole response."""

    def __init__(
        self,
        sequence: Sequence,
        reader: Reader,
        response: replies.ResponseReply,
        keep: Callable[[replies.ResponseReply], replies.ResponseReply],
    ) -> None:
        """`keep` stores the whole response, and returns it with whether it is stored."""
        super().__init__(sequence, reader)
        self.response, self._keep = response, keep
        self._logprobs: list[TokenLogprob] = []  # of the open item
        self._pending: list[TokenLogprob] = []  # of tokens whose text is not certain yet
        self._number = 0

    def failure(self, error: RametError) -> bytes:
        """The last events of a stream that failed."""
        self._close(complete=False)
        body = problems.openai(error)
        code = (body.code or "invalid_prompt") if isinstance(error, ClientError) else "server_error"
        self._finish(replies.ResponseFailed, "failed", error=replies.ResponseError(code, body.message))
        return self._taken()

    def _start(self) -> None:
        self._send(replies.ResponseCreated, response=self.response)
        self._send(replies.ResponseInProgress, response=self.response)

    def _push(self, text: str, place: int) -> list[Part]:
        lists, thinking = self._sequence.logprobs, self._reader.thinking
        if lists is not None:
            self._pending += token_logprobs(lists, place, place + 1)
        parts = self._reader.push(text)
        if thinking and not self._reader.thinking and not parts:
            self._pending.clear()  # the tag that closed a thought
        return parts

    def _add(self, part: Part) -> None:
        if not isinstance(part, str):
            self._pending.clear()  # of a thought's tokens, or a call's
        super()._add(part)

    def _item(self, first: Part) -> replies.OutputItem:
        new_id = prompts.new_id()
        item: replies.OutputItem = replies.MessageItem(f"msg_{new_id}")
        if isinstance(first, Thought):
            item = replies.ReasoningItem(f"rs_{new_id}")
        elif isinstance(first, CallStart):
            item = replies.CallItem(f"fc_{new_id}", call_id=self._reader.new_call_id(), name=first.name)
        self._send(replies.ItemAdded, output_index=len(self.closed), item=item)
        if not isinstance(item, replies.CallItem):
            self._send(replies.PartAdded, **self._at(item), part=_content(item, "", []))
        return item

    def _grew(self, item: replies.OutputItem, text: str) -> None:
        match item:
            case replies.MessageItem():
                logprobs, self._pending = self._pending, []
                self._logprobs += logprobs
                self._send(replies.OutputTextDelta, **self._at(item), delta=text, logprobs=logprobs)
            case replies.ReasoningItem():
                self._send(replies.ReasoningDelta, **self._at(item), delta=text)
            case replies.CallItem():
                self._send(replies.ArgumentsDelta, **self._at(item), delta=text)

    def _ended(self, item: replies.OutputItem, text: str, complete: bool) -> replies.OutputItem:
        at, logprobs, self._logprobs = self._at(item), self._logprobs, []
        status: replies.ItemStatus = "completed" if complete else "incomplete"
        if isinstance(item, replies.CallItem):
            self._send(replies.ArgumentsDone, **at, name=item.name, arguments=text)
            done: replies.OutputItem = replace(item, arguments=text, status=status)
        else:
            if isinstance(item, replies.MessageItem):
                self._send(replies.OutputTextDone, **at, text=text, logprobs=logprobs)
            else:
                self._send(replies.ReasoningDone, **at, text=text)
            content = _content(item, text, logprobs)
            self._send(replies.PartDone, **at, part=content)
            done = replace(item, content=[content], status=status)
        self._send(replies.ItemDone, output_index=len(self.closed), item=done)
        return done

    def _end(self, finish: Finish) -> None:
        sequence, cached = self._sequence, CachedTokens(self._sequence.num_cached)
        usage = replies.ResponseUsage(
            sequence.num_prompt,
            cached,
            sequence.num_generated,
            ReasoningTokens(self._reader.reasoning_tokens),
            sequence.num_prompt + sequence.num_generated,
        )
        if finish.kind is FinishKind.LENGTH:
            reason = {"reason": "max_output_tokens"}
            self._finish(replies.ResponseIncomplete, "incomplete", incomplete_details=reason, usage=usage)
        else:
            self._finish(replies.ResponseCompleted, "completed", usage=usage)

    def _finish(self, event: type[Struct], status: str, **fields: Any) -> None:
        response = replace(self.response, status=status, output=self.closed, **fields)
        self.response = response if event is replies.ResponseFailed else self._keep(response)
        self._send(event, response=self.response)

    def _at(self, item: replies.OutputItem) -> dict[str, Any]:
        """The fields that locate the open item."""
        return {"item_id": item.id, "output_index": len(self.closed)}

    def _send(self, event: type[Struct], **fields: Any) -> None:
        if self._events is not None:
            self._emit(event(sequence_number=self._number, **fields))
            self._number += 1


def _content(
    item: replies.MessageItem | replies.ReasoningItem, text: str, logprobs: list[TokenLogprob]
) -> replies.OutputPart:
    if isinstance(item, replies.MessageItem):
        return replies.OutputText(text=text, logprobs=logprobs)
    return replies.ReasoningText(text)
