"""Prints what every backend does with all cases of the generators, as a table of Markdown.

PYTHONPATH=.:tests/fakes:scripts python -m grammar_cases.report [BACKEND ...]
"""

import sys
import time

from grammar_cases.conformance import Tally, judged
from grammar_cases.grammars import grammar_cases
from grammar_cases.random_model import RandomModel
from grammar_cases.regexes import regex_cases
from grammar_cases.schemas import schema_cases
from grammar_cases.vocabularies import bundled, multi_byte
from ramet.runtime.grammar.backends import BACKENDS, build

PARTS = 10
KINDS = {"schemas": (schema_cases, 200), "regexes": (regex_cases, 50), "grammars": (grammar_cases, 5)}  # of a part


def main() -> None:
    print("| backend | constraints | refused | played | finished | wrong | seconds |\n|---|---|---|---|---|---|---|")
    for name in sys.argv[1:] or BACKENDS:
        players = [(build(name, vocabulary), RandomModel(vocabulary)) for vocabulary in (bundled(), multi_byte())]
        for kind, (make, count) in KINDS.items():
            tally, start = Tally(), time.perf_counter()
            for part in range(PARTS):
                cases = list(make(part, count))
                for index, (backend, model) in enumerate(players):
                    tally.add(judged(backend, model, cases[index::2]))
            played = tally.finished + tally.unfinished
            print(f"| {name} | {kind} | {len(tally.refused)} | {played} | {tally.share_finished:.1%} | "
                  f"{len(tally.wrong)} | {time.perf_counter() - start:.0f} |")  # fmt: skip
            for line in tally.wrong:
                print(line, file=sys.stderr)


if __name__ == "__main__":
    main()
