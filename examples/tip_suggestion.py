"""Two short tips are made, then expanded at once by a program that this one calls: Figure 4 of the SGLang paper.

The bundled model knows tips for staying healthy; what it expands them to is invented.
"""

from argparse import ArgumentParser
from typing import Any

from ramet import LLM, function, gen


@function
def expand(s: Any, tip: str) -> None:
    s += "Please expand the following tip into a detailed paragraph: " + tip + "\n"
    s += gen("paragraph", stop="\n", max_tokens=60)


@function
def tip_suggestion(s: Any, topic: str) -> None:
    s += "Here are 2 concise tips for " + topic + ".\n"
    s += "1." + gen("tip_1", stop=["\n", ":", "."], temperature=0) + ".\n"
    s += "2." + gen("tip_2", stop=["\n", ":", "."], temperature=0) + ".\n"
    first = expand(tip=s["tip_1"])  # returns at once: both paragraphs are generated beside each other
    second = expand(tip=s["tip_2"])
    s += "Tip 1: " + first["paragraph"] + "\n"
    s += "Tip 2: " + second["paragraph"] + "\n"
    s += "In summary," + gen("summary", stop="\n", max_tokens=60)


def main(backend: Any) -> None:
    print(tip_suggestion.run(topic="staying healthy", backend=backend).text())


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--backend", help="URL of a server; without it the bundled model runs in this process")
    main(parser.parse_args().backend or LLM())
