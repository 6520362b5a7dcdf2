"""Structural tags: what an output may be, on every backend that enforces it."""

import dataclasses
import json
import re

import pytest
from constrained import NAMES, allowed, backend, bytewise, compiled, ids_of, takes, vocabulary

from ramet.ipc.spec import Constraint, ConstraintKind
from ramet.runtime.grammar.backends import build
from ramet.runtime.grammar.base import GrammarError

TAGS = ConstraintKind.STRUCTURAL_TAG
DAY = {
    "type": "object",
    "properties": {"day": {"type": "string", "format": "date"}},
    "required": ["day"],
    "additionalProperties": False,
}
COUNT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}


def const(value):
    return {"type": "const_string", "value": value}


def tag(begin, content, end):
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def schema(value):
    return {"type": "json_schema", "json_schema": value}


def regex(pattern):
    return {"type": "regex", "pattern": pattern}


def triggered(triggers, tags, **flags):
    return {"type": "triggered_tags", "triggers": triggers, "tags": tags, **flags}


def text_of(form):
    return json.dumps({"type": "structural_tag", "format": form})


ANY = {"type": "any_text"}
FUNCTIONS = [tag("<function=day>", schema(DAY), "</function>"), tag("<function=n>", schema(COUNT), "</function>")]
CALLS = [
    tag('<tool_call>{"name": "day", "arguments": ', schema(DAY), "}</tool_call>"),
    tag('<tool_call>{"name": "n", "arguments": ', schema(COUNT), "}</tool_call>"),
]
TODAY = '{"day": "2024-02-29"}'
DAY_CALL = f'<tool_call>{{"name": "day", "arguments": {TODAY}}}</tool_call>'
N_FUNCTION = '<function=n>{"n": 1}</function>'
N_CALL = '<tool_call>{"name": "n", "arguments": {"n": 3}}</tool_call>'
REGULAR = [
    (const("a<b"), ["a<b"], ["", "a<", "a<bc"]),
    (schema(COUNT), ['{"n": 12}'], ['{"n": "a"}', '{"n":1}']),
    (regex("[a-z]+"), ["abc"], ["", "a1"]),
    ({"type": "sequence", "elements": [const("x"), regex("[a-z]*"), const("yz")]}, ["xyz", "xayzyz"], ["xyzy", "yz"]),
    ({"type": "or", "elements": [const("ab"), regex("a[0-9]"), schema(COUNT)]}, ["ab", "a1", '{"n": 1}'], ["a", "b"]),
    (tag("<t>", regex(r"[^>]*"), "</t>"), ["<t>a</t>", "<t></t</t>"], ["<t>a</t", "a</t>"]),
    (tag("<t>", regex(r"\d+"), ["</t>", "!"]), ["<t>12</t>", "<t>1!"], ["<t>1", "<t>1</t>!"]),
    (
        {"type": "tags_with_separator", "tags": [tag("<a>", regex("x*"), "</a>"), tag("<b>", const(""), "")],
         "separator": ", "},
        ["", "<a>x</a>", "<b>", "<a></a>, <b>, <a>xx</a>"],
        ["<a>x</a>, ", "<a></a><b>"],
    ),
    (
        {"type": "tags_with_separator", "tags": [tag("<b>", const("c"), "")], "separator": ",", "at_least_one": True,
         "stop_after_first": True},
        ["<b>c"],
        ["", "<b>c,<b>c"],
    ),
]  # fmt: skip
ROOMY = [
    (ANY, ["", "any <function text\n"], []),
    (tag("<t>", ANY, "</t>"), ["<t></t>", "<t>a</ b</t>"], ["<t>a", "<t></t>b", "<t></t></t>"]),
    (
        {"type": "sequence", "elements": [ANY, const("END"), schema(COUNT)]},
        ['END{"n": 1}', 'a EN bEND{"n": 1}'],
        ["END", 'aENDbEND{"n": 1}'],
    ),
    (
        triggered(["<function="], FUNCTIONS),
        ["", "hello <fun", f"<function=day>{TODAY}</function>", f"a{N_FUNCTION}b{N_FUNCTION}"],
        ["<function=", "a<function=evil>", 'a<function=n>{"n": "x"}</function>', 'a<function=n>{"n": 1}'],
    ),
    (
        triggered(["<function="], FUNCTIONS, at_least_one=True),
        ['<function=n>{"n": 1}</function>', '<function=n>{"n": 1}</function> then'],
        ["", 'a<function=n>{"n": 1}</function>'],
    ),
    (
        triggered(["<function="], FUNCTIONS, stop_after_first=True),
        ["", "text", 'a<function=n>{"n": 1}</function>'],
        ['<function=n>{"n": 1}</function>b'],
    ),
    (
        triggered(["<function="], FUNCTIONS, at_least_one=True, stop_after_first=True),
        ['<function=n>{"n": 1}</function>'],
        ["", 'a<function=n>{"n": 1}</function>', '<function=n>{"n": 1}</function>b'],
    ),
    (
        tag("<all>", triggered(["<function="], FUNCTIONS), "</all>"),
        ["<all></all>", 'A'.join(["<all>", '<function=n>{"n": 1}</function>', "</all>"])],
        ["<all>", "<all></all>b", "<all><function=x</all>"],
    ),
    (
        triggered(["<tool_call>"], CALLS),
        ["", "text", f"Well, {DAY_CALL}\n{N_CALL} done"],
        ["<tool_call>", '<tool_call>{"name": "evil"', "a</tool_call>"],
    ),
    (
        triggered(["<tool_call>", "<f>"], [*CALLS, tag("<f>", regex("[a-z]*"), "</f>")], stop_after_first=True),
        ["text", f"Well, {DAY_CALL}", "a<f>b</f>"],
        [f"{DAY_CALL} ", "a<f>b</f>c", "<f>", f"{DAY_CALL}<f></f>"],
    ),
    (
        {"type": "sequence", "elements": [tag("<think>", ANY, "</think>"), schema(COUNT)]},
        ['<think>a <b> c</think>{"n": 1}'],
        ['<think>a', '<think>a</think>', '{"n": 1}'],
    ),
    (
        tag("<think>\n", ANY, "\n</think>"),
        ["<think>\n\n</think>", "<think>\na\nb\n</think>"],
        ["<think>\na</think>", "<think>a\n</think>"],
    ),
    (
        {"type": "grammar", "grammar": 'root ::= "(" root ")" | "x"'},
        ["x", "((x))"],
        ["(x", "()"],
    ),
]  # fmt: skip
CASES = [(name, *case) for case in REGULAR for name in NAMES]
CASES += [(name, *case) for case in ROOMY for name in ("llguidance", "xgrammar")]


@pytest.mark.parametrize(("name", "form", "taken", "refused"), CASES)
def test_a_tag_takes_its_texts_and_no_others(name, form, taken, refused):
    ready = compiled(name, TAGS, text_of(form), "single-space")
    assert [text for text in taken if not takes(ready, text)] == []
    assert [text for text in refused if takes(ready, text)] == []


@pytest.mark.parametrize("name", ["llguidance", "xgrammar"])
def test_the_older_format_means_the_same(name):
    old = {"structures": [{"begin": "<f>", "schema": COUNT, "end": "</f>"}], "triggers": ["<f"]}
    ready = compiled(name, TAGS, json.dumps(old))
    assert takes(ready, 'a<f>{"n": 1}</f>b') and takes(ready, "") and not takes(ready, "<f>{}</f>")


@pytest.mark.parametrize("name", ["llguidance", "xgrammar"])
def test_a_control_token_is_meant_by_its_text_and_cannot_be_spelled(name):
    call = vocabulary().tokenizer.added_tokens["<tool_call>"]
    grammar = compiled(name, TAGS, text_of(triggered(["<tool_call>"], CALLS))).start()
    assert all(map(grammar.accept, ids_of("Well")))
    spelled = grammar.fork()
    assert not all(map(spelled.accept, bytewise("<tool_call>")))
    never = {*vocabulary().tokenizer.added_tokens.values()} - {call} - vocabulary().eos_ids
    assert call in allowed(grammar) and not allowed(grammar) & never
    assert grammar.accept(call) and call not in allowed(grammar)


@pytest.mark.parametrize("name", ["llguidance", "xgrammar"])
def test_a_token_may_span_the_border_of_content_and_end(name):
    ready = compiled(name, TAGS, text_of(tag("<t>", schema(COUNT), "}</t>")))
    both = next(i for i in ids_of("}}") if vocabulary().tokenizer.token_bytes(i) == b"}}")
    grammar = ready.start()
    assert all(map(grammar.accept, ids_of('<t>{"n": 1')))
    assert grammar.accept(both)


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"type": "qwen_xml"}, "#/format/type is 'qwen_xml', must be one of const_string"),
        ({"type": "const_string"}, "#/format/value is missing or no string"),
        (schema({"not": {"minimum": 2}}), "#/format/json_schema: #/not: llguidance does not enforce 'not'"),
        (regex("(?=a)"), "#/format/pattern: uses lookahead at offset 0"),
        ({"type": "grammar", "grammar": "rot"}, "#/format/grammar: is not a GBNF grammar"),
        ({"type": "any_text", "excludes": ["a"]}, "#/format/excludes: 'excludes' is not enforced"),
        ({**schema({}), "style": "qwen_xml"}, "#/format/style: 'style' is not enforced"),
        ({"type": "sequence", "elements": []}, "#/format/elements is empty"),
        ({"type": "sequence", "elements": [ANY, regex("a")]}, "#/format/elements/0 is free text"),
        (const("a\0"), "has the text 'a\\x00', which no output has"),
        (tag("<t>", ANY, ""), "give the tag an end"),
        (triggered(["<a"], [tag("<b>", ANY, "</b>")]), "#/format/tags/0/begin must begin with exactly one"),
        (triggered(["a", "ab"], [tag("ab", ANY, "c")]), "must begin with exactly one of the triggers"),
        (triggered([], [tag("ab", ANY, "c")]), "#/format/triggers must be strings that are not empty"),
        (triggered(["a<think>"], [tag("a<think>", ANY, "c")]), "has a control token that it does not begin with"),
        (triggered(["ab", "b"], [tag("ab", ANY, "c"), tag("b", ANY, "c")]), "is a part of another trigger"),
        (tag("a", triggered(["<f"], [tag("<f>", ANY, "c")]), "x<"), "the trigger '<f', which overlaps with 'x<'"),
        (triggered(["a"], [tag("ab", ANY, "c")], at_least_one=1), "#/format/at_least_one must be true or false"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_tag_is_named(form, words):
    with pytest.raises(GrammarError, match=re.escape(words)):
        backend("llguidance").prepare(Constraint(TAGS, text_of(form)), "compact")


@pytest.mark.parametrize(
    ("form", "words"), [(ANY, "free text"), (const("<think>"), "a control token"), (schema({}), "allows any value")]
)
def test_outlines_refuses_what_is_not_regular(form, words):
    with pytest.raises(GrammarError, match=words):
        backend("outlines").prepare(Constraint(TAGS, text_of(form)), "compact")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("form", "token"),
    [
        (tag("<a>", regex("[a-z]{3}"), "<|im_end|>"), "<|im_end|>"),
        (tag("<|im_end|>", regex("[a-z]{3}"), "</a>"), "<|im_end|>"),
        (tag("<a>", ANY, ["</a>", "<|endoftext|>"]), "<|endoftext|>"),
        (const("ab<|im_end|>cd"), "<|im_end|>"),
        (const("<|endoftext|>"), "<|endoftext|>"),
        ({"type": "sequence", "elements": [ANY, const("x<|im_end|>")]}, "<|im_end|>"),
        (triggered(["<|im_end|>"], [tag("<|im_end|>a", regex("b"), "c")]), "<|im_end|>"),
        (triggered(["<a"], [tag("<a>", regex("b"), "<|im_end|>")], at_least_one=True), "<|im_end|>"),
        (
            {"type": "tags_with_separator", "tags": [tag("<a>", regex("b"), "c")], "separator": "<|im_end|>"},
            "<|im_end|>",
        ),
    ],
)
def test_a_tag_cannot_name_a_token_that_ends_an_output(name, form, token):
    with pytest.raises(GrammarError) as refused:
        backend(name).prepare(Constraint(TAGS, text_of(form)), "compact")
    assert refused.value.fact == f"names {token}, which ends an output and cannot stand in one"
    assert refused.value.hint == "leave it out: an output ends where its constraint is fulfilled"


@pytest.mark.parametrize("name", ["llguidance", "xgrammar"])
def test_which_tokens_end_an_output_the_model_says(name):
    ends = {vocabulary().tokenizer.added_tokens["</tool_call>"]}
    other = build(name, dataclasses.replace(vocabulary(), eos_ids=frozenset(ends)))
    other.prepare(Constraint(TAGS, text_of(const("a<|im_end|>"))), "compact")
    with pytest.raises(GrammarError, match="names </tool_call>, which ends an output"):
        other.prepare(Constraint(TAGS, text_of(const("a</tool_call>"))), "compact")


def test_what_is_no_structural_tag_is_refused():
    for text in ("[]", "{}", '{"type": "structural_tag"}', '{"type": "structural_tag", "format": {}, "x": 1}', "{"):
        with pytest.raises(GrammarError):
            backend("llguidance").prepare(Constraint(TAGS, text), "compact")
