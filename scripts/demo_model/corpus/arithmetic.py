"""Sums, differences and products of small numbers: bare, asked for, worked out, and told as short stories.

The one place where two-digit sums are drawn, so that a held-out sum is held out everywhere. Worked lines go digit by
digit (ones, then tens), so that no worked line writes down another two-digit sum, difference or product.
"""

from collections.abc import Callable
from dataclasses import dataclass

from scripts.demo_model.corpus.draw import Document, Draw, Question
from scripts.demo_model.corpus.grammar import capitalized
from scripts.demo_model.corpus.words import PEOPLE, SMALL_THINGS

TWO_DIGITS = range(10, 100)
SMALL_SHARE = 0.3  # of sums and differences have a number below 10; these are known by heart and never held out
FACTORS = range(2, 13)


@dataclass(frozen=True)
class Exercise:
    """One calculation: "37 + 58", "37 plus 58", the worked line "ones 7 + 8 = 15, tens 3 + 5 + 1 = 9", 95."""

    expression: str
    spoken: str
    steps: str
    result: int
    keys: tuple[str, ...]

    @property
    def equation(self) -> str:
        return f"{self.expression} = {self.result}"

    @property
    def worked(self) -> str:
        return f"{self.expression}: {self.steps}. {self.equation}. The answer is {self.result}."


def sum_pair(draw: Draw) -> tuple[int, int, str]:
    """Two numbers of 10 to 99 whose sum lies on this draw's side of the split, and the key."""
    (a, b), key = draw.combine("sum", TWO_DIGITS, TWO_DIGITS, symmetric=True)
    return a, b, key


def difference_pair(draw: Draw) -> tuple[int, int, str]:
    """Two numbers of 10 to 99, the larger one first, and the key."""
    (a, b), key = draw.combine("difference", TWO_DIGITS, TWO_DIGITS, symmetric=True)
    return max(a, b), min(a, b), key


def product_pair(draw: Draw) -> tuple[int, int, str]:
    """Two factors of 2 to 12, and the key."""
    (a, b), key = draw.combine("product", FACTORS, FACTORS, symmetric=True)
    return a, b, key


def sum_steps(a: int, b: int) -> str:
    """ "ones 7 + 8 = 15, tens 3 + 5 + 1 = 9": the tens step names the carry only when there is one."""
    if max(a, b) < 10:
        return f"ones {a} + {b} = {a + b}"
    ones = a % 10 + b % 10
    carry = " + 1" if ones > 9 else ""
    tens = a // 10 + b // 10 + ones // 10
    return f"ones {a % 10} + {b % 10} = {ones}, tens {a // 10} + {b // 10}{carry} = {tens}"


def difference_steps(a: int, b: int) -> str:
    """ "ones 15 - 8 = 7, tens 9 - 5 - 1 = 3": the tens step names the borrowed one only when there is one."""
    if a < 10:
        return f"ones {a} - {b} = {a - b}"
    borrows = a % 10 < b % 10
    top = a % 10 + 10 * borrows
    borrowed = " - 1" if borrows else ""
    tens = a // 10 - b // 10 - borrows
    return f"ones {top} - {b % 10} = {top - b % 10}, tens {a // 10} - {b // 10}{borrowed} = {tens}"


def product_steps(a: int, b: int) -> str:
    """ "8, 16, 24": the multiples of b up to a times b."""
    return ", ".join(map(str, range(b, a * b + 1, b)))


def sum_exercise(draw: Draw) -> Exercise:
    if _is_small(draw):
        a, b = _small_pair(draw)
        a, b = (a, b) if draw.chance(0.5) else (b, a)
        return Exercise(f"{a} + {b}", f"{a} plus {b}", sum_steps(a, b), a + b, ())
    a, b, key = sum_pair(draw)
    return Exercise(f"{a} + {b}", f"{a} plus {b}", sum_steps(a, b), a + b, (key,))


def difference_exercise(draw: Draw) -> Exercise:
    if _is_small(draw):
        b, a = sorted(_small_pair(draw))
        return Exercise(f"{a} - {b}", f"{a} minus {b}", difference_steps(a, b), a - b, ())
    a, b, key = difference_pair(draw)
    return Exercise(f"{a} - {b}", f"{a} minus {b}", difference_steps(a, b), a - b, (key,))


def product_exercise(draw: Draw) -> Exercise:
    a, b, key = product_pair(draw)
    return Exercise(f"{a} x {b}", f"{a} times {b}", product_steps(a, b), a * b, (key,))


def _is_small(draw: Draw) -> bool:
    return not draw.held_out and draw.chance(SMALL_SHARE)


def _small_pair(draw: Draw) -> tuple[int, int]:
    """A number below 10, and another one that is often below 10 too."""
    return draw.number(1, 9), draw.number(1, 9) if draw.chance(0.4) else draw.number(10, 99)


def exercise(draw: Draw) -> Exercise:
    """Mostly sums."""
    roll = draw.random.random()
    return sum_exercise(draw) if roll < 0.65 else difference_exercise(draw) if roll < 0.85 else product_exercise(draw)


ASKED = (
    "What is {spoken}?",
    "What is {expression}?",
    "How much is {spoken}?",
    "How much is {expression}?",
    "What do you get for {expression}?",
    "What does {expression} make?",
    "Can you work out {expression}?",
    "What is the result of {expression}?",
    "Calculate {expression}.",
    "Work out {spoken}.",
    "Compute {expression}.",
    "Please calculate {spoken}.",
)
ASKED_FOR_STEPS = (
    "What is {expression}? Show the steps.",
    "Work out {expression} step by step.",
    "Calculate {spoken} and show your work.",
    "How much is {expression}? Think step by step.",
    "Solve {expression}. Show each step.",
)
ANSWERED = (
    "{equation}.",
    "{expression} is {result}.",
    "{spoken} is {result}.",
    "{spoken} makes {result}.",
    "The answer is {result}.",
    "The result is {result}.",
)
QUESTION_MARKS = (("Question: ", "\nAnswer:"), ("Q: ", "\nA:"), ("Problem: ", "\nSolution:"), ("", "\nAnswer:"))


def _fill(frame: str, item: Exercise) -> str:
    return frame.format(
        expression=item.expression, spoken=item.spoken, equation=item.equation, result=item.result, steps=item.steps
    )


# Frames of word problems. n is the person, m another one, he/his stand for n; t is the thing in the plural.
SUM_STORIES = (
    "{n} has {a} {t}. {He} buys {b} more. How many {t} does {n} have now?",
    "{n} has {a} {t} and {m} has {b} {t}. How many {t} do they have together?",
    "{n} finds {a} {t} in the morning and {b} {t} in the evening. How many {t} does {he} find in all?",
    "There are {a} {t} in one box and {b} {t} in another box. How many {t} are there in total?",
    "{m} gives {n} {b} {t}. {n} already had {a} {t}. How many {t} does {n} have now?",
    "A shop sells {a} {t} on Monday and {b} {t} on Tuesday. How many {t} does it sell on both days?",
    "{n} packs {a} {t} and {m} packs {b} {t}. How many {t} do they pack together?",
    "{n} counted {a} {t} on the left and {b} {t} on the right. How many {t} did {he} count?",
    "A truck carries {a} {t}. Then {n} loads {b} more {t}. How many {t} does the truck carry now?",
    "{n} pays {a} coins for the first set of {t} and {b} coins for the second. How many coins does {he} pay?",
    "Last year {n} made {a} {t}. This year {he} made {b} {t}. How many {t} did {he} make in two years?",
    "On the table lie {a} {t}, and on the floor lie {b} {t}. How many {t} lie there in all?",
    "One rope is {a} meters long and another is {b} meters long. How long are they together, in meters?",
    "{n} read {a} pages on Saturday and {b} pages on Sunday. How many pages did {he} read?",
    "{n} walks {a} minutes to the lake and {b} minutes to the hill. How many minutes does {he} walk?",
)
DIFFERENCE_STORIES = (
    "{n} has {a} {t}. {He} gives {b} of them to {m}. How many {t} does {n} have left?",
    "{n} had {a} {t} and lost {b}. How many {t} are left?",
    "There are {a} {t} in a box. {n} takes {b} out. How many {t} are still in the box?",
    "A shop has {a} {t}. It sells {b} of them. How many {t} remain?",
    "{n} has {a} {t} and {m} has {b} {t}. How many more {t} does {n} have than {m}?",
    "{n} wants {a} {t}. {He} already has {b}. How many {t} does {he} still need?",
    "{n} had {a} coins and paid {b} coins for some {t}. How many coins does {he} have left?",
    "Of {a} {t}, {b} are broken. How many {t} are not broken?",
    "{n} has a book of {a} pages. {He} has read {b} pages. How many pages are left?",
    "There were {a} people on the bus. {b} people got off. How many people are still on the bus?",
)
PRODUCT_STORIES = (
    "{n} has {a} boxes with {b} {t} in each. How many {t} does {he} have?",
    "There are {a} shelves with {b} {t} on each shelf. How many {t} are there?",
    "{n} buys {b} {t} every day. How many {t} does {he} buy in {a} days?",
    "{a} friends bring {b} {t} each. How many {t} do they bring in total?",
    "{n} puts {b} {t} into each of {a} bags. How many {t} does {he} need?",
    "One ticket costs {b} coins. How many coins do {a} tickets cost?",
)
_SAMPLERS: tuple[tuple[Callable[[Draw], Exercise], tuple[str, ...]], ...] = (
    (sum_exercise, SUM_STORIES),
    (sum_exercise, SUM_STORIES),
    (sum_exercise, SUM_STORIES),
    (difference_exercise, DIFFERENCE_STORIES),
    (product_exercise, PRODUCT_STORIES),
)


def story_problem(draw: Draw) -> tuple[str, Exercise]:
    """A word problem in plain words and the calculation that solves it."""
    sampler, stories = draw.pick(_SAMPLERS)
    item = sampler(draw)
    while "1" in item.expression.split(" "):  # "1 apples"
        item = sampler(draw)
    a, _, b = item.expression.split(" ")
    person, other = draw.pick(PEOPLE), draw.pick(PEOPLE)
    while other.name == person.name:
        other = draw.pick(PEOPLE)
    text = draw.pick(stories).format(
        a=a, b=b, n=person.name, m=other.name, he=person.he, He=capitalized(person.he), t=draw.pick(SMALL_THINGS).many
    )
    return text, item


def _listed(family: str, pieces: list[tuple[str, str]], separator: str, keys: list[str]) -> Document:
    """Given and produced by turns, with the separator opening every given part but the first."""
    parts = [part for given, produced in pieces for part in (separator + given, produced)]
    parts[0] = parts[0].removeprefix(separator)
    return Document(family, tuple(parts), tuple(keys))


def bare_sums(draw: Draw) -> Document:
    """One to six sums, a line each."""
    items = [sum_exercise(draw) for _ in range(draw.pick((1, 1, 2, 3, 4, 6)))]
    pieces = [(f"{item.expression} =", f" {item.result}") for item in items]
    return _listed("arithmetic.bare", pieces, "\n", [key for item in items for key in item.keys])


def bare_mixed(draw: Draw) -> Document:
    """Differences, products and sums, a line each, sometimes with full stops."""
    items = [exercise(draw) for _ in range(draw.number(1, 5))]
    stop = "." if draw.chance(0.3) else ""
    pieces = [(f"{item.expression} =", f" {item.result}{stop}") for item in items]
    return _listed("arithmetic.bare", pieces, "\n", [key for item in items for key in item.keys])


def spoken_line(draw: Draw) -> Document:
    """ "37 plus 58 is 95.", or the end of a sentence that names the sum."""
    item = exercise(draw)
    opening = draw.pick(
        ("{spoken} is", "{spoken} equals", "The result of {expression} is", "The answer to {spoken} is")
    )
    return Document("arithmetic.spoken", (_fill(opening, item), f" {item.result}."), item.keys)


def asked(draw: Draw) -> Document:
    """One to five questions with short answers."""
    before, after = draw.pick(QUESTION_MARKS)
    frame = draw.pick(ASKED)
    separator = draw.pick(("\n\n", "\n\n", "\n"))
    items = [exercise(draw) for _ in range(draw.pick((1, 1, 1, 2, 3, 4, 5)))]
    pieces = [(f"{before}{_fill(frame, item)}{after}", f" {item.result}") for item in items]
    return _listed("arithmetic.asked", pieces, separator, [key for item in items for key in item.keys])


def worked(draw: Draw) -> Document:
    """A calculation worked out by ones and tens, one to three in a document."""
    before, after = draw.pick(QUESTION_MARKS)
    frame = draw.pick(ASKED_FOR_STEPS)
    items = [exercise(draw) for _ in range(draw.pick((1, 1, 2, 3)))]
    pieces = [(f"{before}{_fill(frame, item)}{after}", f" {item.worked}") for item in items]
    return _listed("arithmetic.worked", pieces, "\n\n", [key for item in items for key in item.keys])


def steps_line(draw: Draw) -> Document:
    """Only the worked line, as a completion of "37 + 58:"."""
    item = exercise(draw)
    return Document(
        "arithmetic.worked", (f"{item.expression}:", item.worked.removeprefix(f"{item.expression}:")), item.keys
    )


def word_problem(draw: Draw) -> Document:
    """One to three word problems, each with its worked line and "The answer is N."."""
    before, after = draw.pick(QUESTION_MARKS)
    told = [story_problem(draw) for _ in range(draw.pick((1, 1, 1, 2, 3)))]
    pieces = [(f"{before}{text}{after}", f" {item.worked}") for text, item in told]
    return _listed("arithmetic.story", pieces, "\n\n", [key for _, item in told for key in item.keys])


def ask(draw: Draw) -> Question:
    """A bare calculation or a word problem for a chat; the sentence of a word problem holds the worked line."""
    if draw.chance(0.35):
        text, item = story_problem(draw)
        return Question(text, str(item.result), item.worked, item.keys)
    item = exercise(draw)
    return Question(_fill(draw.pick(ASKED), item), str(item.result), _fill(draw.pick(ANSWERED), item), item.keys)


FAMILIES = (
    (5.0, bare_sums),
    (1.5, bare_mixed),
    (1.0, spoken_line),
    (4.0, asked),
    (1.5, worked),
    (1.0, steps_line),
    (5.0, word_problem),
)
