"""Questions on documents that are read beside each other: parallel contexts, section 6.2.5 of the SGLang paper.

No document attends to another, so each is computed once, whatever stands beside it. The result is another one than that
of the same text read in sequence, and how well a model answers from it depends on the model: the bundled one is often
wrong.
"""

from argparse import ArgumentParser
from typing import Any

from ramet import LLM, function, gen

DOCUMENTS = (
    "Ada Silva is a doctor. Ada lives in Lima.\n",
    "Omar Novak is a baker. Omar lives in Oslo.\n",
    "Mei Tanaka is a pilot. Mei lives in Kyoto.\n",
)
QUESTIONS = ("Where does Omar Novak live?", "What is the job of Mei Tanaka?")


@function
def parallel_documents(s: Any, documents: tuple[str, ...], questions: tuple[str, ...]) -> None:
    s += "Read the text and answer.\n\n"
    forks = s.fork(len(documents))
    forks += list(documents)
    forks.join("concate_and_append")
    for number, question in enumerate(questions):
        s += f"\nQuestion: {question}\nAnswer:" + gen(f"answer_{number}", stop="\n", max_tokens=16)


def main(backend: Any) -> None:
    state = parallel_documents.run(DOCUMENTS, QUESTIONS, temperature=0, backend=backend)
    for number, question in enumerate(QUESTIONS):
        print(question, state[f"answer_{number}"].strip())


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--backend", help="URL of a server; without it the bundled model runs in this process")
    main(parser.parse_args().backend or LLM())
