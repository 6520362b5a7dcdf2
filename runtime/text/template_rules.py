"""Finds which conversations a chat template shows, by rendering small ones whose texts are marks, each once.

A template drops or refuses what it does not expect: a second system turn, two user turns in a row, two calls in one
turn. A program cannot read that from its source, but a rendering shows it. Knows messages after chat_messages.py, and
no request's text: the rules hold for every conversation. fit_turns.py decides what to do about them.
"""

import hashlib
import os
from collections.abc import Callable
from typing import Any, NamedTuple

from ramet.runtime import exact_json
from ramet.runtime.errors import ClientError
from ramet.runtime.text.chat_template import RenderingEnded

Message = dict[str, Any]
Render = Callable[[list[Message]], str]  # raises ClientError
MARK = f"MARK_{os.urandom(8).hex().upper()}_"  # no client can guess it
SHORT_ID = 9  # letters and digits of a call's id, as Mistral's templates demand it


class CallForm(NamedTuple):
    """How calls are written for a template that takes them in one way only."""

    text_arguments: bool = False  # arguments are JSON, for templates that append them to a text
    short_ids: bool = False  # ids are of SHORT_ID letters and digits

    def written(self, turns: list[Message]) -> list[Message]:
        """The turns with their calls and results in this form."""
        return [self._of_turn(turn) for turn in turns] if self != CallForm() else turns

    def _of_turn(self, turn: Message) -> Message:
        if "tool_calls" in turn:
            return {**turn, "tool_calls": [self._of_call(call) for call in turn["tool_calls"]]}
        if self.short_ids and "tool_call_id" in turn:
            return {**turn, "tool_call_id": short_id(turn["tool_call_id"])}
        return turn

    def _of_call(self, call: Message) -> Message:
        function = call["function"]
        if self.text_arguments and not isinstance(function["arguments"], str):
            function = {**function, "arguments": to_json(function["arguments"])}
        ids = {"id": short_id(call["id"])} if self.short_ids and "id" in call else {}
        return {**call, **ids, "function": function}


def short_id(call_id: str) -> str:
    """The id if it has SHORT_ID letters and digits, otherwise one that is derived from it."""
    if len(call_id) == SHORT_ID and call_id.isascii() and call_id.isalnum():
        return call_id
    return hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:SHORT_ID]


def to_json(arguments: Any) -> str:
    return exact_json.dumps(arguments, ensure_ascii=False)


FORMS = (CallForm(), CallForm(text_arguments=True), CallForm(short_ids=True), CallForm(True, True))
PLAIN = FORMS[0]


class TemplateRules:
    """What one template shows. Each of the few conversations in question is rendered once."""

    def __init__(self, render: Render) -> None:
        self._render = render
        self._shown: dict[tuple[CallForm, tuple[str, ...]], bool] = {}
        self._call_form: CallForm | None = PLAIN
        self._has_call_form = False

    def shows(self, *kinds: str, form: CallForm = PLAIN) -> bool:
        """Whether turns of these kinds in this order are rendered with all of their texts.

        A kind is a role, or "call", "calls" (two) and "said call" for an assistant's turn with calls, or "empty user"
        for a user turn without text.
        """
        key = form, kinds
        if key not in self._shown:
            self._shown[key] = self._tries(form, kinds)
        return self._shown[key]

    def loses(self, *kinds: str, instead: tuple[str, ...], form: CallForm = PLAIN) -> bool:
        """Whether such turns are refused or one of their texts is dropped, while `instead` is shown."""
        return not self.shows(*kinds, form=form) and self.shows(*instead, form=form)

    @property
    def call_form(self) -> CallForm | None:
        """The first form in which the template shows a call and its result. None: it shows them in no form."""
        if not self._has_call_form:
            shown = (form for form in FORMS if self.shows("user", "call", "tool", "assistant", "user", form=form))
            self._call_form = next(shown, None)
            self._has_call_form = True
        return self._call_form

    def _tries(self, form: CallForm, kinds: tuple[str, ...]) -> bool:
        maker = _Maker()
        turns = [maker.turn(kind) for kind in kinds]
        try:
            text = self._render(form.written(turns))
        except RenderingEnded:  # not a sign that the template drops these turns
            raise
        except ClientError:
            return False
        return all(mark in text for mark in maker.marks)


class _Maker:
    """Makes turns whose texts are marks, and keeps the marks."""

    def __init__(self) -> None:
        self.marks: list[str] = []
        self._open: list[str] = []  # ids of calls that have no result yet
        self._num_calls = 0

    def turn(self, kind: str) -> Message:
        match kind:
            case "call":
                return {"role": "assistant", "content": "", "tool_calls": [self._call()]}
            case "said call":
                return {"role": "assistant", "content": self._mark(), "tool_calls": [self._call()]}
            case "calls":
                return {"role": "assistant", "content": "", "tool_calls": [self._call(), self._call()]}
            case "tool":
                called = {"tool_call_id": self._open.pop(0), "name": "a"} if self._open else {}
                return {"role": "tool", **called, "content": self._mark()}
            case "empty user":
                return {"role": "user", "content": ""}
        return {"role": kind, "content": self._mark()}

    def _mark(self) -> str:
        self.marks.append(f"{MARK}{len(self.marks)}_")
        return self.marks[-1]

    def _call(self) -> Message:
        self._num_calls += 1
        self._open.append(f"call_mark_of_an_id_{self._num_calls}")
        function = {"name": "a", "arguments": {"a": self._mark()}}
        return {"id": self._open[-1], "type": "function", "function": function}
