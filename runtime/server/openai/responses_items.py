"""The output of a response: items (reasoning, message, function_call) that grow part by part, and the events of it.

Decides the shapes of items and events, and their order. A whole response is what its stream would have told last.
"""

import asyncio
from typing import Any

from ramet.ipc.messages import Finish, FinishKind
from ramet.runtime.engine_client.submission import Sequence
from ramet.runtime.errors import ClientError, RametError
from ramet.runtime.intake import prompts
from ramet.runtime.intake.parsers.tools import CallArguments, CallStart
from ramet.runtime.intake.reading import MAX_AT_ONCE, Part, Reader, Thought, refuse_aborted
from ramet.runtime.server.http import problems, sse
from ramet.runtime.server.openai.logprobs import chat_logprobs

Item = dict[str, Any]


class Output:
    """`response` is filled as the sequence is read: by `events` of a stream, or by `read_whole` at its end."""

    def __init__(self, sequence: Sequence, reader: Reader, response: dict[str, Any]) -> None:
        self._sequence, self._reader, self._response = sequence, reader, response
        self.items: list[Item] = response["output"]
        self._open: Item | None = None
        self._texts: list[str] = []  # of the open item
        self._told: list[bytes] = []
        self._telling = True
        self._number = 0
        self._scores: list[Any] = []  # log-probabilities of tokens whose text is not told yet

    def events(self) -> bytes:
        """What is new, read and told."""
        sequence, first = self._sequence, self._sequence.num_taken
        if not self._number:
            self._tell("response.created", response=self._response)
            self._tell("response.in_progress", response=self._response)
        texts, _ = sequence.take()
        self._read(texts, first)
        if sequence.finish is not None:
            self._end(sequence.finish)
        told, self._told = b"".join(self._told), []
        return told

    async def read_whole(self) -> None:
        """All of a sequence that has ended, without events; others are served in between."""
        self._telling = False
        texts, _ = self._sequence.take()
        for start in range(0, len(texts), MAX_AT_ONCE):
            self._read(texts[start : start + MAX_AT_ONCE], start)
            await asyncio.sleep(0)
        assert self._sequence.finish is not None
        self._end(self._sequence.finish)

    def failure(self, error: RametError) -> bytes:
        """The events that tell of a stream that broke off."""
        body = problems.openai_body(error)
        self._close("incomplete")
        self._response["status"] = "failed"
        code = (body["code"] or "invalid_prompt") if isinstance(error, ClientError) else "server_error"
        self._response["error"] = {"code": code, "message": body["message"]}
        self._tell("response.failed", response=self._response)
        return b"".join(self._told)

    def _read(self, texts: list[str], first: int) -> None:
        """`first`: the place of the first of these tokens."""
        scores = self._sequence.scores
        for place, text in enumerate(texts, first):
            if scores is not None:
                self._scores += chat_logprobs(scores, place, place + 1)["content"]
            thinking = self._reader.thinking
            parts = self._reader.push(text)
            if thinking and not self._reader.thinking and not parts:
                self._scores.clear()  # the tag that closed a thought
            for part in parts:
                self._add(part)

    def _add(self, part: Part) -> None:
        if not isinstance(part, str):
            self._scores.clear()  # of a thought's tokens, or a call's
        match part:
            case Thought(text):
                item = self._within("reasoning")
                self._texts.append(text)
                self._tell("response.reasoning_text.delta", **self._at(item), content_index=0, delta=text)
            case str():
                item = self._within("message")
                scores, self._scores = self._scores, []
                self._texts.append(part)
                item["content"][0]["logprobs"] += scores
                self._tell("response.output_text.delta", **self._at(item), content_index=0, delta=part, logprobs=scores)
            case CallStart(name):
                self._close()
                self._begin(
                    {
                        "type": "function_call",
                        "id": f"fc_{prompts.new_id()}",
                        "call_id": self._reader.new_call_id(),
                        "name": name,
                        "arguments": "",
                        "status": "in_progress",
                    }
                )
            case CallArguments(text):
                assert self._open is not None, "arguments came before their call"
                self._texts.append(text)
                self._tell("response.function_call_arguments.delta", **self._at(self._open), delta=text)

    def _within(self, kind: str) -> Item:
        """The open item, which is of this kind from now on."""
        if self._open is None or self._open["type"] != kind:
            self._close()
            if kind == "message":
                part: Item = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
                item: Item = {
                    "type": kind,
                    "id": f"msg_{prompts.new_id()}",
                    "status": "in_progress",
                    "role": "assistant",
                }
            else:
                part = {"type": "reasoning_text", "text": ""}
                item = {"type": kind, "id": f"rs_{prompts.new_id()}", "status": "in_progress", "summary": []}
            self._begin({**item, "content": []})
            assert self._open is not None
            self._tell("response.content_part.added", **self._at(self._open), content_index=0, part=part)
            self._open["content"].append(part)
        assert self._open is not None
        return self._open

    def _begin(self, item: Item) -> None:
        self._open = item
        self.items.append(item)
        self._tell("response.output_item.added", output_index=len(self.items) - 1, item=item)

    def _close(self, status: str = "completed") -> None:
        item, self._open = self._open, None
        if item is None:
            return
        item["status"] = status
        at = self._at(item)
        text, self._texts = "".join(self._texts), []
        if item["type"] == "function_call":
            item["arguments"] = text
            done = {"name": item["name"], "arguments": item["arguments"]}
            self._tell("response.function_call_arguments.done", **at, **done)
        else:
            (part,) = item["content"]
            part["text"] = text
            if item["type"] == "message":
                self._tell(
                    "response.output_text.done", **at, content_index=0, text=part["text"], logprobs=part["logprobs"]
                )
            else:
                self._tell("response.reasoning_text.done", **at, content_index=0, text=part["text"])
            self._tell("response.content_part.done", **at, content_index=0, part=part)
        self._tell("response.output_item.done", output_index=at["output_index"], item=item)

    def _end(self, finish: Finish) -> None:
        for part in self._reader.close(self._sequence.tail):
            self._add(part)
        refuse_aborted(finish)
        status = "incomplete" if finish.kind is FinishKind.LENGTH else "completed"
        if not self.items:
            self._within("message")
        self._close("completed" if status == "completed" else "incomplete")
        self._response["status"] = status
        if status == "incomplete":
            self._response["incomplete_details"] = {"reason": "max_output_tokens"}
        self._response["usage"] = self._usage()
        self._tell("response.completed" if status == "completed" else "response.incomplete", response=self._response)

    def _usage(self) -> dict[str, Any]:
        sequence = self._sequence
        return {
            "input_tokens": sequence.num_prompt,
            "input_tokens_details": {"cached_tokens": sequence.num_cached},
            "output_tokens": sequence.num_generated,
            "output_tokens_details": {"reasoning_tokens": self._reader.reasoning_tokens},
            "total_tokens": sequence.num_prompt + sequence.num_generated,
        }

    def _at(self, item: Item) -> dict[str, Any]:
        return {"item_id": item["id"], "output_index": len(self.items) - 1}

    def _tell(self, kind: str, **body: Any) -> None:
        if not self._telling:
            return
        self._told.append(sse.event(kind, {"sequence_number": self._number, **body}))
        self._number += 1
