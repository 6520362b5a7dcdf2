"""Every leaf of a pattern means what it means to `re`, and a pattern of many characters is read quickly."""

import random
import re
import sys

import pytest

from ramet.ipc.errors import ClientError
from ramet.runtime.text import character_tests
from ramet.runtime.text.automaton import AutomatonLeaf
from ramet.runtime.text.character_tests import CharacterTests
from ramet.runtime.text.checks import check_stop_patterns
from ramet.runtime.text.pattern import MAX_FOLDED
from ramet.runtime.text.stops import StopMatcher

SURROGATES = range(0xD800, 0xE000)
CASES = "aAkKsSiIßẞſıİ\u212a\u0345µμΜςσΣéÉǅǆᾳᾼﬅﬆ漢字1_ \n-\x1c\u2028٣"
ITEMS = [*map(ord, CASES), (97, 122), (0x3B1, 0x3C9), (0x130, 0x17F), r"\d", r"\D", r"\s", r"\S", r"\w", r"\W"]


@pytest.mark.parametrize("flags", [0, re.IGNORECASE, re.ASCII, re.IGNORECASE | re.ASCII])
def test_a_character_passes_what_it_matches(flags: int) -> None:
    draw = random.Random(flags)
    leaves = [AutomatonLeaf((item,), negated, flags) for item in ITEMS for negated in (False, True)]
    leaves += [AutomatonLeaf(tuple(draw.choices(ITEMS, k=3)), draw.random() < 0.5, flags) for _ in range(200)]
    leaves += [AutomatonLeaf((), True, flags), AutomatonLeaf((10,), True, flags)]
    tests, compiled = CharacterTests(leaves), [re.compile(leaf.source, leaf.flags) for leaf in leaves]
    for char in CASES + "".join(chr(draw.randrange(0x3000)) for _ in range(200)):
        matches = {index for index, pattern in enumerate(compiled) if pattern.fullmatch(char)}
        assert tests.passed(char) == matches, repr(char)


def test_no_character_without_cases_ignores_them() -> None:
    every = [chr(code) for code in range(sys.maxunicode + 1) if code not in SURROGATES]
    plain = [char for char in every if AutomatonLeaf((ord(char),), False, re.IGNORECASE).character]
    folded = "".join(set(every).difference(plain))
    assert len(folded) < 4000
    assert not re.findall(f"(?i)[{re.escape(folded)}]", "".join(plain))
    same = re.compile(f"(?i)[{re.escape(''.join(plain))}]")
    assert not same.findall(folded)


def test_patterns_of_many_characters_are_read_without_an_expression_for_each() -> None:
    before = character_tests._compiled.cache_info().misses
    for j in range(32):
        StopMatcher((), ("".join(f"[a{chr(0x4E00 + 32 * i + j)}]?" for i in range(24)) + "#",)).feed("a")
    assert character_tests._compiled.cache_info().misses == before


def test_patterns_that_ignore_the_case_of_many_characters_are_refused() -> None:
    greek = [chr(code) for code in range(0x370, 0x600) if chr(code).lower() != chr(code).upper()]
    assert len(greek) > MAX_FOLDED
    check_stop_patterns(["(?i)" + "".join(greek[:50])] * 32)
    check_stop_patterns(["".join(greek[i : i + 20]) for i in range(0, len(greek), 20)])
    with pytest.raises(ClientError, match="different characters and classes that ignore case"):
        check_stop_patterns(["(?i)" + "".join(greek[i : i + 20]) for i in range(0, len(greek), 20)])
