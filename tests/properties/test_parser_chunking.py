"""Any pieces of an output give what the whole of it gives, for every parser of tool calls and every style of thought.

Outputs are built from a list of calls, so that well-formed ones must give these calls back; then they are damaged.
Pieces are cut between characters, or between bytes with an incremental decoder in front, as tokens are.
"""

import codecs
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import examples

from ramet.runtime.intake.parsers.marked import MarkedParser
from ramet.runtime.intake.parsers.reasoning import make_reasoning, reasoning_names, reasoning_style
from ramet.runtime.intake.parsers.tools import (
    CallArguments,
    CallStart,
    Event,
    tool_parser_class,
    tool_parser_names,
)

NAMES = ("f", "g", "get_weather")
OFFERED = frozenset(NAMES)
MARKED = ("deepseek", "hermes", "llama3-json", "mistral", "pythonic")
FORMATS = (*MARKED, "gpt-oss")
TAGGED = [name for name in reasoning_names() if not reasoning_style(name).channels]
TAGS = (
    "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]", "<|python_tag|>", "<|python_start|>",
    "<|python_end|>", "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>", "<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>", "analysis", "final",
    "to=functions.f", "```json", "<think>", "</think>", "[THINK]", "[/THINK]",
)  # fmt: skip
NASTY = st.sampled_from(
    [*TAGS, *"{}[]()\"'\\,:;=<|. \n\t/", '\\"', "\\\\", "\\u00", "\\ud83d", "é", "東", "😀", "f", "x=1"]
)
TEXT = st.lists(NASTY | st.sampled_from(["a", "b c", "1", "null", "name", "arguments"]), max_size=6).map("".join)
KEYS = st.sampled_from(["a", "b", "city", "name", "arguments", "x1"])
SCALARS = st.none() | st.booleans() | st.integers(-999, 999) | st.sampled_from([0.5, -2e10, 1e-7]) | TEXT
VALUES = st.recursive(SCALARS, lambda v: st.lists(v, max_size=3) | st.dictionaries(TEXT, v, max_size=3), max_leaves=6)
CALLS = st.lists(st.tuples(st.sampled_from(NAMES), st.dictionaries(KEYS, VALUES, max_size=3)), min_size=1, max_size=3)
PLAIN = st.lists(st.sampled_from([*'aé😀 \n<[{"', "</", "so", "<tool", "[TOOL", "<|py", "<｜tool▁", "``"]))
CONTENT = PLAIN.map(lambda parts: "x" + "".join(parts) + "x")
BLANKS = st.sampled_from(["", " ", "\n", "\n\n"])
Call = tuple[str, dict[str, Any]]
Outcome = tuple[str, list[tuple[str, str]]]


# -- outputs ----------------------------------------------------------------------------------------------------------


def call_json(draw: st.DrawFn, call: Call, key: str) -> str:
    """The keys in any order, others among them, the arguments perhaps in a string, everything perhaps escaped."""
    name, arguments = call
    ascii_only, spaced, quoted = draw(st.booleans()), draw(st.booleans()), draw(st.integers(0, 3)) == 0
    dump = lambda value: json.dumps(  # noqa: E731
        value, ensure_ascii=ascii_only, indent=1 if spaced else None, separators=(",", ":")
    )
    fields: list[tuple[str, Any]] = [("name", name)]
    if arguments or draw(st.booleans()):
        fields.append((key, dump(arguments) if quoted else arguments))
    if draw(st.booleans()):
        fields.append(("id", draw(VALUES)))
    return dump(dict(draw(st.permutations(fields))))


def call_python(draw: st.DrawFn, call: Call) -> str:
    name, arguments = call
    return f"{name}({', '.join(f'{key}{draw(BLANKS)}={value!r}' for key, value in arguments.items())})"


def call_deepseek(draw: st.DrawFn, call: Call) -> str:
    """The name after the separator or before it, the marker that closes perhaps missing."""
    name, arguments = call
    shown = json.dumps(arguments, ensure_ascii=draw(st.booleans()))
    fenced = f"function<｜tool▁sep｜>{name}\n```json\n{shown}\n```"
    body = fenced if draw(st.booleans()) else f"{name}<｜tool▁sep｜>{shown}"
    return "<｜tool▁call▁begin｜>" + body + draw(st.sampled_from(["", "<｜tool▁call▁end｜>"]))


def call_on_channel(draw: st.DrawFn, call: Call) -> str:
    name, arguments = call
    shown = draw(BLANKS) + json.dumps(arguments, ensure_ascii=draw(st.booleans())) + draw(BLANKS)
    form = draw(st.sampled_from(["<|constrain|>json", "json", "", "code"]))
    headers = f"<|channel|>commentary to=functions.{name} {form}", f" to=functions.{name}<|channel|>commentary {form}"
    return f"{draw(st.sampled_from(headers))}<|message|>{shown}<|call|>"


def write(draw: st.DrawFn, style: str, calls: list[Call]) -> tuple[str, str]:
    """An output with these calls, and the content it must give."""
    before, after = draw(st.just("") | CONTENT), draw(st.just("") | CONTENT)
    gap, end = draw(BLANKS), draw(BLANKS) if after else ""
    match style:
        case "deepseek":
            closes = draw(st.sampled_from(["", "<｜tool▁calls▁end｜>"]))
            shown = [call_deepseek(draw, call) for call in calls]
            body = "<｜tool▁calls▁begin｜>" + gap + gap.join(shown) + gap + closes
            return before + gap + body + end + after, before + after
        case "gpt-oss":
            final = "<|channel|>final<|message|>{}<|end|>{}<|start|>assistant"
            shown = [call_on_channel(draw, call) for call in calls]
            body = (final.format(before, gap) if before else "") + "<|start|>assistant".join(shown)
            return body + (f"<|start|>assistant<|channel|>final<|message|>{after}" if after else ""), before + after
        case "hermes":
            shown = [f"<tool_call>{gap}{call_json(draw, call, 'arguments')}{end}</tool_call>" for call in calls]
            return before + gap + gap.join(shown) + end + after, before + after
        case "llama3-json":
            shown = [call_json(draw, call, draw(st.sampled_from(["parameters", "arguments"]))) for call in calls]
            tag = "<|python_tag|>" if before else draw(st.sampled_from(["", "<|python_tag|>"]))
            listed = draw(st.booleans())
            body = "[" + ",".join(shown) + "]" if listed else draw(st.sampled_from(["; ", "\n", "", " ,"])).join(shown)
            return before + gap + tag + gap + body + end + after, before + after
        case "mistral" if draw(st.booleans()):
            shown = [call_json(draw, call, "arguments") for call in calls]
            return before + gap + "[TOOL_CALLS]" + gap + "[" + ", ".join(shown) + "]" + end + after, before + after
        case "mistral":
            middle = draw(st.sampled_from(["", "[ARGS]", "[CALL_ID]a1b2[ARGS]"]))
            shown = [f"[TOOL_CALLS]{gap}{name}{middle}{json.dumps(arguments)}" for name, arguments in calls]
            return before + gap + gap.join(shown) + end + after, before + after
        case _:
            body = "[" + ", ".join(call_python(draw, call) for call in calls) + "]"
            tagged = bool(before) or draw(st.booleans())
            body = f"<|python_start|>{body}<|python_end|>" if tagged else body
            return before + gap + body + end + after, before + after


@st.composite
def outputs(draw: st.DrawFn, style: str) -> tuple[str, str, list[Call]]:
    calls = draw(CALLS)
    return *write(draw, style, calls), calls


def damage(draw: st.DrawFn, text: str) -> str:
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 12)))
        match draw(st.sampled_from(["delete", "double", "insert", "cut", "blanks"])):
            case "delete":
                text = text[:start] + text[end:]
            case "double":
                text = text[:end] + text[start:end] + text[end:]
            case "insert":
                text = text[:start] + draw(TEXT) + text[start:]
            case "cut":
                text = text[:start] if draw(st.booleans()) else text[start:]
            case "blanks":
                text = text[:start] + " \n" * draw(st.sampled_from([1, 127, 128, 129, 200])) + text[start:]
    return text


@st.composite
def damaged(draw: st.DrawFn, style: str) -> str:
    return damage(draw, draw(outputs(style))[0] if draw(st.integers(0, 4)) else draw(TEXT) + draw(TEXT))


@st.composite
def thoughts(draw: st.DrawFn, style: str) -> tuple[str, str, str]:
    tags = reasoning_style(style)
    opened = draw(st.booleans()) or not tags.always
    thought, answer = draw(CONTENT), draw(CONTENT)
    gaps = [draw(BLANKS) for _ in range(4)]
    text = f"{gaps[0] + tags.open_tag if opened else ''}{gaps[1]}{thought}{gaps[2]}{tags.close_tag}{gaps[3]}{answer}"
    return text, thought, answer


# -- pieces -----------------------------------------------------------------------------------------------------------


@st.composite
def cuts(draw: st.DrawFn, text: str) -> list[str]:
    """The text in pieces, some of them empty, cut between characters or between bytes."""
    if draw(st.booleans()):
        decoder = codecs.getincrementaldecoder("utf-8")()
        return [decoder.decode(piece) for piece in _cut(draw, text.encode())]
    return _cut(draw, text)


def _cut(draw: st.DrawFn, whole: Any) -> list[Any]:
    step = draw(st.sampled_from([0, 0, 1, 2, 3, 5]))
    if step:
        return [whole[i : i + step] for i in range(0, len(whole), step)]
    places = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    return [whole[a:b] for a, b in zip([0, *places], [*places, len(whole)], strict=True)]


def read_calls(style: str, pieces: list[str], leading: bool = False) -> Outcome:
    parser = tool_parser_class(style)(OFFERED)
    parser.leading = leading
    events: list[Event] = [event for piece in pieces for event in parser.push(piece)] + parser.close()
    content: list[str] = []
    calls: list[tuple[str, list[str]]] = []
    for event in events:
        match event:
            case str():
                content.append(event)
            case CallStart(name):
                calls.append((name, []))
            case CallArguments(text):
                assert text, "an empty fragment"
                calls[-1][1].append(text)
    return "".join(content), [(name, "".join(arguments)) for name, arguments in calls]


def read_thought(style: str, tail: str, pieces: list[str], with_tags: bool = False) -> tuple[str, str]:
    parser = make_reasoning(style, tail, with_tags=with_tags)
    parts = [parser.push(piece) for piece in pieces] + [parser.close()]
    return "".join(reasoning for reasoning, _ in parts), "".join(content for _, content in parts)


# -- properties -------------------------------------------------------------------------------------------------------

FEW = examples(30, 1000)


@pytest.mark.parametrize("style", FORMATS)
@FEW
@given(st.data())
def test_well_formed_calls_come_back_from_any_pieces(style: str, data: st.DataObject):
    text, content, calls = data.draw(outputs(style))
    got, read = read_calls(style, data.draw(cuts(text)))
    assert [(name, json.loads(arguments)) for name, arguments in read] == calls
    assert got == content
    assert (got, read) == read_calls(style, [text])


@pytest.mark.parametrize("style", FORMATS)
@FEW
@given(st.data())
def test_damaged_outputs_read_the_same_in_any_pieces(style: str, data: st.DataObject):
    text, leading = data.draw(damaged(style)), data.draw(st.booleans())
    assert read_calls(style, data.draw(cuts(text)), leading) == read_calls(style, [text], leading)


@pytest.mark.parametrize("style", MARKED)
@FEW
@given(st.data())
def test_a_bound_on_what_is_held_is_met_at_the_same_character_in_any_pieces(style: str, data: st.DataObject):
    text = data.draw(outputs(style))[0]
    start = max(0, text.find(tool_parser_class(style).opens))
    place = data.draw(st.integers(start, min(len(text), start + 60)))
    filler = data.draw(st.sampled_from([" ", "x", "1", "\\u0041", "[", '"a":1, ', "\\n"]))
    text = text[:place] + filler * (data.draw(st.integers(250, 450)) // len(filler)) + text[place:]
    pieces = data.draw(cuts(text))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ramet.runtime.intake.parsers.pieces.MAX_HELD", 300)
        assert read_calls(style, pieces) == read_calls(style, [text])


@pytest.mark.parametrize("style", FORMATS)
@examples(5, 100)
@given(st.data())
def test_every_prefix_can_be_the_whole(style: str, data: st.DataObject):
    text = data.draw(damaged(style))[:200]
    for end in range(len(text) + 1):
        assert read_calls(style, [text[:end]]) == read_calls(style, list(text[:end]))


@pytest.mark.parametrize("style", FORMATS)
@FEW
@given(st.data())
def test_nothing_becomes_certain_that_more_text_takes_back(style: str, data: st.DataObject):
    """What is said of a beginning, before it is closed, is how everything said of the whole begins."""
    text = data.draw(damaged(style))
    parser = tool_parser_class(style)(OFFERED)
    early = "".join(e for e in parser.push(text[: data.draw(st.integers(0, len(text)))]) if isinstance(e, str))
    assert read_calls(style, [text])[0].startswith(early)


@pytest.mark.parametrize("style", TAGGED)
@FEW
@given(st.data())
def test_thoughts_and_answers_come_back_from_any_pieces(style: str, data: st.DataObject):
    text, thought, answer = data.draw(thoughts(style))
    assert read_thought(style, "", data.draw(cuts(text))) == (thought, answer)


@pytest.mark.parametrize("style", TAGGED)
@FEW
@given(st.data())
def test_damaged_thoughts_read_the_same_in_any_pieces(style: str, data: st.DataObject):
    text = damage(data.draw, data.draw(thoughts(style))[0])
    tail = data.draw(st.sampled_from(["", reasoning_style(style).open_tag + "\n"]))
    assert read_thought(style, tail, data.draw(cuts(text))) == read_thought(style, tail, [text])


@pytest.mark.parametrize("style", TAGGED)
@FEW
@given(st.data())
def test_a_thought_that_stays_in_the_text_is_there_byte_for_byte_in_any_pieces(style: str, data: st.DataObject):
    text = damage(data.draw, data.draw(thoughts(style))[0])
    tail = data.draw(st.sampled_from(["", reasoning_style(style).open_tag + "\n"]))
    whole, apart = (read_thought(style, tail, data.draw(cuts(text)), with_tags) for with_tags in (True, False))
    assert "".join(whole) == text and whole == read_thought(style, tail, [text], True)
    assert whole[1].strip() == apart[1].strip() and bool(apart[0]) <= bool(whole[0])


def test_every_parser_is_tested_here():
    """Under one name or another, with its markers among the damage."""
    classes = {tool_parser_class(name) for name in tool_parser_names()}
    assert {tool_parser_class(name) for name in FORMATS} == classes
    styles = [reasoning_style(name) for name in reasoning_names()]
    marks = {tag for style in styles for tag in (style.open_tag, style.close_tag) if not style.channels}
    marks |= {mark for parser in classes if issubclass(parser, MarkedParser) for mark in (parser.opens, parser.closes)}
    assert marks - {""} <= set(TAGS)
