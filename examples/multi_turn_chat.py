"""A chat of several turns, printed while it is generated. Turns are rendered by the template of the model."""

from argparse import ArgumentParser
from typing import Any

from ramet import LLM, assistant, function, gen, system, user

QUESTIONS = ("My name is Ada.", "What is the capital of France?", "What is my name?")


@function
def multi_turn_chat(s: Any, questions: tuple[str, ...]) -> None:
    s += system("You are a friendly assistant.")
    for number, question in enumerate(questions):
        s += user(question)
        s += assistant(gen(f"answer_{number}", max_tokens=64))


def main(backend: Any) -> None:
    state = multi_turn_chat.run(QUESTIONS, temperature=0, stream=True, backend=backend)
    for number, question in enumerate(QUESTIONS):
        print("User:", question)
        print("Assistant: ", end="")
        for text in state.text_iter(f"answer_{number}"):  # as it comes
            print(text, end="", flush=True)
        print()


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--backend", help="URL of a server; without it the bundled model runs in this process")
    main(parser.parse_args().backend or LLM())
