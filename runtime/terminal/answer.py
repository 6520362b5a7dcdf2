"""One answer: asked for, printed as it comes, measured. Ctrl-C ends it, and what was shown until then stays said."""

import os
import sys
import time
from collections.abc import Generator
from contextlib import closing

from ramet.runtime.errors import RametError
from ramet.runtime.terminal.conversation import Conversation, SavedMessage
from ramet.runtime.terminal.service import ChatService, Chunk, ReceivedChoice, ReceivedDelta, ReceivedUsage
from ramet.runtime.terminal.visible import note, write

DIM, PLAIN = "\x1b[2m", "\x1b[0m"


class StreamedAnswer:
    """What came so far. `begun`, `first` and `last` are times: of the request, and of its first and last piece."""

    def __init__(self) -> None:
        self.text, self.thinks = "", False
        self.pieces, self.usage = 0, ReceivedUsage()
        self.ending = ""
        self.begun = self.first = self.last = time.monotonic()

    def take(self, chunk: Chunk) -> tuple[str, str]:
        """What is new: of a thought, and of the answer."""
        self.usage = chunk.usage or self.usage
        choice = next(iter(chunk.choices or ()), ReceivedChoice())
        self.ending = choice.finish_reason or self.ending
        delta = choice.delta or ReceivedDelta()
        thought, text = delta.reasoning or delta.reasoning_content or "", delta.content or ""
        if thought or text:
            self.last = time.monotonic()
            self.first = self.last if not self.pieces else self.first
            self.pieces += 1
            self.text += text
        return thought, text

    def report(self) -> str:
        """Tokens are divided by all the time since the request: pieces that came in one burst tell no pace."""
        num, taken_s = self.usage.completion_tokens, self.last - self.begun
        parts = [f"{num} tokens" if num is not None else f"{self.pieces} pieces"]
        if num and taken_s > 0:
            parts = [f"{num} tokens in {taken_s:.2f} s", f"{num / taken_s:.1f} tokens/s"]
        if self.pieces:
            parts.append(f"the first after {self.first - self.begun:.2f} s")
        if (prompt := self.usage.prompt_tokens) is not None:
            details = self.usage.prompt_tokens_details
            parts.append(f"{prompt} of the prompt, {(details and details.cached_tokens) or 0} of them cached")
        return f"[{', '.join(parts)}{_ENDINGS.get(self.ending, '')}]"


_ENDINGS = {"length": "; cut off: max_tokens or the context's end", "stopped": "; stopped", "abort": "; aborted"}


def say(service: ChatService, conversation: Conversation, text: str) -> bool:
    """A message and its answer become part of the conversation, unless there is none. Returns whether there is one."""
    conversation.messages.append(SavedMessage("user", text))
    answer = StreamedAnswer()
    failure = _shown(service.chunks({**conversation.body(), "stream_options": {"include_usage": True}}), answer)
    if failure is None:
        note(answer.report())
    else:
        note(f"ramet: {failure}")
    if answer.text:
        conversation.messages.append(SavedMessage("assistant", answer.text))
    elif failure is not None or answer.ending == "stopped":
        conversation.messages.pop()
    return failure is None


def _shown(chunks: Generator[Chunk], answer: StreamedAnswer) -> RametError | None:
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


def _print(answer: StreamedAnswer, thought: str, text: str) -> None:
    """A thought is dimmed on a terminal, and no part of what goes into a pipe."""
    if thought and sys.stdout.isatty():
        if not answer.thinks:
            answer.thinks = True
            _raw(f"{DIM}(thinking) ")
        write(thought)
    if text:
        _end_thought(answer)
        write(text)


def _end_thought(answer: StreamedAnswer) -> None:
    if answer.thinks:
        answer.thinks = False
        _raw(f"{PLAIN}\n\n")


def _raw(text: str) -> None:
    if os.environ.get("NO_COLOR"):
        text = text.replace(DIM, "").replace(PLAIN, "")
    sys.stdout.write(text)
    sys.stdout.flush()
