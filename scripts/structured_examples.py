"""Ask the bundled model the questions of docs/structured-output.md with and without a constraint, and write them there.

    python -m scripts.structured_examples            # print
    python -m scripts.structured_examples --write    # and put it into the page

Through two servers, one that jumps forward and one that does not, in float32 at temperature 0. The answers depend on
the model, and where two tokens are nearly as likely as each other on the processor; the questions do not.
"""

import argparse
import json
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import requests

from ramet.bench.server import started

PAGE = Path(__file__).resolve().parent.parent / "docs" / "structured-output.md"
BEGIN, END = "<!-- answers: scripts/structured_examples.py -->\n", "<!-- end of answers -->"
SERVED = ("--dtype", "float32", "--max-total-tokens", "8192")
MAX_TOKENS = 96
TIMEOUT_S = 60.0
WIDTH = 130  # of the page's lines

MARIA = "Text: Maria Lopez is 34 years old. She lives in Lisbon.\n"
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "city": {"type": "string"}},
    "required": ["name", "age", "city"],
    "additionalProperties": False,
}
SUM = 'root ::= sum " = " number\nsum ::= term (" + " term)+\nterm ::= number | "(" sum ")"\nnumber ::= [0-9]+'
TAGGED = {"type": "tag", "begin": "<person>", "content": {"type": "json_schema", "json_schema": PERSON}}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


@dataclass(frozen=True)
class Example:
    """One chat with one message. `constraint`: fields of the body; `beside`: those of both answers."""

    title: str
    question: str
    constraint: dict[str, Any]
    note: str
    beside: dict[str, Any] = field(default_factory=dict)


EXAMPLES = (
    Example(
        "A pattern: right, and in the form that is asked for",
        "What is 37 + 58?",
        {"regex": r"37 \+ 58 = [0-9]+"},
        "The model draws the digits of the result, the end, and the first token, which might have opened a thought;"
        " all else is forced.",
    ),
    Example(
        "A pattern that leaves no way to the answer",
        "What is the capital of Peru?",
        {"regex": "[A-Z][a-z]+"},
        "The model wants to begin with `The`, and is held to one word. A constraint cuts off what is illegal at each "
        "token; it does not look for the best legal answer. Either the pattern has the words that the model says "
        "before the answer, or the prompt asks for the answer alone.",
    ),
    Example(
        "The same with the model's own words in the pattern",
        "What is the capital of Peru?",
        {"regex": r"The capital of Peru is [A-Z][a-z]+\."},
        "",
    ),
    Example(
        "Choices",
        "Which continent is Peru in?",
        {"structured_outputs": {"choice": ["Africa", "Asia", "Europe", "North America", "Oceania", "South America"]}},
        "One token decides between the six, and the rest follows without the model.",
    ),
    Example(
        "Choices without the right one",
        "What is the opposite of hot?",
        {"structured_outputs": {"choice": ["warm", "cool"]}},
        "The output keeps to its constraint and is wrong: the right answer is not legal. Where none of the choices may "
        "be right, offer one that says so.",
    ),
    Example(
        "A JSON schema, single spaces",
        MARIA + "Who is it, how old is she and where does she live?",
        {"response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}},
        "Nothing in the prompt asks for JSON. The names of the properties and the order in which they come are in the "
        "schema, and tell the model what to fill in.",
    ),
    Example(
        "The same schema, white space as the model likes",
        MARIA + "Extract name, age and city as JSON. Pretty print it.",
        {"structured_outputs": {"json": PERSON, "whitespace_pattern": r"\s*"}},
        "Without the constraint the answer is right by luck; with it, by rule. Every place where white space may stand "
        "is a choice, which takes a step.",
    ),
    Example(
        "A JSON object of any kind",
        "What is the capital of Peru?",
        {"response_format": {"type": "json_object"}},
        "Valid JSON, and a wrong answer: a model that was made to say something in another form than it has learned "
        "may say something else. `json_object` also tells nobody which properties are wanted; a schema does.",
    ),
    Example(
        "A grammar",
        "What is 37 + 58?",
        {"ebnf": SUM},
        "Sums with brackets in brackets, which no pattern can describe.",
    ),
    Example(
        "A structural tag",
        MARIA + "Who is it, how old is she and where does she live?",
        {"structural_tag": {"type": "structural_tag", "format": {**TAGGED, "end": "</person>"}}},
        "Of the text around the JSON only the first token takes a step: the model might have opened a thought with it.",
    ),
    Example(
        "A call that is required",
        "How warm is Rome?",
        {"tool_choice": "required"},
        "The model has the tool and does not see that it has. Where a call is required, the name is one that was "
        "offered and the arguments keep to the tool's schema.",
        {"tools": [WEATHER]},
    ),
)


class Answer(NamedTuple):
    text: str
    finish_reason: str
    num_tokens: int
    num_steps: int  # of the model


def ask(url: str, example: Example, constrained: bool) -> Answer:
    before = _state(url)["steps"]
    reply = requests.post(f"{url}/v1/chat/completions", json=body_of(example, constrained), timeout=TIMEOUT_S)
    if reply.status_code != 200:
        raise RuntimeError(f"{example.title}: {reply.text}")
    (choice,) = reply.json()["choices"]
    calls = choice["message"].get("tool_calls") or ()
    text = "\n".join(f"{call['function']['name']}({call['function']['arguments']})" for call in calls)
    text = text or choice["message"]["content"]
    steps = _state(url)["steps"] - before
    return Answer(text, choice["finish_reason"], reply.json()["usage"]["completion_tokens"], steps)


def body_of(example: Example, constrained: bool) -> dict[str, Any]:
    messages = [{"role": "user", "content": example.question}]
    asked = example.constraint if constrained else {}
    return {"messages": messages, "temperature": 0, "max_tokens": MAX_TOKENS, **example.beside, **asked}


def _state(url: str) -> Mapping[str, Any]:
    state: Mapping[str, Any] = requests.get(f"{url}/get_server_info", timeout=TIMEOUT_S).json()["internal_states"][0]
    return state


def question_part(example: Example) -> str:
    """What of an example does not depend on the model."""
    quoted = "\n".join(f"> {line}" for line in example.question.split("\n"))
    return f"### {example.title}\n\n{quoted}\n\n```json\n{_fields({**example.beside, **example.constraint})}\n```\n"


def _fields(fields: Mapping[str, Any]) -> str:
    """On one line, or where that is too long with a line for each part of it."""
    line = json.dumps(fields)
    return line if len(line) <= WIDTH else _broken(fields, "")


def _broken(value: Any, indent: str) -> str:
    line, inner = json.dumps(value), indent + "  "
    match value:
        case dict() if len(indent) + len(line) > WIDTH:
            parts = [f"{json.dumps(key)}: {_broken(item, inner)}" for key, item in value.items()]
        case list() if len(indent) + len(line) > WIDTH:
            parts = [_broken(item, inner) for item in value]
        case _:
            return line
    begin, end = ("{", "}") if isinstance(value, dict) else ("[", "]")
    return "\n".join([begin, ",\n".join(f"{inner}{part}" for part in parts), indent + end])


def answer_part(example: Example, free: Answer, kept: Answer, drawn: Answer) -> str:
    """`drawn`: with the constraint, every token of it drawn by the model."""
    saved = f"{_steps(kept)}, {drawn.num_steps} with `--jump-forward off`"
    parts = [
        f"Without the constraint ({free.num_tokens} tokens, {_steps(free)}):\n\n{_block(free)}",
        f"With it ({kept.num_tokens} tokens, {saved}):\n\n{_block(kept)}",
    ]
    if example.note:
        parts.append(textwrap.fill(example.note, WIDTH, break_on_hyphens=False) + "\n")
    return "\n".join(parts)


def _steps(answer: Answer) -> str:
    return f"{answer.num_steps} model step" + ("" if answer.num_steps == 1 else "s")


def _block(answer: Answer) -> str:
    cut = "\n(finish reason: length)" if answer.finish_reason == "length" else ""
    return f"```text\n{answer.text}{cut}\n```\n"


def section(examples: Iterable[Example], jumping_url: str, drawing_url: str) -> str:
    parts = []
    for example in examples:
        free, kept = ask(jumping_url, example, False), ask(jumping_url, example, True)
        drawn = ask(drawing_url, example, True)
        if drawn.text != kept.text:
            raise RuntimeError(f"{example.title}: {kept.text!r}, and {drawn.text!r} without jump-forward")
        parts.append(f"{question_part(example)}\n{answer_part(example, free, kept, drawn)}")
    return "\n".join(parts)


def placed(page: str, answers: str) -> str:
    """The page with these answers between its markers."""
    head, rest = page.split(BEGIN)
    return f"{head}{BEGIN}\n{answers}\n{END}{rest.split(END)[1]}"


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--write", action="store_true", help="put the answers into docs/structured-output.md")
    args = parser.parse_args(argv)
    with started([*SERVED, "--jump-forward", "ff"]) as jumping, started([*SERVED, "--jump-forward", "off"]) as drawing:
        answers = section(EXAMPLES, jumping.url, drawing.url)
    print(answers)
    if args.write:
        PAGE.write_text(placed(PAGE.read_text(), answers))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
