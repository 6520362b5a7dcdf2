"""What every grammar backend offers: a constraint becomes a Compiled, and each sequence gets a Grammar of it.

A Grammar is the state of one output: which tokens may come next, and which must. Knows no request and no device.
V vocabulary of the model, W = ceil(V / 32) words of a mask; bit i of word w is token 32 w + i.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from ramet.ipc.spec import Constraint, ConstraintKind
from ramet.runtime.arrays import Ints
from ramet.runtime.text.tokenizer import Tokenizer

Whitespace = Literal["single-space", "compact", "flexible"]  # between the tokens of JSON
BackendName = Literal["llguidance", "xgrammar", "outlines"]
MAX_MESSAGE = 300  # characters of a library's words
MAX_FORCED_BYTES = 2048  # that are looked for at once: 6 ms; more may follow them


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What a backend is built from. Ids in [0, size) that are no text (special, padding) are never legal as such."""

    tokenizer: Tokenizer
    folder: Path  # of tokenizer.json
    size: int  # of the model's logits, at least that of the tokenizer
    eos_ids: frozenset[int]


def short(message: str) -> str:
    """The words of a library on one line for a client, cut, and without the stack of one that gave up."""
    words = " ".join(message.partition("<backtrace>")[0].split())
    return words if len(words) <= MAX_MESSAGE else f"{words[:MAX_MESSAGE]}..."


class GrammarError(Exception):
    """A constraint that cannot be compiled: `fact` says what of it, in words for the client."""

    def __init__(self, fact: str, hint: str = "") -> None:
        super().__init__(fact)
        self.fact, self.hint = fact, hint


class TooComplex(GrammarError):
    """An output needs more work than one step may do. Its grammar is of no more use."""


class Grammar(Protocol):
    """The state of one output. End-of-sequence tokens are legal exactly where the output may end."""

    def accept(self, token: int) -> bool:
        """Go on with `token`. False: it is not legal here, and nothing has changed."""

    def fill_mask(self, bits: Ints) -> None:
        """WRITES bits [W] int32: 1 for each token that may come next. Raises GrammarError where that is too complex."""

    def forced(self) -> list[int]:
        """The tokens that must come next, in their canonical tokenisation, without the end; [] where there is a choice.

        Of each of them `fill_mask` would leave no other choice.
        """

    def forced_text(self) -> bytes:
        """The bytes that must come next, whatever their tokens, at least MAX_FORCED_BYTES of them; b"" where there is a
        choice.
        """

    def rollback(self, num_tokens: int) -> None:
        """Take back the last tokens that were accepted, the end among them."""

    def fork(self) -> "Grammar":
        """Another output in the same state."""

    @property
    def may_end(self) -> bool:
        """The output so far keeps to the constraint."""

    @property
    def must_end(self) -> bool:
        """Nothing but the end may follow."""


class CompiledConstraint(Protocol):
    """A constraint that is ready, shared by all outputs that keep to it."""

    @property
    def num_bytes(self) -> int:
        """Memory that it takes, estimated."""

    def start(self) -> Grammar:
        """The state of an output that has not begun."""


class MaskFiller(Protocol):
    def fill_masks(self, grammars: Sequence[Grammar], rows: Sequence[int], bits: Ints) -> None:
        """WRITES bits [K, W] int32 in `rows`, one for each of the grammars, in one call where the library has one.

        Raises GrammarError where one of them failed; which one `fill_mask` of each shows.
        """


class GrammarBackend(MaskFiller, Protocol):
    """One library. `prepare` runs in a compile worker, `load` there first and then in the scheduler."""

    name: BackendName
    canonical: bool  # `forced` gives tokens: --jump-forward ff works
    counts_items: bool  # its outputs raise TooComplex rather than take long
    reads_in_place: bool  # the result of `load` shares the memory of its argument
    unbounded: frozenset[ConstraintKind]  # kinds whose masks the library may compute for any length of time

    def prepare(self, constraint: Constraint, whitespace: Whitespace) -> bytes:
        """Everything that may take long. Raises GrammarError. What it returns `load` reads."""

    def load(self, prepared: bytes | memoryview) -> CompiledConstraint: ...
