"""Tree of thought: several next steps are proposed, rated, and only the best of them are followed.

The bundled model solves small word problems; as a judge of steps it is little better than chance.
"""

from argparse import ArgumentParser
from collections import Counter
from typing import Any

from ramet import LLM, function, gen, select

WIDTH = 3  # proposals of each step
KEPT = 2  # of them are followed
QUESTION = "Ben has 14 apples. He buys 23 more. How many apples does he have now?"


@function
def rate(s: Any, question: str, proposal: str) -> None:
    s += f"Question: {question}\nAnswer:{proposal}\nIs this answer right? " + select("verdict", choices=["yes", "no"])


def best(states: list[Any], question: str) -> list[Any]:
    """Those whose step is rated highest. All of them are rated at once, for a program returns before its calls do."""
    ratings = [rate(question, state["step"]) for state in states]
    probabilities = [rating.get_meta_info("verdict")["probabilities"][0] for rating in ratings]
    order = sorted(range(len(states)), key=lambda index: -probabilities[index])
    return [states[index] for index in order[:KEPT]]


@function
def tree_of_thought(s: Any, question: str) -> str:
    s += f"Question: {question}\nAnswer:"
    steps = s.fork(WIDTH)
    steps += gen("step", stop=[".", "\n"], max_tokens=48)
    answers = []
    for kept in best(list(steps), question):
        leaves = kept.fork(WIDTH)
        leaves += ". The answer is " + gen("answer", dtype=int)
        answers += [leaf["answer"] for leaf in leaves]
    (answer, _), *_ = Counter(answers).most_common()
    s += f" {answer}"
    return str(answer)


def main(backend: Any) -> None:
    state = tree_of_thought.run(QUESTION, temperature=0.7, backend=backend)
    print(state.text())


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--backend", help="URL of a server; without it the bundled model runs in this process")
    main(parser.parse_args().backend or LLM())
