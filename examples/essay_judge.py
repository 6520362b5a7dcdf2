"""An essay is judged in three respects at once, then summarized and graded: Figure 1 of the SGLang paper.

The bundled model is too small to judge anything: it shows what runs when, and its words mean little.
"""

from argparse import ArgumentParser
from typing import Any

from ramet import LLM, function, gen, select

DIMENSIONS = ("Clarity", "Originality", "Evidence")
ESSAY = "A town needs trees. They give shade, birds live in them, and people who walk under trees are less hurried."


@function
def essay_judge(s: Any, essay: str) -> None:
    s += "Please evaluate the following essay.\n" + essay + "\n"
    forks = s.fork(len(DIMENSIONS))  # their prefix is computed once
    for fork, dimension in zip(forks, DIMENSIONS, strict=True):
        fork += f"Evaluate its {dimension}. End with the word END.\nJudgment:"
        fork += gen("judgment", stop=["END", "\n"], max_tokens=40)
    forks.join()  # s["judgment"] is a list of the three
    for dimension, judgment in zip(DIMENSIONS, s["judgment"], strict=True):
        s += dimension + ":" + judgment + "\n"
    s += "In summary," + gen("summary", stop="\n", max_tokens=40) + "\n"
    s += "I give the essay a letter grade of " + select("grade", choices=["A", "B", "C", "D"])


def main(backend: Any) -> None:
    state = essay_judge.run(essay=ESSAY, backend=backend)
    for dimension, judgment in zip(DIMENSIONS, state["judgment"], strict=True):
        print(f"{dimension}: {judgment.strip()}")
    print("Summary:", state["summary"].strip())
    probabilities = state.get_meta_info("grade")["probabilities"]
    print("Grade:", state["grade"], "of", " ".join(f"{p:.2f}" for p in probabilities))


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--backend", help="URL of a server; without it the bundled model runs in this process")
    main(parser.parse_args().backend or LLM())
