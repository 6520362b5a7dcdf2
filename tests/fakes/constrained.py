"""What tests ask of an output under a constraint, with the bundled model's vocabulary."""

from functools import cache

import numpy as np
from grammar_cases.vocabularies import bundled as vocabulary

from ramet.ipc.spec import Constraint, ConstraintKind
from ramet.runtime.grammar.backends import BACKENDS, build
from ramet.runtime.grammar.base import BackendName, CompiledConstraint, Grammar, GrammarBackend, Whitespace

SIZE = vocabulary().size
NAMES = list(BACKENDS)


@cache
def backend(name: BackendName) -> GrammarBackend:
    return build(name, vocabulary())


@cache
def compiled(
    name: BackendName, kind: ConstraintKind, text: str, whitespace: Whitespace = "single-space"
) -> CompiledConstraint:
    return backend(name).load(backend(name).prepare(Constraint(kind, text), whitespace))


def ids_of(text: str) -> list[int]:
    return vocabulary().tokenizer.encode(text, add_special_tokens=False)


def allowed(grammar: Grammar) -> set[int]:
    bits = np.zeros(-(-SIZE // 32), np.int32)
    grammar.fill_mask(bits)
    return {int(i) for i in np.flatnonzero(np.unpackbits(bits.view(np.uint8), bitorder="little"))}


def bytewise(text: str) -> list[int]:
    """`text` spelled by the tokens of single bytes, which say nothing about where a library cuts tokens."""
    tokenizer = vocabulary().tokenizer
    of_byte = {tokenizer.token_bytes(i): i for i in reversed(range(tokenizer.vocab_size))}
    return [of_byte[bytes([byte])] for byte in text.encode()]


def takes(compiled: CompiledConstraint, text: str) -> bool:
    """Whether `text` is a whole output, spelled as the tokenizer spells it."""
    grammar = compiled.start()
    return all(map(grammar.accept, ids_of(text))) and grammar.may_end
