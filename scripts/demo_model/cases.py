"""What the evaluation asks, and when an answer counts as right.

Decides the rows of the table, their targets and their checks. Every prompt but the capitals' is a held-out combination.
Knows no server. A reply is what came back without the end-of-text or end-of-turn token.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement, islice, repeat

from scripts.demo_model.corpus import arithmetic, chats, choice, facts, labels, passages, sequences, tools, traces
from scripts.demo_model.corpus.draw import Document, Draw, combination_key, is_held_out
from scripts.demo_model.corpus.extraction import json_prompt
from scripts.demo_model.corpus.long import needle_prompt
from scripts.demo_model.vocabulary import END_OF_TURN

SEED = "evaluation"


@dataclass(frozen=True)
class Reply:
    """A server's answer: its text, and the token that ended it (None: the limit did)."""

    text: str
    ended_by: int | None


@dataclass(frozen=True)
class Case:
    row: str
    prompt: str
    is_right: Callable[[Reply], bool]
    max_new_tokens: int
    keys: tuple[str, ...]  # the held-out combinations that it asks for
    image: str = ""  # a data URI; empty: there is none


# Row -> share of right answers that the model must reach; the other rows are there to be seen.
TARGETS = {
    "capitals, three phrasings": 0.95,
    "sums of two digits": 0.90,
    "JSON of the asked shape": 0.95,
    "labels from five shots": 0.85,
    "chat turns that end": 0.98,
    "recall in turn three": 0.90,
}


def all_cases() -> list[Case]:
    """Every prompt of the evaluation; the same at every call."""
    return [
        *capital_cases(),
        *sum_cases(300),
        *json_cases(200),
        *label_cases(300),
        *chat_cases(200),
        *recall_cases(200),
        *exact_cases("facts in held-out wordings", facts.fact, 150, 32),
        *difference_cases(100),
        *exact_cases("word problems, worked", arithmetic.word_problem, 75, 64),
        *exact_cases("lists: copy, sort, reverse, count", sequences.single, 150, 48),
        *exact_cases("multiple choice", choice.multiple_choice, 150, 12),
        *exact_cases("questions on a passage", passages.passage_questions, 100, 32),
        *exact_cases("tool calls", tools.single_call, 75, 96, stops_at="\n<|im_start|>user\n<tool_response>"),
        *action_cases(75),
        *needle_cases("needle in 1,000 tokens", 1000, 25),
        *needle_cases("needle in 3,500 tokens", 3500, 6),
    ]


def ends_its_turn(reply: Reply) -> bool:
    return reply.ended_by == END_OF_TURN


_WORD_GOES_ON = r"(?!\w|[.,]\d)"


def starts_with(answer: str) -> Callable[[Reply], bool]:
    """The answer, then nothing or something that is no part of a word or number."""
    pattern = re.compile(re.escape(answer) + _WORD_GOES_ON)
    return lambda reply: pattern.match(reply.text.strip()) is not None


def says(answer: str) -> Callable[[Reply], bool]:
    """The answer stands anywhere, as whole words or numbers."""
    pattern = re.compile(r"(?<![\w:])" + re.escape(answer) + _WORD_GOES_ON)
    return lambda reply: pattern.search(reply.text) is not None


def first_lines(answer: str) -> Callable[[Reply], bool]:
    """Exactly the answer; a new exercise of the same kind may follow it on a new line."""

    def check(reply: Reply) -> bool:
        return (reply.text.strip() + "\n").startswith(answer.strip() + "\n")

    return check


def shaped_like(expected: dict[str, object]) -> Callable[[Reply], bool]:
    """A JSON object with these keys, whose values have these types."""

    def check(reply: Reply) -> bool:
        try:
            found, _ = json.JSONDecoder().raw_decode(reply.text.strip())
        except ValueError:
            return False
        return same_shape(found, expected)

    return check


def same_shape(found: object, expected: object) -> bool:
    if isinstance(expected, dict) and isinstance(found, dict):
        return found.keys() == expected.keys() and all(same_shape(found[key], expected[key]) for key in expected)
    if isinstance(expected, list) and isinstance(found, list):
        return not expected or all(same_shape(item, expected[0]) for item in found)
    return type(found) is type(expected)


def capital_cases() -> Iterator[Case]:
    """All countries; a wording of a known fact is no combination to hold out here."""
    for _, prompt, answer in facts.capital_prompts():
        yield Case("capitals, three phrasings", prompt, starts_with(answer), 12, ())


def sum_cases(count: int) -> Iterator[Case]:
    pairs = [
        (a, b)
        for a, b in combinations_with_replacement(range(10, 100), 2)
        if is_held_out(combination_key("sum", *sorted((a, b), key=str)))
    ]
    draw = Draw(f"{SEED}/sums", held_out=True)
    for a, b in draw.sample(pairs, count):
        key = combination_key("sum", *sorted((a, b), key=str))
        left, right = (a, b) if draw.chance(0.5) else (b, a)
        yield Case("sums of two digits", f"{left} + {right} =", starts_with(str(a + b)), 6, (key,))


def difference_cases(count: int) -> Iterator[Case]:
    draw = Draw(f"{SEED}/differences", held_out=True)
    seen: set[str] = set()
    while len(seen) < count:
        a, b, key = arithmetic.difference_pair(draw)
        if key not in seen:
            seen.add(key)
            yield Case("differences of two digits", f"{a} - {b} =", starts_with(str(a - b)), 6, (key,))


def json_cases(count: int) -> Iterator[Case]:
    draw = Draw(f"{SEED}/json", held_out=True)
    for _ in range(count):
        document, expected = json_prompt(draw)
        yield Case("JSON of the asked shape", asked(document), shaped_like(expected), 160, document.keys)


def label_cases(count: int) -> Iterator[Case]:
    draw = Draw(f"{SEED}/labels", held_out=True)
    for _ in range(count):
        document = labels.five_shot_prompt(draw)
        right = first_lines(document.parts[-1])
        yield Case("labels from five shots", asked(document), right, 8, document.keys)


def chat_cases(count: int) -> Iterator[Case]:
    """Chats with something to hold out: small talk alone is too little of a question."""
    draw = Draw(f"{SEED}/chat", held_out=True)
    documents = (chats.chat_prompt(draw)[0] for _ in repeat(None))
    held_out = (document for document in documents if any(map(is_held_out, document.keys)))
    for document in islice(held_out, count):
        yield Case("chat turns that end", asked(document), ends_its_turn, 256, document.keys)


def recall_cases(count: int) -> Iterator[Case]:
    draw = Draw(f"{SEED}/recall", held_out=True)
    for _ in range(count):
        document, value = chats.recall_prompt(draw)
        yield Case("recall in turn three", asked(document), says(value), 48, document.keys)


def exact_cases(
    row: str,
    make: Callable[[Draw], Document],
    count: int,
    max_new_tokens: int,
    *,
    stops_at: str = "",
) -> Iterator[Case]:
    """The last produced part must come back word for word; the first one where a part that `stops_at` follows it."""
    draw = Draw(f"{SEED}/{row}", held_out=True)
    prompts: set[str] = set()
    while len(prompts) < count:
        document = make(draw)
        cut = stops_at and any(part.startswith(stops_at) for part in document.parts)
        at = 1 if cut else len(document.parts) - 1
        answer = document.parts[at].removesuffix("<|im_end|>")
        prompt = "".join(document.parts[:at])
        if prompt not in prompts:
            prompts.add(prompt)
            yield Case(row, prompt, first_lines(answer), max_new_tokens, document.keys)


def action_cases(count: int) -> Iterator[Case]:
    """The first action of a trace; its thought may be worded freely."""
    draw = Draw(f"{SEED}/actions", held_out=True)
    for _ in range(count):
        document = traces.react(draw)
        action = document.parts[1].rpartition("\n")[2]

        def right(reply: Reply, action: str = action) -> bool:
            return action in reply.text.split("\nObservation")[0].split("\n")

        yield Case("ReAct: first action", document.parts[0], right, 64, document.keys)


def needle_cases(row: str, tokens: int, count: int) -> Iterator[Case]:
    draw = Draw(f"{SEED}/{row}", held_out=True)
    for _ in range(count):
        document, value = needle_prompt(draw, tokens)
        yield Case(row, asked(document), starts_with(value), 24, document.keys)


def asked(document: Document) -> str:
    """Everything before the last produced part."""
    return "".join(document.parts[:-1])
