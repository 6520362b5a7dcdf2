"""Messages on channels become thoughts, content and calls, however the text is cut and whatever the headers are."""

import pytest

from ramet.runtime.intake.parsers.harmony import MAX_HEADER, Channels, ChannelState, channels_of
from ramet.runtime.intake.parsers.tools import CallArguments, CallStart, Part, Thought

OFFERED = frozenset({"f", "get.time"})
CALL = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>"
Kinds = list[tuple[str, str]]


def joined(parts: list[Part]) -> Kinds:
    """The parts, with adjacent ones of one kind joined."""
    found: Kinds = []
    for part in parts:
        match part:
            case str():
                kind, text = "content", part
            case Thought(text):
                kind = "thought"
            case CallStart(text):
                kind = "call"
            case CallArguments(text):
                kind = "arguments"
        assert text, "an empty part"
        if found and found[-1][0] == kind != "call":
            text = found.pop()[1] + text
        found.append((kind, text))
    return found


def read(
    text: str, tools: frozenset[str] | None = OFFERED, state: ChannelState = ChannelState.HEADER, **how: bool
) -> Kinds:
    def parts_of(pieces: list[str]) -> list[Part]:
        channels = Channels(tools, state, **how)
        return [part for piece in pieces for part in channels.push(piece)] + channels.close()

    whole = joined(parts_of([text]))
    for size in (1, 2, 5, 11):
        assert joined(parts_of([text[i : i + size] for i in range(0, len(text), size)])) == whole
    return whole


def test_a_thought_and_an_answer():
    text = (
        "<|channel|>analysis<|message|>So it is.\n<|end|><|start|>assistant<|channel|>final<|message|> Yes.\n<|return|>"
    )
    assert read(text) == [("thought", "So it is.\n"), ("content", " Yes.\n")]
    assert read(text.removesuffix("<|return|>")) == read(text) == read(f"<|end|>{text}<|end|> <|return|>")


@pytest.mark.parametrize("header", [
    CALL,
    "<|channel|>commentary to=functions.f<|message|>",
    "<|channel|>commentary to=functions.f json<|message|>",
    "<|channel|>analysis to=functions.f <|constrain|>json<|message|>",
    " to=functions.f<|channel|>commentary <|constrain|>json<|message|>",
    "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>",
    "<|channel|>commentary to=f<|message|>",
])  # fmt: skip
@pytest.mark.parametrize("end", ["<|call|>", "<|end|>", "", "\n <|call|>", " <|ca"])
def test_a_call_whatever_its_header(header: str, end: str):
    arguments = '{"a": "<|end|> }", "b": [1e400]}'
    assert read(f"{header} {arguments}{end}") == [("call", "f"), ("arguments", arguments)]


def test_a_thought_a_preamble_and_calls():
    text = (
        "<|channel|>analysis<|message|>Ask.<|end|><|start|>assistant<|channel|>commentary<|message|>Let me see.<|end|>"
        f'<|start|>assistant{CALL}{{"x": 1}}<|call|><|start|>assistant{CALL.replace("functions.f", "functions.any")}'
        "<|call|>"
    )
    assert read(text) == [
        ("thought", "Ask."), ("content", "Let me see."), ("call", "f"), ("arguments", '{"x": 1}'),
        ("call", "any"), ("arguments", "{}"),
    ]  # fmt: skip


def test_messages_of_one_kind_are_paragraphs():
    text = (
        "<|channel|>analysis<|message|>A<|end|><|start|>assistant<|channel|>analysis<|message|>B<|end|>"
        "<|start|>assistant<|channel|>commentary<|message|>C<|end|><|start|>assistant<|channel|>final<|message|>D"
    )
    assert read(text) == [("thought", "A\n\nB"), ("content", "C\n\nD")]


@pytest.mark.parametrize(
    "text", ["Hello", " to be", "to=5 it is", "a <|channel|", "<b> <", "\n\n", "{", "x<|message|>y"]
)
def test_text_without_a_header_is_content_byte_for_byte(text: str):
    assert read(text) == [("content", text)]


def test_a_long_header_is_content():
    text = "<|channel|>" + "x" * MAX_HEADER
    assert read(text) == [("content", text)]
    assert read(f"{text}<|message|>y") == [("content", f"{text}<|message|>y")]


@pytest.mark.parametrize("text", ["<|channel|>anal", "<|start|>assistant<|channel|>final", " <|channel|>"])
def test_half_a_header_is_nothing(text: str):
    assert read(text) == []
    assert read(f"<|channel|>analysis<|message|>x<|end|>{text}") == [("thought", "x")]


@pytest.mark.parametrize("arguments", ["print(1)", "[1]", "<b>", "", " <|x"])
def test_what_has_no_arguments_is_no_call(arguments: str):
    expected = [("content", CALL + arguments)] if arguments else [("call", "f"), ("arguments", "{}")]
    assert read(CALL + arguments) == expected
    assert read(f"{CALL}{arguments}<|call|>") == expected


@pytest.mark.parametrize("recipient", ["browser.search", "python", "unknown", "assistant"])
def test_a_recipient_that_is_no_function_gets_content(recipient: str):
    assert read(f'<|channel|>commentary to={recipient}<|message|>{{"x": 1}}<|call|>') == [("content", '{"x": 1}')]


def test_nothing_of_a_call_that_is_cut_off_is_lost():
    arguments = '{"a": "x\\u00e9\\n", "b": [1.5e-5, tru'
    for end in range(1, len(arguments) + 1):
        (_, name), *parts = read(CALL + arguments[:end])
        assert name == "f" and "".join(text for _, text in parts) == arguments[:end]


def test_arguments_that_go_wrong_end_there():
    assert read(f'{CALL}{{"a": tru }}<|call|>') == [("call", "f"), ("arguments", '{"a": tru'), ("content", " }")]
    assert read(f'{CALL}{{"a": 1') == [("call", "f"), ("arguments", '{"a": 1')]
    assert read(f'{CALL}{{}} so<|end|><|channel|>final<|message|>x') == [
        ("call", "f"), ("arguments", "{}"), ("content", "so\n\nx")]  # fmt: skip


def test_calls_are_content_where_nothing_is_offered():
    text = f"{CALL}{{}}"
    assert read(f"<|channel|>analysis<|message|>x<|end|><|start|>assistant{text}<|call|>", None) == [
        ("thought", "x"), ("content", f"<|start|>assistant{text}")]  # fmt: skip


def test_thoughts_in_the_text_have_their_headers():
    thought = "<|channel|>analysis<|message|>x <|start|>"
    text = "<|channel|>analysis<|message|>x<|end|>"
    assert read(f"{text}<|start|>assistant<|channel|>final<|message|>y", in_text=True) == [("content", f"{text}y")]
    assert read(f"{text}<|start|>assistant{CALL}{{}}", in_text=True)[0] == ("content", text)
    assert read(thought, in_text=True) == [("content", thought.removesuffix("<|start|>"))]


QUOTED = f'<|start|>assistant{CALL}{{"a": 1}}<|call|>'


def test_what_a_held_output_quotes_is_no_header():
    thought = f"<|channel|>analysis<|message|>{QUOTED}<|end|><|start|>assistant"
    assert read(f"{thought}<|channel|>final<|message|>{QUOTED}<|end|>", held=True) == [
        ("thought", QUOTED), ("content", f"{QUOTED}<|end|>")]  # fmt: skip
    assert read(f'{thought}{CALL}{{"a": "<|end|>"}}', held=True)[1:] == [
        ("call", "f"),
        ("arguments", '{"a": "<|end|>"}'),
    ]
    exact = "<|channel|>analysis<|message|>x<|channel|>final<|message|>"
    assert read(exact + QUOTED, exact=True) == [("thought", "x"), ("content", QUOTED)]


@pytest.mark.parametrize("how", ["held", "exact"])
def test_a_continued_answer_that_is_constrained_ends_with_the_output(how: str):
    channels = channels_of(OFFERED, "...", "It", in_text=False, **{"held": False, "exact": False, how: True})
    assert joined(channels.push(f" is<|end|>{QUOTED}") + channels.close()) == [("content", f" is<|end|>{QUOTED}")]


@pytest.mark.parametrize(("tail", "continued", "text", "kinds"), [
    ("<|start|>assistant", None, "<|channel|>final<|message|>a", [("content", "a")]),
    ("<|start|>assistant<|channel|>analysis<|message|>", None, "a<|end|>", [("thought", "a")]),
    ("<|start|>assistant<|channel|>final<|message|>", None, "a<|return|>", [("content", "a")]),
    ("...", "It", " is<|return|>", [("content", " is")]),
    ("...", "<|channel|>analysis<|message|>It", " is<|end|>", [("thought", " is")]),
    ("...", "<|channel|>analysis<|message|>It<|end|>", " is", [("content", " is")]),
])  # fmt: skip
def test_an_output_goes_on_where_the_prompt_ends(tail: str, continued: str | None, text: str, kinds: Kinds):
    channels = channels_of(OFFERED, tail, continued, in_text=False, held=False, exact=False)
    assert joined(channels.push(text) + channels.close()) == kinds


def test_it_thinks_until_another_message_begins():
    channels = Channels(OFFERED)
    seen = []
    for piece in (
        "<|channel|>analysis",
        "<|message|>",
        "x",
        "<|end|>",
        "<|start|>assistant<|channel|>final",
        "<|message|>",
        "y",
    ):
        channels.push(piece)
        seen.append((channels.thinking, channels.begun))
    assert seen == [(True, False)] + [(True, True)] * 4 + [(False, True)] * 2


def test_content_and_arguments_go_out_as_they_come():
    channels = Channels(OFFERED)
    assert channels.push("<|channel|>final<|message|>He") == ["He"]
    assert channels.push("llo <|") == ["llo "]
    assert channels.push("b") == ["<|b"]
    channels = Channels(OFFERED)
    assert channels.push(f'{CALL}{{"a') == [CallStart("f"), CallArguments('{"a')]
    assert channels.push('b": "x') == [CallArguments('b": "x')]
