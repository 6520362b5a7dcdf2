"""A prompt of the language to text: raw text, turns of a chat by the model's own template, places for contexts, media.

Decides how these go together. Turns are rendered as one chat, so that a template sees all of them. Raw text before the
first turn precedes the rendered chat. Behind closed turns it follows them; if more turns come, the rendering of the
longer chat must begin with that of the shorter one, and what it has beyond is appended. An open turn of the assistant
is the prompt for a reply and its content as it is; that of another role is rendered with a mark at the end of its
content, and cut there. A template writes what stands for media in closed turns; elsewhere it is the placeholder.
Knows no ids.
"""

import os
import re
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ramet.ipc.media import MediaKind, MediaTokens, Prepared
from ramet.ipc.messages import Chat, ChatTurn, ContextGroup, MediaPlace, Segment
from ramet.runtime.errors import ClientError
from ramet.runtime.text.chats import ChatWriter
from ramet.runtime.text.placing import expand_text

MAX_BREAKS = 64  # raw texts between turns: each costs a rendering of all turns before it
END = f"END_{os.urandom(8).hex().upper()}"  # no client knows it
GROUP = f"CONTEXTS_{os.urandom(8).hex().upper()}_"


class ContextList(NamedTuple):
    place: str  # of its list, as the client wrote it
    contexts: list[str]


class Written(NamedTuple):
    """`texts` are those between the groups: one more than there are groups."""

    texts: list[str]
    groups: list[ContextList]
    is_raw: bool  # without turns, whose template writes special tokens itself
    may_heal: bool  # it ends as the client wrote it

    @property
    def whole(self) -> str:
        between = ["".join(group.contexts) for group in self.groups] + [""]
        return "".join(part for pair in zip(self.texts, between, strict=True) for part in pair)


def write(
    segments: list[Segment],
    chats: ChatWriter,
    clock: Callable[[], float] = time.monotonic,
    tokens: MediaTokens | None = None,
    media: Sequence[Prepared] = (),
) -> Written:
    """`tokens`: of the kinds of media that the model takes; without `media` placeholders are not expanded.

    Raises ClientError, which names the segment.
    """
    writer = _TurnWriter(chats, clock, tokens or {})
    for i, segment in enumerate(segments):
        match segment:
            case str():
                writer.add_text(segment)
            case ContextGroup():
                writer.add_text(writer.marked(f"prompt[{i}].contexts", segment))
            case MediaPlace(kind):
                writer.add_media(kind)
            case ChatTurn():
                writer.add_turn(i, segment)
    return writer.finish(media)


class _TurnWriter:
    def __init__(self, chats: ChatWriter, clock: Callable[[], float], tokens: MediaTokens) -> None:
        self._chats, self._clock, self._tokens = chats, clock, tokens
        self._deadline = clock() + chats.limits.timeout_s
        self._parts, self._groups = list[str](), list[ContextList]()
        self._messages: list[dict[str, Any]] = []
        self._places: list[int] = []  # of each message: the index of its segment
        self._rendered = ""  # of those messages that are in the text already
        self._pending = False  # some messages are not
        self._num_breaks = 0
        self._may_heal = True

    def marked(self, place: str, group: ContextGroup) -> str:
        """What stands for the group in a text."""
        self._groups.append(ContextList(place, group.contexts))
        return f"{GROUP}{len(self._groups) - 1}_"

    def add_text(self, text: str) -> None:
        self._write_pending()
        self._parts.append(text)
        self._may_heal = bool(text) or self._may_heal

    def add_media(self, kind: MediaKind) -> None:
        self._write_pending()
        self._parts.append(self._tokens[kind].placeholder)
        self._may_heal = False

    def add_turn(self, index: int, turn: ChatTurn) -> None:
        at = f"prompt[{index}].content"
        items = [
            self.marked(f"{at}[{j}].contexts", item) if isinstance(item, ContextGroup) else item
            for j, item in enumerate(turn.content)
        ]
        self._places.append(index)
        if not turn.open:
            self._messages.append({"role": turn.role, "content": _content(items)})
            self._pending, self._may_heal = True, False
            return
        self._pending, self._may_heal = False, bool(items) and isinstance(items[-1], str) and items[-1] != ""
        if turn.role == "assistant" and self._messages:
            self._append(self._render(add_generation_prompt=True))
            self._parts += [each if isinstance(each, str) else self._tokens[each.kind].placeholder for each in items]
        else:
            self._messages.append({"role": turn.role, "content": _content([*items, END])})
            self._append(self._cut(self._render(), at))

    def finish(self, media: Sequence[Prepared]) -> Written:
        self._write_pending()
        text = "".join(self._parts)
        if media:
            text, _ = expand_text(text, media, self._tokens)
        texts = re.split(rf"{GROUP}\d+_", text)
        found = [int(number) for number in re.findall(rf"{GROUP}(\d+)_", text)]
        if found != list(range(len(self._groups))):
            wrong = next((i for i, number in enumerate(found) if i != number), len(found))
            place = self._groups[min(wrong, len(self._groups) - 1)].place
            fact = "stand in a turn whose text this model's chat template leaves out, repeats or moves"
            raise ClientError(place, fact, "write them as a segment of their own, outside of turns")
        return Written(texts, self._groups, not self._places, self._may_heal)

    def _write_pending(self) -> None:
        if self._pending:
            self._pending = False
            self._append(self._render())

    def _append(self, rendered: str) -> None:
        """What the chat has beyond the messages that are in the text."""
        if self._rendered:
            self._num_breaks += 1
            if self._num_breaks > MAX_BREAKS:
                raise ClientError("prompt", f"has texts between its turns in more than {MAX_BREAKS} places")
        if not rendered.startswith(self._rendered):
            fact = "follows a text behind other turns, but this model's chat template rewrites earlier turns"
            raise ClientError(f"prompt[{self._places[-1]}]", fact, "write the text into a turn")
        self._parts.append(rendered[len(self._rendered) :])
        self._rendered = rendered

    def _cut(self, rendered: str, place: str) -> str:
        """Without what the template writes behind the last turn's content."""
        kept, mark, _ = rendered.rpartition(END)
        if not mark:
            raise ClientError(place, "is of an open turn, but this model's chat template does not show its text")
        return kept.replace(END, "")

    def _render(self, add_generation_prompt: bool = False) -> str:
        if self._clock() > self._deadline:
            most = f"the {self._chats.limits.timeout_s:g} s of --chat-template-timeout-s"
            fact = f"takes more than {most} to render, for each text between its turns all turns before it"
            raise ClientError("prompt", fact, "write texts into turns")
        try:
            return self._chats.render(Chat(self._messages, add_generation_prompt=add_generation_prompt))
        except ClientError as error:
            raise error.at(self._as_written(error.place)) from None

    def _as_written(self, place: str) -> str:
        """A place in the messages as one in the prompt."""
        found = re.match(r"messages(?:\[(\d+)\])?(.*)", place)
        if found is None:
            return place
        return f"prompt[{self._places[int(found[1])]}]{found[2]}" if found[1] else "prompt"


def _content(items: Sequence[str | MediaPlace]) -> str | list[dict[str, str]]:
    """Of a message: a text, or with media its parts."""
    texts = [item for item in items if isinstance(item, str)]
    if len(texts) == len(items):
        return "".join(texts)
    parts: list[dict[str, str]] = []
    for item in items:
        if isinstance(item, MediaPlace):
            parts.append({"type": item.kind.value})
        elif parts and parts[-1]["type"] == "text":
            parts[-1] = {"type": "text", "text": parts[-1]["text"] + item}
        elif item:
            parts.append({"type": "text", "text": item})
    return parts
