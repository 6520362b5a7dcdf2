"""Many questions after the same examples: the examples are computed once, and the questions run beside each other."""

from argparse import ArgumentParser
from typing import Any

from ramet import LLM, function, gen

SHOTS = (
    ("What is the capital of France?", "Paris"),
    ("What is 21 + 34?", "55"),
    ("Which continent is Kenya in?", "Africa"),
)
QUESTIONS = {
    "What is the capital of Peru?": "Lima",
    "What is 37 + 58?": "95",
    "What currency does Japan use?": "Japanese yen",
    "What is the capital of Norway?": "Oslo",
    "What is 6 x 7?": "42",
    "Which continent is Brazil in?": "South America",
}


@function
def few_shot_qa(s: Any, question: str) -> None:
    for shot, answer in SHOTS:
        s += f"Question: {shot}\nAnswer: {answer}\n\n"
    s += f"Question: {question}\nAnswer:" + gen("answer", max_tokens=16, stop="\n")


def main(backend: Any) -> None:
    batch = [{"question": question} for question in QUESTIONS]
    states = few_shot_qa.run_batch(batch, temperature=0, backend=backend, progress_bar=True)
    num_right = 0
    for state, (question, expected) in zip(states, QUESTIONS.items(), strict=True):
        answer = state["answer"].strip()
        num_right += answer == expected
        print(f"{question} {answer}")
    print(f"{num_right} of {len(QUESTIONS)} are right")


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--backend", help="URL of a server; without it the bundled model runs in this process")
    main(parser.parse_args().backend or LLM())
