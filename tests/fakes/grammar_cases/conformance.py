"""Every case of a generator on one backend: what is refused, what ends, and everything that is wrong."""

import codecs
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import cast

from grammar_cases.case import Case
from grammar_cases.mutations import mutations
from grammar_cases.random_model import Output, RandomModel, lean_of
from ramet.runtime.grammar.base import CompiledConstraint, Grammar, GrammarBackend, GrammarError, Whitespace

NUM_MUTATIONS = 8  # of each text


@dataclass(slots=True)
class Tally:
    refused: list[tuple[Case, GrammarError]] = field(default_factory=list)
    finished: int = 0
    unfinished: int = 0
    wrong: list[str] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        self.refused += other.refused
        self.finished += other.finished
        self.unfinished += other.unfinished
        self.wrong += other.wrong

    @property
    def share_finished(self) -> float:
        return self.finished / max(1, self.finished + self.unfinished)

    def __str__(self) -> str:
        played = self.finished + self.unfinished
        share = f"{self.finished} finished ({self.share_finished:.1%})"
        return f"{played} played, {share}, {len(self.wrong)} wrong, {len(self.refused)} refused"


def judged(backend: GrammarBackend, model: RandomModel, cases: Iterable[Case], seed: int = 0) -> Tally:
    tally = Tally()
    for number, case in enumerate(cases):
        try:
            prepared = backend.prepare(case.constraint, cast(Whitespace, case.constraint.whitespace or "single-space"))
        except GrammarError as error:
            tally.refused.append((case, error))
            continue
        ready = backend.load(prepared)
        try:
            texts = [case.shortest, _play(ready.start(), model, case, seed + number, tally)]
            assert model.takes(ready.start(), case.shortest), f"the shortest output {case.shortest!r} is not accepted"
            for text in texts:
                _mutate(ready, model, case, text, seed + number)
        except (AssertionError, GrammarError, UnicodeDecodeError) as error:
            tally.wrong.append(f"{case.name}: {error}\n  {case.constraint.text}")
    return tally


def _play(grammar: Grammar, model: RandomModel, case: Case, seed: int, tally: Tally) -> str:
    """The output, which must be right or the beginning of something right."""
    output = model.play(grammar, case, seed, lean_of(seed))
    tally.finished += output.ended
    tally.unfinished += not output.ended
    if not output.ended and case.begins is not None:
        begun = whole_characters(output.data)
        assert case.begins(begun), f"no output begins with {output.data!r}"
        return begun
    data = output.data if output.ended else _completion(grammar, model, output, case, seed)
    fault = case.fault(data.decode())
    assert fault is None, f"{fault}\n  {data!r}, of which {output.data!r} was drawn"
    return data.decode()


def _mutate(ready: CompiledConstraint, model: RandomModel, case: Case, text: str, seed: int) -> None:
    """Texts that nobody drew: what is accepted is right too."""
    for changed in mutations(text, Random(seed), NUM_MUTATIONS):
        if model.takes(ready.start(), changed):
            fault = case.fault(changed)
            assert fault is None, f"{fault}\n  {changed!r} is accepted"


def _completion(grammar: Grammar, model: RandomModel, output: Output, case: Case, seed: int) -> bytes:
    """A finished output that begins with this one: if it is valid, this one was the prefix of something valid."""
    data = model.completed(grammar, output, case, seed)
    assert data is not None, f"{output.data!r} was not brought to an end"
    return data


def whole_characters(data: bytes) -> str:
    """Without the bytes of a last character that others complete. Raises UnicodeDecodeError for any other bytes."""
    return codecs.getincrementaldecoder("utf-8")().decode(data)
