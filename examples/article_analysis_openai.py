"""article_analysis.py without the language: the same flow on /v1/completions of a server, for comparison.

Choices, records, threads and prompts are handled here, as everyone does who uses the plain interface.
"""

import json
import urllib.error
import urllib.request
from argparse import ArgumentParser
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

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
SUBJECTS = (" person", " weather")
TRIES = 5  # of a call whose answer cannot be read
TIMEOUT_S = 60


@dataclass
class Person:
    name: str
    age: int
    job: str
    city: str


class Client:
    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        try:
            with urllib.request.urlopen(self.url + "/v1/models", timeout=TIMEOUT_S) as reply:
                self.model = json.load(reply)["data"][0]["id"]
        except urllib.error.URLError as error:
            raise SystemExit(f"{self.url} does not answer ({error.reason}): start `ramet serve`") from None

    def complete(self, prompt: str, **parameters: Any) -> str:
        body = {"model": self.model, "prompt": prompt, **parameters}
        request = urllib.request.Request(
            self.url + "/v1/completions",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as reply:
                answer = json.load(reply)
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{self.url} answered {error.code}: {error.read().decode()}") from error
        choice = answer["choices"][0]
        if choice["finish_reason"] not in ("stop", "length"):
            raise RuntimeError(f"the output ended for {choice['finish_reason']}")
        return str(choice["text"])


def choose(client: Client, prompt: str, choices: tuple[str, ...]) -> str:
    """Ask until the answer begins with one of the choices; a model that never does so gets the first one."""
    for attempt in range(TRIES):
        answer = client.complete(prompt, max_tokens=8, stop="\n", temperature=0 if attempt == 0 else 1)
        for choice in choices:
            if answer.strip().lower().startswith(choice.strip().lower()):
                return choice
    return choices[0]


def read_person(client: Client, prompt: str) -> Person:
    """Ask until the answer is a record."""
    for attempt in range(TRIES):
        answer = client.complete(prompt, max_tokens=80, temperature=0 if attempt == 0 else 1)
        begin, end = answer.find("{"), answer.find("}")
        if begin < 0 or end < begin:
            continue
        try:
            fields = json.loads(answer[begin : end + 1])
            return Person(str(fields["name"]), int(fields["age"]), str(fields["job"]), str(fields["city"]))
        except (ValueError, KeyError, TypeError):
            continue
    raise RuntimeError(f"no record after {TRIES} tries")


def summarize_paragraph(client: Client, prompt: str, number: int) -> str:
    asked = prompt + f"In short, paragraph {number} says:"
    return client.complete(asked, stop="\n", max_tokens=40)


def analyse(client: Client, article: str) -> tuple[str, str]:
    prompt = ""
    for text, label in SHOTS:
        prompt += f"Text: {text}\nLabel: {label}\n\n"
    prompt += f"Text: {article}\nLabel:"
    subject = choose(client, prompt, SUBJECTS)
    prompt += subject + "\n\n"
    with ThreadPoolExecutor() as threads:
        if subject == " person":
            asked = article + "\n\nExtract name, age, job and city as JSON.\nJSON:"
            record = threads.submit(read_person, client, asked)
            asked = prompt + "Introduce this person in one sentence:"
            introduction = threads.submit(client.complete, asked, stop="\n", max_tokens=60)
            return subject, f"{record.result()}\nIntroduction:{introduction.result()}"
        futures = []
        for number in range(1, len(article.split("\n")) + 1):
            futures.append(threads.submit(summarize_paragraph, client, prompt, number))
        parts = ""
        for number, future in enumerate(futures, 1):
            parts += f"Paragraph {number}:{future.result()}\n"
    prompt += parts + "In summary,"
    summary = client.complete(prompt, stop="\n", max_tokens=60)
    return subject, f"{parts}Summary:{summary}"


def main(url: str) -> None:
    client = Client(url)
    with ThreadPoolExecutor() as threads:
        futures = [threads.submit(analyse, client, article) for article in ARTICLES]
        for future in futures:
            subject, report = future.result()
            print(f"About{subject}\n{report}\n")


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="http://127.0.0.1:30000", help="URL of a server")
    main(parser.parse_args().backend)
