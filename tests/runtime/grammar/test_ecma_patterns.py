"""A schema's `pattern` is read as ECMA-262 reads it or, if it is not valid there, as Python does.

The expected results are those of a JavaScript engine, with the flag u if the pattern is valid with it.
"""

import json
import re

import pytest
from constrained import NAMES, compiled, takes

from ramet.ipc.spec import ConstraintKind
from ramet.runtime.grammar.base import GrammarError
from ramet.runtime.grammar.regex import found_within, write

TEXTS = (
    "", "a", "A", "ab", "1", "٣", "é", "_", "-", "/", "\n", "\r", "\u2028", "\u2029", "\x85", "\x1c", "\ufeff",
    "\u00a0", "\u180e", "\t", "😀", "{,3}", "a{,3}", "a{٣}", "x{", "x{a}", "]", "}", "漢", "ǅ", "aa", "\x08",
)  # fmt: skip
FOUND: dict[str, tuple[str, ...]] = {  # pattern -> the texts in which it is found
    r"^.$": tuple(t for t in TEXTS if len(t) == 1 and t not in "\n\r\u2028\u2029"),
    r"^[^]$": tuple(t for t in TEXTS if len(t) == 1),
    r"^[\s\S]$": tuple(t for t in TEXTS if len(t) == 1),
    r"^{,3}$": ("{,3}",),
    r"^a{,3}$": ("a{,3}",),
    "^a{٣}$": ("a{٣}",),
    r"^x{$": ("x{",),
    r"^x{a}$": ("x{a}",),
    r"^]$": ("]",),
    r"^}$": ("}",),
    r"^\d$": ("1",),
    r"^\D$": tuple(t for t in TEXTS if len(t) == 1 and t != "1"),
    r"^\w$": ("a", "A", "1", "_"),
    r"^\W$": tuple(t for t in TEXTS if len(t) == 1 and t not in "aA1_"),
    r"^\s$": ("\n", "\r", "\u2028", "\u2029", "\ufeff", "\u00a0", "\t"),
    r"^[^\S]$": ("\n", "\r", "\u2028", "\u2029", "\ufeff", "\u00a0", "\t"),
    r"^[\d-x]$": ("1", "-"),
    r"^[\b]$": ("\x08",),
    r"^\cJ$": ("\n",),
    r"^\u{1F600}$": ("😀",),
    r"^\uD83D\uDE00$": ("😀",),
    r"^\x41$": ("A",),
    r"^\/$": ("/",),
    r"^\-$": ("-",),
    r"^(?<letter>a){2}?$": ("aa",),
    "^(?<名_٣>a){2}$": ("aa",),
    r"^(?<$é>a)$": ("a",),
    r"^\p{L}$": ("a", "A", "é", "漢", "ǅ"),
    r"^\p{Letter}$": ("a", "A", "é", "漢", "ǅ"),
    r"^\p{gc=Lu}$": ("A",),
    r"^\p{General_Category=Decimal_Number}$": ("1", "٣"),
    r"^[\p{Lt}\p{Nd}_-]$": ("1", "٣", "_", "-", "ǅ"),
    r"^\P{L}$": tuple(t for t in TEXTS if len(t) == 1 and t not in "aAé漢ǅ"),
    r"^\p{ASCII}$": ("a", "A", "1", "_", "-", "/", "\n", "\r", "\x1c", "\t", "]", "}", "\x08"),
}
OF_PYTHON: dict[str, tuple[str, ...]] = {  # not valid in ECMA-262
    r"(?i)^a$": ("a", "A"),
    r"\Aa\Z": ("a",),
    r"^(?P<letter>a)b$": ("ab",),
    r"^[]a]$": ("a", "]"),
    r"^\101$": ("A",),
    r"^\U0001F600$": ("😀",),
}


@pytest.mark.parametrize("pattern", [*FOUND, *OF_PYTHON])
def test_a_pattern_is_found_where_its_dialect_finds_it(pattern: str) -> None:
    normal = re.compile(write(found_within(pattern)))
    assert tuple(text for text in TEXTS if normal.fullmatch(text)) == {**FOUND, **OF_PYTHON}[pattern]


@pytest.mark.parametrize("name", NAMES)
def test_every_backend_keeps_to_the_dialect(name: str) -> None:
    for pattern in (r"^.$", r"^a{,3}$", r"^\s$", r"^\W$", r"^\p{gc=Lu}$", r"^[^]$"):
        ready = compiled(name, ConstraintKind.JSON_SCHEMA, json.dumps({"type": "string", "pattern": pattern}))
        for text in (each for each in TEXTS if each != "\x1c"):  # which llguidance does not write
            taken = {takes(ready, json.dumps(text, ensure_ascii=each)) for each in (False, True)}
            assert (True in taken) == (text in FOUND[pattern]), (pattern, text)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (r"a(?=b)", "lookahead at offset 1"),
        (r"(?<!a)b", "lookbehind at offset 0"),
        (r"(a)\1", "a backreference at offset 3"),
        (r"(?<é>a)\1", "a backreference at offset 7"),
        (r"(?<n>a)\k<n>", "a backreference at offset 7"),
        (r"a\b", r"the word boundary \b at offset 1"),
        (r"\p{Script=Greek}", r"the property Script=Greek (general categories are known) at offset 0"),
        (r"\p{Emoji}", "the property Emoji"),
        ("a^b", "^ at offset 1, not at its start"),
        ("a++", "a possessive quantifier at offset 1"),
        ("(", "missing ), unterminated subpattern at offset 0"),
        ("a{2,1}", "a repetition out of order at offset 1"),
        ("[b-a]", "a range out of order at offset 1"),
        ("*a", "nothing to repeat at offset 0"),
        (r"\ud800", "half a surrogate pair at offset 0"),
        (r"a\0", "a NUL character at offset 1"),
        ("(" * 101 + "a" + ")" * 101, "more than 100 deep"),
        ("((a{99}){99}){99}", "is too large"),
    ],
)
def test_what_is_not_read_is_named_with_its_offset(pattern: str, words: str) -> None:
    with pytest.raises(GrammarError, match=re.escape(words)):
        found_within(pattern)
