"""Articles are analysed: one about a person becomes a record and an introduction, another one a summary.

Section 6.3.3 of the SGLang paper counts the lines of such a program; article_analysis_openai.py beside this file is the
same flow without the language. The bundled model labels and reads records; what it writes freely is invented.
"""

from argparse import ArgumentParser
from dataclasses import dataclass
from typing import Any

from ramet import LLM, function, gen, select

SHOTS = (
    ("Ben Ito is 30 years old and plays the flute.", "person"),
    ("They say that the fog lasted until the evening.", "weather"),
    ("Mei Tanaka is a pilot. Mei lives in Kyoto.", "person"),
    ("The rain stopped at noon.", "weather"),
)
ARTICLES = (
    "Ada Silva is a doctor. Ada is 41 years old and lives in Lima. Ada plays the piano.",
    "The storm came from the north. The wind grew stronger.\nThe snow is expected tomorrow.",
)


@dataclass
class Person:
    name: str
    age: int
    job: str
    city: str


@function
def extract(s: Any, article: str) -> None:
    s += article + "\n\nExtract name, age, job and city as JSON.\nJSON: "
    s += gen("person", json_schema=Person, temperature=0, max_tokens=80)


@function
def analyse(s: Any, article: str) -> str:
    for text, subject in SHOTS:
        s += f"Text: {text}\nLabel: {subject}\n\n"
    s += f"Text: {article}\nLabel:" + select("subject", choices=[" person", " weather"]) + "\n\n"
    if s["subject"] == " person":
        record = extract(article)  # runs beside what follows
        s += "Introduce this person in one sentence:" + gen("introduction", stop="\n", max_tokens=60)
        return f"{record['person']}\nIntroduction:{s['introduction']}"
    paragraphs = article.split("\n")
    forks = s.fork(len(paragraphs))
    forks += lambda number: f"In short, paragraph {number + 1} says:" + gen("part", stop="\n", max_tokens=40)
    parts = "".join(f"Paragraph {number}:{fork['part']}\n" for number, fork in enumerate(forks, 1))
    s += parts + "In summary," + gen("summary", stop="\n", max_tokens=60)
    return f"{parts}Summary:{s['summary']}"


def main(backend: Any) -> None:
    for state in analyse.run_batch([{"article": article} for article in ARTICLES], backend=backend):
        print(f"About{state['subject']}\n{state.ret_value}\n")


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--backend", help="URL of a server; without it the bundled model runs in this process")
    main(parser.parse_args().backend or LLM())
