"""Chats to text: what a Render call asks for, by the model's own template.

Decides which template a chat gets and in which order it is checked, and in which form messages come into it: as texts,
or as lists of parts. Knows no ids. The template's language is chat_template.py's, the shape of messages
chat_messages.py's, and which turns a template takes fit_turns.py's. Chats whose template runs in another process are
read and written in that process (rendering.py), so that only one process makes objects of their messages.
"""

import os
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from ramet.ipc.media import MediaKind, MediaToken, MediaTokens
from ramet.ipc.messages import Chat
from ramet.runtime.errors import ClientError
from ramet.runtime.exact_json import Bytes, decoder_of
from ramet.runtime.text.channel_turns import with_texts_in_thoughts
from ramet.runtime.text.chat_messages import normalise, template_part
from ramet.runtime.text.chat_template import ChatTemplate, RenderingEnded, RenderLimits
from ramet.runtime.text.context import TooManyBytes, num_bytes
from ramet.runtime.text.fit_turns import fitted
from ramet.runtime.text.template_files import TemplateSources
from ramet.runtime.text.template_rules import TemplateRules

PROBE = f"TEXT_{os.urandom(8).hex().upper()}"  # no client knows it
ARGUMENTS = {"type": "object", "properties": {"a": {"type": "string", "description": ""}}, "required": ["a"]}
TOOL = {"type": "function", "function": {"name": "a", "description": "", "parameters": ARGUMENTS}}
Content = str | list[dict[str, Any]]
Turn = dict[str, Any]


class UnreadChat(Chat, frozen=True):
    """A chat whose tools and variables stay JSON until a template is rendered with them."""

    tools: list[msgspec.Raw] | None = None
    kwargs: dict[str, msgspec.Raw] = msgspec.field(default_factory=dict)


_read = decoder_of(UnreadChat)


class Renderer(Protocol):
    """Renders messages as ChatTemplate does."""

    @property
    def limits(self) -> RenderLimits: ...

    def render(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None = None,
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        kwargs: Mapping[str, Any] = {},
        max_bytes: int | None = None,
    ) -> str: ...


class ChatWriter(Protocol):
    """Writes chats as text, in this process (Chats) or in another (rendering.py)."""

    @property
    def limits(self) -> RenderLimits: ...

    def with_media(self, media: MediaTokens) -> "ChatWriter":
        """`media`: what stands for a piece of each kind that the model takes."""

    def render(self, asked: Chat) -> str:
        """Raises ClientError."""

    def render_json(self, chat: Bytes, max_bytes: int | None = None) -> str:
        """`render` of a chat's JSON, whose numbers keep their digits.

        Raises TooManyBytes for a text of more than `max_bytes`, whose end need not be written; None: there is no
        bound.
        """


class Chats:
    def __init__(
        self,
        sources: TemplateSources,
        template: Renderer | None = None,
        media: Mapping[MediaKind, MediaToken] = {},
    ) -> None:
        """`template` renders those of `sources`; None: a ChatTemplate."""
        self._sources, self._template = sources, template or ChatTemplate(sources)
        self._placeholders = {kind.value: token.placeholder for kind, token in media.items()}
        self._shown: dict[tuple[bool, str, str], bool] = {}  # with tools, role, form -> whether a template shows it
        self._rules = {with_tools: self._rules_of(with_tools) for with_tools in (False, True)}

    @property
    def limits(self) -> RenderLimits:
        return self._template.limits

    def with_media(self, media: MediaTokens) -> "Chats":
        """As ChatWriter's."""
        return Chats(self._sources, self._template, media)

    def render_json(self, chat: Bytes, max_bytes: int | None = None) -> str:
        """As ChatWriter's."""
        text = self._render(_read(chat), max_bytes)
        if max_bytes is not None and num_bytes(text) > max_bytes:
            raise TooManyBytes
        return text

    def render(self, asked: Chat) -> str:
        """As ChatWriter's."""
        return self._render(asked)

    def _render(self, asked: Chat, max_bytes: int | None = None) -> str:
        """`max_bytes`: as ChatTemplate's."""
        tools = asked.tools or None
        source = self._sources.of(tools is not None) or ""
        messages = with_texts_in_thoughts(normalise(asked.messages, source), source)
        if asked.continue_final_message and messages and messages[-1].get("tool_calls"):
            place = f"messages[{len(messages) - 1}].tool_calls"
            raise ClientError(place, "ends the chat, must be followed by the results of its calls")
        messages = fitted(messages, self._rules[tools is not None])
        return self._template.render(
            self._all_as_shown(messages, tools is not None),
            tools,
            add_generation_prompt=asked.add_generation_prompt,
            continue_final_message=asked.continue_final_message,
            kwargs=asked.kwargs,
            max_bytes=max_bytes,
        )

    def _rules_of(self, with_tools: bool) -> TemplateRules:
        """The rules of the template for conversations with tools, or of the template for those without."""
        tools = [TOOL] if with_tools else None
        return TemplateRules(lambda turns: self._template.render(self._all_as_shown(turns, with_tools), tools))

    def _all_as_shown(self, turns: list[Turn], with_tools: bool) -> list[Turn]:
        return [self._as_shown(turn, with_tools) for turn in turns] if self._placeholders else turns

    def _as_shown(self, turn: Turn, with_tools: bool) -> Turn:
        """In the form that the template shows: some show texts alone, some parts alone.

        Where it shows no parts, placeholders stand among the texts.
        """
        role, content = turn["role"], turn["content"]
        if isinstance(content, str):
            if self._shows(role, "text", with_tools):
                return turn
            parts = [{"type": "text", "text": content}]
            return {**turn, "content": parts} if self._shows(role, "parts", with_tools) else turn
        kinds = {part["type"] for part in content} - {"text"}
        if all(self._shows(role, kind, with_tools) for kind in kinds):
            return turn
        texts = (part["text"] if part["type"] == "text" else self._placeholders[part["type"]] for part in content)
        return self._as_shown({**turn, "content": "".join(texts)}, with_tools)

    def _shows(self, role: str, form: str, with_tools: bool) -> bool:
        """Whether a template shows a turn of this role with a text, parts that are texts, or a piece of a kind."""
        key = with_tools, role, form
        if key not in self._shown:
            self._shown[key] = self._tries(role, form, with_tools)
        return self._shown[key]

    def _tries(self, role: str, form: str, with_tools: bool) -> bool:
        content: Content = [{"type": "text", "text": PROBE}]
        wanted = [PROBE]
        if form == "text":
            content = PROBE
        elif form in self._placeholders:
            content = [template_part(form), {"type": "text", "text": PROBE}]
            wanted.append(self._placeholders[form])
        earlier = "a" if form == "text" else [{"type": "text", "text": "a"}]
        before = [] if role in ("user", "system") else [{"role": "user", "content": earlier}]
        try:
            shown = self._template.render([*before, {"role": role, "content": content}], [TOOL] if with_tools else None)
        except RenderingEnded:  # not a sign that the template lacks this form
            raise
        except ClientError:
            return False
        return all(each in shown for each in wanted) and "'type'" not in shown  # which Python prints of a list
