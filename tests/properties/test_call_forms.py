"""Whatever the form of a parser's calls allows is read by that parser as calls of the offered tools, and nothing else.

So an output that is held to the form has only offered names, and the arguments that were held to their schemas.
"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import examples
from tag_samples import Call, TagSampler

from ramet.runtime.intake.parsers.harmony import Channels, HarmonyParser
from ramet.runtime.intake.parsers.structure import json_of
from ramet.runtime.intake.parsers.tools import CallArguments, CallStart, Offer, ToolParser, tool_parser_class

pytestmark = pytest.mark.timeout(1800)  # all examples of `make test-slow` take minutes

FORMATS = ("deepseek", "hermes", "llama3-json", "mistral", "pythonic")
SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "kind": {"enum": ["it's", 'a "b"', "a+b", 3, None, True]},
        "many": {"type": "array", "items": {"anyOf": [{"type": "number"}, {"$ref": "#/$defs/point"}]}},
        "any": {},
    },
    "required": ["kind"],
    "$defs": {"point": {"type": "object", "properties": {"x": {"type": "integer"}, "it's": {"type": "boolean"}}}},
}
OFFERS = [Offer("get_rain", SCHEMA), Offer("put.wind:2", {"type": "object"}), Offer("now", {"type": "object"})]
IN_PYTHON = [
    OFFERS[0],
    Offer("put_wind", {"type": "object", "properties": {"a": {"type": "null"}, "b": {}}}),
    OFFERS[2],
]


def read(parser: ToolParser, text: str, cut: int) -> tuple[list[Call], str]:
    """The calls and the content."""
    events = [*parser.push(text[:cut]), *parser.push(text[cut:])] if 0 < cut < len(text) else parser.push(text)
    names, arguments, content = list[str](), list[str](), ""
    for event in [*events, *parser.close()]:
        match event:
            case CallStart(name):
                names.append(name)
                arguments.append("")
            case CallArguments(fragment):
                arguments[-1] += fragment
            case _:
                content += event
    return [(name, json.loads(each)) for name, each in zip(names, arguments, strict=True)], content


def offers_of(name: str) -> list[Offer]:
    return IN_PYTHON if name == "pythonic" else OFFERS


def sampler_for(data: st.DataObject, name: str) -> TagSampler:
    return TagSampler(data.draw, [offer.name for offer in offers_of(name)])  # type: ignore[arg-type]


def parser_of(name: str) -> ToolParser:
    return tool_parser_class(name)(frozenset(offer.name for offer in offers_of(name)))


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("name", FORMATS)
@examples(8, 1000)
@given(st.data())
def test_a_forced_output_is_calls_and_nothing_else(name: str, single: bool, data: st.DataObject) -> None:
    sampler, parser = sampler_for(data, name), parser_of(name)
    text = sampler.text(parser.calls_form(offers_of(name), single))
    calls, content = read(parser, text, data.draw(st.integers(0, len(text))))
    assert calls == sampler.calls and content == ""
    assert len(calls) == 1 if single else len(calls) >= 1


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("name", FORMATS)
@examples(12, 2000)
@given(st.data())
def test_a_call_inside_a_text_is_an_offered_one(name: str, single: bool, data: st.DataObject) -> None:
    sampler, parser = sampler_for(data, name), parser_of(name)
    text = sampler.text(parser.text_form(offers_of(name), single))
    calls, _ = read(parser, text, data.draw(st.integers(0, len(text))))
    assert calls == sampler.calls
    assert len(calls) <= 1 or not single


@pytest.mark.parametrize("kind", ["calls", "text", "answer"])
@examples(12, 2000)
@given(st.data())
def test_an_output_on_channels_calls_what_is_offered(kind: str, data: st.DataObject) -> None:
    sampler, form = sampler_for(data, "gpt-oss"), HarmonyParser.text_form(OFFERS, False)
    if kind != "text":
        form = HarmonyParser.calls_form(OFFERS, True)
    if kind == "answer":
        form = HarmonyParser.answer_form(OFFERS, False, json_of({}))
    text = sampler.text(form)
    channels, cut = Channels(frozenset(offer.name for offer in OFFERS), held=True), data.draw(st.integers(0, len(text)))
    parts = [*channels.push(text[:cut]), *channels.push(text[cut:]), *channels.close()]
    assert [part.name for part in parts if isinstance(part, CallStart)] == [name for name, _ in sampler.calls]
    arguments = "".join(part.text for part in parts if isinstance(part, CallArguments))
    assert not sampler.calls or json.loads(arguments) == sampler.calls[0][1]
    content = "".join(part for part in parts if isinstance(part, str))
    assert content == ("" if sampler.calls else text.partition("<|channel|>final<|message|>")[2])


@pytest.mark.parametrize("name", sorted({*FORMATS} - {"llama3-json"}))
@examples(10, 500)
@given(st.data())
def test_an_output_is_calls_or_an_answer(name: str, data: st.DataObject) -> None:
    sampler, parser = sampler_for(data, name), parser_of(name)
    text = sampler.text(parser.answer_form(offers_of(name), False, json_of({})))
    parser.leading = True
    calls, content = read(parser, text, data.draw(st.integers(0, len(text))))
    assert calls == sampler.calls and content == ("" if calls else sampler.answer)
