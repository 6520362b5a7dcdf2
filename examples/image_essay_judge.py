"""An essay about a picture is judged in three respects at once, if the two belong together: multi_dimensional_judge of
the SGLang paper, with max_tokens that keep it short.

It needs a model that takes pictures, on a server or in this process, or an API: the backend may as well be
OpenAI("gpt-4.1"), Anthropic("claude-opus-4-5") or Gemini("gemini-2.5-flash").
"""

from argparse import ArgumentParser
from typing import Any

from ramet import LLM, assistant, function, gen, image, select, system, user

DIMENSIONS = ("Clarity", "Originality", "Evidence")
ESSAY = "The sea is blue where it is deep. Near the beach it is lighter, for one sees the sand through the water."
OUTPUT = r'\{"summary": "[A-Za-z ,]{1,60}\.", "grade": "[ABCD][+-]?"\}'


@function
def multi_dimensional_judge(s: Any, picture: Any, essay: str) -> None:
    s += system("Evaluate an essay about an image.")
    s += user(image(picture) + "Essay: " + essay)
    s += assistant("Sure!")
    s += user("Is the essay related to the image?")
    s += assistant(select("related", choices=["yes", "no"]))
    if s["related"] == "no":
        return
    forks = s.fork(len(DIMENSIONS))  # the picture and all that follows it is computed once
    for fork, dimension in zip(forks, DIMENSIONS, strict=True):
        fork += user(f"Evaluate based on the following dimension: {dimension}. End your judgment with the word 'END'.")
        fork += assistant("Judgment: " + gen("judgment", stop="END", max_tokens=24))
    judgment = "\n".join(fork["judgment"] for fork in forks)
    s += user("Provide the judgment, summary, and a letter grade.")
    s += assistant(judgment + " In summary, " + gen("summary", stop=".", max_tokens=24))
    s += user("Return it as JSON.")
    s += assistant(gen("output", regex=OUTPUT, max_tokens=96))


def sea() -> Any:
    """A picture to begin with: light above, blue below."""
    import numpy as np

    rows = np.linspace([190, 220, 250], [10, 40, 120], 48)
    return np.repeat(rows[:, None], 64, axis=1).astype(np.uint8)  # [height, width, 3]


def main(backend: Any, picture: Any = None, essay: str = ESSAY) -> None:
    state = multi_dimensional_judge.run(picture if picture is not None else sea(), essay, backend=backend)
    print("Related:", state["related"])
    if state["related"] == "yes":
        print("Summary:", state["summary"].strip())
        print(state["output"])


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--backend", help="URL of a server")
    parser.add_argument("--model", help="a model folder, in place of a server: it runs in this process")
    parser.add_argument("--image", help="a path or a URL; without it a picture of the sea is drawn")
    arguments = parser.parse_args()
    if not (arguments.backend or arguments.model):
        parser.error("--backend or --model is needed")
    main(arguments.backend or LLM(arguments.model), arguments.image)
