"""One answer: asked for, printed as it comes, measured. Ctrl-C ends it, and what was shown until then stays said."""

import os
import sys
import time
from collections.abc import Generator
from contextlib import closing
from typing import Any

from ramet.runtime.errors import RametError
from ramet.runtime.terminal.conversation import Conversation, Message
from ramet.runtime.terminal.service import Service
from ramet.runtime.terminal.visible import note, write

DIM, PLAIN = "\x1b[2m", "\x1b[0m"


class Answer:
    """What came so far. `begun`, `first` and `last` are times: of the request, and of its first and last piece."""

    def __init__(self) -> None:
        self.text, self.thinks = "", False
        self.pieces, self.usage = 0, dict[str, Any]()
        self.ending = ""
        self.begun = self.first = self.last = time.monotonic()

    def take(self, chunk: dict[str, Any]) -> tuple[str, str]:
        """What is new: of a thought, and of the answer."""
        self.usage = chunk.get("usage") or self.usage
        choice: dict[str, Any] = next(iter(chunk.get("choices") or []), {})
        self.ending = choice.get("finish_reason") or self.ending
        delta = choice.get("delta") or {}
        thought, text = delta.get("reasoning") or delta.get("reasoning_content") or "", delta.get("content") or ""
        if thought or text:
            self.last = time.monotonic()
            self.first = self.last if not self.pieces else self.first
            self.pieces += 1
            self.text += text
        return thought, text

    def report(self) -> str:
        num = self.usage.get("completion_tokens")
        parts = [f"{num} tokens" if num is not None else f"{self.pieces} pieces"]
        if (num or self.pieces) > 1 and self.last > self.first:
            parts.append(f"{((num or self.pieces) - 1) / (self.last - self.first):.1f} tokens/s")
        if self.pieces:
            parts.append(f"the first after {self.first - self.begun:.2f} s")
        if (prompt := self.usage.get("prompt_tokens")) is not None:
            cached = (self.usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
            parts.append(f"{prompt} of the prompt, {cached} of them cached")
        return f"[{', '.join(parts)}{_ENDINGS.get(self.ending, '')}]"


_ENDINGS = {"length": "; cut off: max_tokens or the context's end", "stopped": "; stopped", "abort": "; aborted"}


def say(service: Service, conversation: Conversation, text: str) -> bool:
    """A message and its answer become part of the conversation, unless there is none. Returns whether there is one."""
    conversation.messages.append(Message("user", text))
    answer = Answer()
    failure = _shown(service.chunks({**conversation.body(), "stream_options": {"include_usage": True}}), answer)
    if failure is None:
        note(answer.report())
    else:
        note(f"ramet: {failure}")
    if answer.text:
        conversation.messages.append(Message("assistant", answer.text))
    elif failure is not None or answer.ending == "stopped":
        conversation.messages.pop()
    return failure is None


def _shown(chunks: Generator[dict[str, Any]], answer: Answer) -> RametError | None:
    """Print what comes. Returns why it ended too early, if it did."""
    failure = None
    try:
        with closing(chunks):
            for chunk in chunks:
                _print(answer, *answer.take(chunk))
    except KeyboardInterrupt:
        answer.ending = "stopped"
    except RametError as error:
        failure = error
    _end_thought(answer)
    if answer.text and not answer.text.endswith("\n"):
        write("\n")
    return failure


def _print(answer: Answer, thought: str, text: str) -> None:
    """A thought is dimmed on a terminal, and no part of what goes into a pipe."""
    if thought and sys.stdout.isatty():
        if not answer.thinks:
            answer.thinks = True
            _raw(f"{DIM}(thinking) ")
        write(thought)
    if text:
        _end_thought(answer)
        write(text)


def _end_thought(answer: Answer) -> None:
    if answer.thinks:
        answer.thinks = False
        _raw(f"{PLAIN}\n\n")


def _raw(text: str) -> None:
    if os.environ.get("NO_COLOR"):
        text = text.replace(DIM, "").replace(PLAIN, "")
    sys.stdout.write(text)
    sys.stdout.flush()
