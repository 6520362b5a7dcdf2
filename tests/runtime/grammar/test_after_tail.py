"""Which tokens may follow a tail that they begin with: what is read at once, against each text read by itself."""

import numpy as np
import pytest
from constrained import BACKENDS, SIZE, backend, compiled, vocabulary

from ramet.ipc.spec import ConstraintKind
from ramet.runtime.grammar.after_tail import KNOWN, TailWalk, may_begin
from ramet.runtime.grammar.base import TooComplex
from ramet.runtime.grammar.ending import EndTokens
from ramet.runtime.grammar.output import ConstrainedOutput
from ramet.runtime.text.token_bytes import TokenBytes

NOTHING = np.array([], np.int32)
TOKENIZER = vocabulary().tokenizer
TABLE = TOKENIZER.token_bytes_table(SIZE)
PATTERNS = [r"[a-z]{1,4}", r"[0-9]+", r"\w+ \w+", "the|then|there", r"(?:é|日本)+", r".*", ""]


def bits_of(output: ConstrainedOutput) -> np.ndarray:
    bits = np.full(-(-SIZE // 32), -1, np.int32)
    if not output.grammar.must_end:
        output.backend.fill_masks([output.grammar], [0], bits[None])
    return bits


def reads(output: ConstrainedOutput, text: bytes) -> bool:
    """By itself, in the fewest tokens."""
    spelled, grammar = TABLE.spell(text), output.grammar.fork()
    return spelled is not None and (not text or not grammar.must_end) and all(map(grammar.accept, spelled))


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("tail", [b" ", b"t", b"th", b"\xe6", b""])
def test_all_texts_at_once_and_each_by_itself_agree(name: str, pattern: str, tail: bytes):
    output = ConstrainedOutput(
        compiled(name, ConstraintKind.REGEX, pattern), backend(name), TOKENIZER, EndTokens(NOTHING, NOTHING, False, 0)
    )
    texts = TABLE.beyond(tail).texts
    assert [tail + text for text in texts] == [TOKENIZER.token_bytes(token) for token in TABLE.begin_with(tail)]
    found = may_begin(output, tail, TABLE, bits_of(output))
    assert found.tolist() == [reads(output, text) for text in texts]
    assert may_begin(output, tail, TABLE, bits_of(output)) is found  # the same is not read twice
    assert tail in KNOWN[output.compiled]


class Letters:
    """A grammar of a few texts, which counts what it is asked."""

    def __init__(self, *texts: str) -> None:
        self.texts, self.read, self.asked = texts, "", 0

    def accept(self, token: int) -> bool:
        self.asked += 1
        legal = any(text.startswith(self.read + chr(token)) for text in self.texts)
        self.read += chr(token) if legal else ""
        return legal

    def rollback(self, num_tokens: int) -> None:
        self.read = self.read[: len(self.read) - num_tokens]


def test_what_texts_begin_with_is_read_once():
    table = TokenBytes([(bytes([byte]), byte) for byte in range(128)])
    letters = Letters("abcd", "abx")
    walk = TailWalk(letters, table)  # type: ignore[arg-type]
    texts = [b"abca", b"abcd", b"abce", b"abx", b"b", b"ba", b"bb"]
    assert [walk.reads(text) for text in texts] == [False, True, False, True, False, False, False]
    assert letters.asked == 4 + 1 + 1 + 1 + 1  # abca, d, e, x, b


def test_what_is_refused_counts_as_well():
    walk = TailWalk(Letters("x"), TABLE, 2)
    for text in (b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h"):
        assert not walk.reads(text)
    with pytest.raises(TooComplex):
        walk.reads(b"i")


def test_texts_that_no_tokens_spell_are_not_read():
    walk = TailWalk(Letters("ab"), TokenBytes([(b"a", 97)]))  # type: ignore[arg-type]
    assert walk.reads(b"a") and not walk.reads(b"ab")
