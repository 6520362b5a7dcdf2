"""Texts become objects of a class: the output keeps to the class's JSON schema, and the value is an instance."""

from argparse import ArgumentParser
from dataclasses import dataclass
from typing import Any

from ramet import LLM, function, gen

TEXTS = (
    "Ada Silva is a doctor. Ada is 41 years old and lives in Lima.",
    "Omar Novak is 28 years old. Omar works as a baker and lives in Oslo.",
    "Mei Tanaka lives in Kyoto. Mei is a pilot. She is 35 years old.",
)


@dataclass
class Person:
    name: str
    age: int
    job: str
    city: str


@function
def extract(s: Any, text: str) -> None:
    s += f"{text}\n\nExtract name, age, job and city as JSON.\nJSON: "
    s += gen("person", json_schema=Person, max_tokens=80)


def main(backend: Any) -> None:
    for state in extract.run_batch([{"text": text} for text in TEXTS], temperature=0, backend=backend):
        person: Person = state["person"]
        print(person, "is", person.age, "years old")


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--backend", help="URL of a server; without it the bundled model runs in this process")
    main(parser.parse_args().backend or LLM())
