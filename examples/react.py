"""An agent that thinks, acts and observes in turns (ReAct). Each turn goes on with the prompt of the one before.

The bundled model has seen such traces, so it searches and calculates; `temperature=0` keeps it to what it knows.
"""

import operator
import re
from argparse import ArgumentParser
from collections.abc import Callable
from typing import Any

from ramet import LLM, function, gen, select

MAX_STEPS = 4
TEXTS = {"Ada Silva": "Ada Silva is a doctor. She lives in Lima.", "Lima": "Lima is the capital of Peru."}
OPERATORS: dict[str, Callable[[int, int], int]] = {"+": operator.add, "-": operator.sub, "x": operator.mul}


def search(what: str) -> str:
    return TEXTS.get(what, f"There is no text about {what}.")


def calculate(expression: str) -> str:
    found = re.fullmatch(r"(\d+) ([-+x]) (\d+)", expression)
    return str(OPERATORS[found[2]](int(found[1]), int(found[3]))) if found else "This cannot be calculated."


@function
def react(s: Any, question: str) -> str | None:
    s += f"Question: {question}\n"
    for step in range(1, MAX_STEPS + 1):
        s += f"Thought {step}:" + gen("thought", stop="\n", max_tokens=40) + f"\nAction {step}: "
        s += select("action", choices=["Search", "Calculate", "Finish"])
        s += "[" + gen("argument", stop=["]", "\n"], max_tokens=24) + "]\n"
        if s["action"] == "Finish":
            return str(s["argument"])
        observed = search(s["argument"]) if s["action"] == "Search" else calculate(s["argument"])
        s += f"Observation {step}: {observed}\n"
    return None


def main(backend: Any) -> None:
    for question in ("What is 17 + 25?", "In which city does Ada Silva live?"):
        state = react.run(question, temperature=0, backend=backend)
        print(state.text())
        print("Answer:", state.ret_value, end="\n\n")


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--backend", help="URL of a server; without it the bundled model runs in this process")
    main(parser.parse_args().backend or LLM())
