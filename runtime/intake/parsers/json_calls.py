"""Calls as JSON objects, {"name": ..., "arguments": {...}}: one after the other, or a JSON list of them.

Decides when the name is known, which characters are the arguments', what may stand between two calls (white space, and
one of `separators`), and what is wrong. Keys come in any order and others are skipped; the first name and the first
arguments count. Arguments are an object, whose text goes on as it comes, a string that holds one (what is no JSON in it
ends the arguments; the call goes on), or nothing: null, an empty string, no key at all are "{}". A call that closes
without a name, or whose name is not accepted, is broken. A separator that no call follows is content.
"""

import json
import random
import re
import string
from contextlib import suppress
from typing import ClassVar

from ramet.runtime.intake.parsers.json_text import StringDecoder, in_string, value
from ramet.runtime.intake.parsers.marked import MarkedParser
from ramet.runtime.intake.parsers.pieces import Broken, CallPieces, Steps
from ramet.runtime.intake.parsers.structure import Part, among_text, json_of, separated, tag
from ramet.runtime.intake.parsers.tools import Offer, Unwritable

ARGUMENTS = ("arguments", "parameters")
MAX_WORD = 256  # characters of a name or a key, with its quotes
ID_CHARACTERS = string.ascii_letters + string.digits

_NAMED = re.compile(r"([^\s\[\]{}\"]+)[ \t\r\n]*(?:\[CALL_ID\][^\[\]{}]*)?(?:\[ARGS\])?[ \t\r\n]*")


class JsonCallsParser(MarkedParser):
    """After a marker any name is accepted; without one, those that the request offers."""

    separators: ClassVar[str] = ","
    arguments_key: ClassVar[str] = "arguments"  # that the model writes

    @classmethod
    def _tags(cls, offers: list[Offer], before: str = "", after: str = "") -> list[Part]:
        """Each call as the model writes it, with what stands around it."""
        return [
            tag(f'{before}{{"name": {json.dumps(name)}, "{cls.arguments_key}": ', json_of(schema), "}" + after)
            for name, schema in offers
        ]

    def _calls(self) -> Steps[None]:
        text = self._text
        listed = (yield from text.skip_blanks()) == "["
        text.at += listed
        while True:
            yield from self._call()
            char = yield from text.skip_blanks()
            if char == "]" and listed:
                text.at += 1
                return
            if char != "{" and char not in self.separators:
                return
            text.hold()
            text.at += char != "{"

    def _call(self) -> Steps[None]:
        text = self._text
        self._started = self._has_arguments = False
        self._early: list[str] = []  # arguments that came before the name
        yield from text.skip_blanks()
        yield from text.one_of("{")
        yield from self._member()
        while (yield from text.skip_blanks()) == ",":
            text.at += 1
            yield from self._member()
        yield from text.one_of("}" if self._started else "")
        if not self._has_arguments:
            self._pass_on("{}")

    def _member(self) -> Steps[None]:
        text = self._text
        yield from text.skip_blanks()
        key = yield from self._word()
        yield from text.skip_blanks()
        yield from text.one_of(":")
        char = yield from text.skip_blanks()
        if key == "name" and not self._started:
            self._start((yield from self._word()))
        elif key not in ARGUMENTS or self._has_arguments:
            yield from value(text)
        elif char == "{":
            self._has_arguments = True
            yield from text.passing(value(text), self._pass_on)
        elif char == '"':
            yield from self._text_arguments()
        else:
            yield from value(text, "n")

    def _word(self) -> Steps[str]:
        yield from self._text.one_of('"')
        raw = yield from self._text.word(in_string(self._text), MAX_WORD - 1)
        self._text.at += 1
        return StringDecoder().push(raw, last=True)

    def _start(self, name: str) -> None:
        if not name or (self._bare and name not in self.tools):
            raise Broken
        self._started = True
        self._begin_call(name)
        self._say_arguments("".join(self._early))

    def _text_arguments(self) -> Steps[None]:
        """Arguments inside a string."""
        inside, decoder = CallPieces(), StringDecoder()
        steps = self._read_inside(inside)

        def push(raw: str, last: bool = False) -> None:
            inside.add(decoder.push(raw, last))
            next(steps)

        self._text.at += 1
        yield from self._text.passing(in_string(self._text), push)
        push("", last=True)
        self._text.at += 1

    def _read_inside(self, inside: CallPieces) -> Steps[None]:
        with suppress(Broken):
            yield from inside.skip_blanks()
            self._has_arguments = True
            yield from inside.passing(value(inside, "{"), self._pass_on)
        while True:
            inside.at = len(inside.text)
            yield

    def _pass_on(self, fragment: str) -> None:
        if self._started:
            self._say_arguments(fragment)
        else:
            self._early.append(fragment)


class HermesParser(JsonCallsParser):
    """Calls between <tool_call> and </tool_call>, each a JSON object: Hermes, Qwen 2.5, Qwen 3.

    Any name is taken: the tag says that it is a call. A closing tag that is missing is not missed.
    """

    opens = "<tool_call>"
    closes = "</tool_call>"

    @classmethod
    def calls_form(cls, offers: list[Offer], single: bool) -> Part:
        return separated(cls._tags(offers, f"{cls.opens}\n", f"\n{cls.closes}"), "\n", single)

    @classmethod
    def text_form(cls, offers: list[Offer], single: bool) -> Part:
        return among_text(cls.opens, cls._tags(offers, f"{cls.opens}\n", f"\n{cls.closes}"), single)

    def _calls(self) -> Steps[None]:
        """One to a tag."""
        return self._call()


class LlamaParser(JsonCallsParser):
    """Calls as JSON objects with "parameters", after <|python_tag|> or at the very start of the output: Llama 3.

    Without the tag, a call is an output that starts with { or [ where the name is one that the request offers. After
    the tag any name is taken. Calls that are forced come without the tag. Text that is not, but is held to the offers,
    has one call at most, after the tag, because what follows it would be read as another one.
    """

    opens = "<|python_tag|>"
    starts = ("{", "[")
    shows_special = True
    separators = ";,"
    arguments_key = "parameters"

    @classmethod
    def calls_form(cls, offers: list[Offer], single: bool) -> Part:
        return separated(cls._tags(offers), "; ", single)

    @classmethod
    def text_form(cls, offers: list[Offer], single: bool) -> Part:
        return cls._bare_or_marked(cls.calls_form(offers, single), cls._tags(offers, cls.opens))

    @classmethod
    def answer_form(cls, offers: list[Offer], single: bool, answer: Part) -> Part:
        raise Unwritable("cannot stand beside an answer in JSON: it may begin as a call does")


class MistralParser(JsonCallsParser):
    """Calls after [TOOL_CALLS]: a JSON list of them, or name{...} with the marker before each one: Mistral.

    Any name is taken: the marker is a special token. Between the name and the arguments may stand [CALL_ID]id and
    [ARGS]; the id is dropped. Calls that are forced are a list.
    """

    opens = "[TOOL_CALLS]"
    shows_special = True

    @classmethod
    def calls_form(cls, offers: list[Offer], single: bool) -> Part:
        return tag(f"{cls.opens}[", separated(cls._tags(offers), ", ", single), "]")

    @classmethod
    def text_form(cls, offers: list[Offer], single: bool) -> Part:
        return among_text(cls.opens, [cls.calls_form(offers, single)], single)

    def new_id(self) -> str:
        return "".join(random.choices(ID_CHARACTERS, k=9))  # the template takes no others

    def _calls(self) -> Steps[None]:
        if (yield from self._text.skip_blanks()) == "[":
            yield from super()._calls()
            return
        named, self._text.at = yield from self._head(_NAMED)
        if named is None:
            raise Broken
        yield from self._object_call(named[1])
