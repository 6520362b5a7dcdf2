"""Grammars of clients: GBNF on the backends that enforce context, Lark on llguidance."""

import re

import pytest
from constrained import allowed, backend, bytewise, compiled, takes

from ramet.ipc.spec import Constraint, ConstraintKind
from ramet.runtime.grammar.base import GrammarError
from ramet.runtime.grammar.gbnf import read
from ramet.runtime.grammar.lark import in_one_line

EBNF = ConstraintKind.EBNF
each_backend = pytest.mark.parametrize("name", ["llguidance", "xgrammar"])
JSON = r"""
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
# Optional space
ws ::= | " " | "\n" [ \t]{0,20}
"""
EXPRESSION = 'root ::= expr\nexpr ::= expr "+" term | term\nterm ::= [0-9]+ | "(" expr ")"'


@each_backend
@pytest.mark.parametrize(
    ("grammar", "taken", "refused"),
    [
        ('root ::= a "b"\na ::= [a-z]*', ["ab", "b", "abb", "bbbb"], ["a", "", "abc"]),
        ('root ::= ("a"|"ab") "b"', ["ab", "abb"], ["a", "abbb"]),
        ('root ::= [a-z]* "abc" [a-z]*', ["abc", "xabcx", "aabc"], ["ab", "acb"]),
        (EXPRESSION, ["1", "1+2", "(1+2)+34", "((1))"], ["1+", "(1", "()"]),
        (JSON, ['{"a": [1, 2.5e3, {"b": null}], "c": "x\\ny"}', "{}", '{"a":10}'], ['{"a":01}', "[]", '{"a" 1}']),
        ('root ::= x*\nx ::= "" | "a"', ["", "a", "aaa"], ["b"]),
        ('root ::= "é" . [^a]{2,3}', ["éxbc", "é\nbbb"], ["éxb", "éxab"]),
        ('root ::= "\\x41\\u00e9\\U0001F600\\"" [\\]\\-\\[^]', ['Aé😀"]', 'Aé😀"-', 'Aé😀"^'], ['Aé😀"a']),
        ("root ::= root [a-z ] | [a-z ]", ["a", "ab c"], ["", "A"]),
        ('root ::= "[" (root (", " root)*)? "]" | [0-9]+', ["[[1], [], 2]", "12"], ["[1]]", "[1,2]"]),
        ('root ::= "yes" # either\n | "no" (" " why)?\nwhy ::= "because"', ["yes", "no", "no because"], ["no "]),
    ],
)
def test_a_grammar_takes_its_language(name, grammar, taken, refused):
    ready = compiled(name, EBNF, grammar)
    assert [text for text in taken if not takes(ready, text)] == []
    assert [text for text in refused if takes(ready, text)] == []


@pytest.mark.parametrize(
    ("grammar", "begin"),
    [("root ::= root [a-z ] | [a-z ]", "a"), ('root ::= "[" (root (", " root)*)? "]" | [0-9]+', "[[1")],
)
def test_a_token_may_go_beyond_the_end_of_a_root_inside_another_rule(grammar: str, begin: str) -> None:
    states = [compiled(name, EBNF, grammar).start() for name in ("llguidance", "xgrammar")]
    assert all(state.accept(token) for state in states for token in bytewise(begin))
    assert allowed(states[0]) == allowed(states[1])


@pytest.mark.parametrize(
    ("grammar", "words"),
    [
        ('rot ::= "a"', "has no rule named root"),
        ("root ::= a", "no rule named 'a', which the rule 'root' refers to"),
        ("root ::= root", "the rule 'root', which no finite text keeps to"),
        ('root ::= "a" | b\nb ::= "x" b', "the rule 'b', which no finite text keeps to"),
        ('root ::= "a', "a string that is not closed at line 1"),
        ('root ::= "b"\nx ::= [a', "a character class that is not closed at line 2"),
        ('root ::= ("a"', "a group that is not closed"),
        ("root ::= [b-a]", "the wrong way round"),
        ("root ::= [\\x00]", "a character that no output has"),
        ('root ::= "\\x00"', "a character that no output has"),
        ('root ::= "\\q"', "an unknown escape"),
        ('root ::= "a"{1000000}', "a repetition that is too large, at most 200000 are allowed, at line 1, offset 21"),
        ('root ::= "a"{2,' + "9" * 5_000 + "}", "a repetition that is too large"),
        ('root ::= "a"{,2}', "a repetition without a lower bound, such as the 0 of {0,2}, at line 1, offset 12"),
        ('root ::= "a" { , }', "a repetition without a lower bound"),
        ('root ::= "a"{3,2}', "the wrong way round"),
        ('root ::= "a"{٣}', "'{' is not part of a rule at line 1"),
        ('root ::= "a" ! "b"', "'!' is not part of a rule at line 1, offset 13"),
        ('root ::= "a"\nroot ::= "b"', "a second rule named 'root'"),
        ("root ::= " + "(" * 101 + '"a"' + ")" * 101, "more than 100 deep"),
        ('root ::= (("a"{999}){999}){9}', "is too large"),
        ('root ::= "' + "a" * 300_000 + '"', "at most 262144 are allowed"),
    ],
)
def test_a_grammar_is_refused_with_its_place(grammar, words):
    with pytest.raises(GrammarError, match=re.escape(words)):
        read(grammar)


LARK = """start: "call " <tool_call> args </tool_call>
args: %json {"type": "object", "properties": {"day": {"type": "string", "format": "date"}}, "required": ["day"],
  "additionalProperties": false}
"""


def test_lark_is_read_by_llguidance_with_schemas_and_control_tokens():
    ready = compiled("llguidance", EBNF, LARK)
    assert takes(ready, 'call <tool_call>{"day": "2024-02-29"}</tool_call>')
    assert not takes(ready, 'call <tool_call>{"day": "2023-02-29"}</tool_call>')
    assert takes(compiled("llguidance", EBNF, 'start: A ", " A\nA: /[a-z]+/ // "<no>"'), "ab, c")


@pytest.mark.parametrize(
    ("grammar", "words"),
    [
        ("start: a\na[max_tokens=3]: /b+/", "'max_tokens' at line 2"),
        ("start: a\na[temperature=0.5]: /b+/", "'temperature' at line 2"),
        ('start: a\na[stop="x"]: /b+/', "'stop' at line 2"),
        ('%llguidance {"no_forcing": true}\nstart: "a"', "%llguidance at line 1"),
        ("%import common.INT\nstart: INT", "%import at line 1"),
        ("start: <[0-4095]>", "names <[0-4095]> at line 1"),
        ("start: <|unknown|>", "names <|unknown|> at line 1"),
        ('start: "a"\n  <|im_end|>', "names <|im_end|> at line 2, which ends an output"),
        ("start: <[2]>", "names <[2]> at line 1"),
        ("start: <[*]>", "names <[*]> at line 1"),
        ("start: <[^1,3-9]>", "names <[^1,3-9]> at line 1"),
        ('start: %json {"not": {"minimum": 2}}', "#/not: llguidance does not enforce 'not'"),
        (
            'start: %json {"const": 0.12345678901234567890}',
            "#/const has the number 0.12345678901234567890, which a double",
        ),
        ("start: %json {", "no valid JSON after %json at line 1"),
        ("begin: /a/", "neither a rule `root ::= ...`, as GBNF, nor a rule `start: ...`, as Lark"),
        ("start: b", "cannot be compiled"),
    ],
)
def test_lark_that_would_not_be_enforced_is_refused(grammar, words):
    with pytest.raises(GrammarError, match=re.escape(words)):
        backend("llguidance").prepare(Constraint(EBNF, grammar), "compact")


@pytest.mark.parametrize(
    ("grammar", "said"),
    [
        ('start: "a" foo\n', 'unknown name: "foo" at line 1, column 8, near start: "a" foo'),
        ("start: A\nA: /[/\n", 'invalid regex "[": unclosed character class at line 2, column 4, near A: /[/'),
        ("start: A\nA: B\nB: A", 'circular reference in token "A" definition at line 3, column 4, near B: A'),
        (
            'start: ("a"',
            "Expected token ')', found '\\n' (at \"\\n\" ('\\n')) at line 1, column 12, near start: (\"a\"",
        ),
    ],
)
def test_a_mistake_in_lark_is_one_line_with_its_place(grammar, said):
    with pytest.raises(GrammarError) as raised:
        backend("llguidance").prepare(Constraint(EBNF, grammar), "compact")
    assert raised.value.fact == f"cannot be compiled: {said}"


def test_of_a_long_line_the_part_around_the_mistake_is_shown():
    words = " ".join(f'"w{number}"' for number in range(200))
    message = f'at 2(801): unknown name: "foo"\n   1 | start: a\n   2 | {words} foo\n{"":807}^\n'
    assert in_one_line(message) == (f'unknown name: "foo" at line 2, column 801, near {words[770:830].strip()}')
    assert in_one_line("no place\n  in it") == "no place in it"


@pytest.mark.parametrize(("name", "words"), [("xgrammar", "xgrammar reads GBNF"), ("outlines", "is a grammar, which")])
def test_a_backend_that_reads_no_lark_says_so(name, words):
    with pytest.raises(GrammarError, match=words):
        backend(name).prepare(Constraint(EBNF, LARK), "compact")
