"""Exercises over short lists: copying, repeating, counting, reversing, sorting, picking, comparing.

Decides the items, the wording and the answer. The first two items of a list (or all there are) are the combination
that the split keeps apart, for each exercise on its own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from scripts.demo_model.corpus.draw import Document, Draw, Question, combination_key
from scripts.demo_model.corpus.words import FIRST_NAMES, LABEL_WORDS, LIST_WORDS, THING_ADJECTIVES, THING_VERBS

WORDS = LIST_WORDS
NUMBERS = tuple(range(10, 100))
SHORT_WORDS = tuple(word for word in dict.fromkeys((*LIST_WORDS, *LABEL_WORDS)) if 3 <= len(word) <= 5)
DIGITS = tuple("0123456789")
SMALL = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh")
_PASTS = tuple(verb.past for verb in THING_VERBS)


@dataclass(frozen=True)
class Exercise:
    """An instruction that stands alone, what it works on ("" if the instruction holds it), and the answer."""

    task: str
    instruction: str
    items: str
    answer: str
    key: str


def _two(
    draw: Draw, kind: str, firsts: Sequence[object], seconds: Sequence[object] | None = None
) -> tuple[list[Any], str]:
    """Two different values on this draw's side, and their key."""
    pools = (firsts, seconds or firsts)
    (a, b), key = draw.combine(kind, *pools)
    while a == b:
        (a, b), key = draw.combine(kind, *pools)
    return [a, b], key


def _list(draw: Draw, kind: str, pool: Sequence[Any], low: int, high: int) -> tuple[list[Any], str]:
    """`low` to `high` different items; the first two are the combination."""
    items, key = _two(draw, kind, pool)
    length = draw.number(low, high)
    while len(items) < length:
        item = draw.pick(pool)
        if item not in items:
            items.append(item)
    return items, key


def _comma(items: Sequence[object]) -> str:
    return ", ".join(map(str, items))


def copy_words(draw: Draw) -> Exercise:
    items, key = _list(draw, "copy", WORDS, 2, 9)
    text = draw.pick((", ", " ")).join(items)
    asked = draw.pick(
        ("Copy this list", "Repeat these words", "Write the same words again", "Copy the line", "Say this again")
    )
    return Exercise("copy", asked, text, text, key)


def copy_digits(draw: Draw) -> Exercise:
    """Four to twelve digits, written together or apart; the first two pairs are the combination."""
    (first, second), key = draw.combine("copy_digits", NUMBERS, NUMBERS)
    rest = "".join(draw.pick(DIGITS) for _ in range(draw.number(0, 8)))
    text = draw.pick(("", " ")).join(f"{first}{second}{rest}")
    asked = draw.pick(("Copy these digits", "Repeat the number", "Write the same digits again", "Copy the code"))
    return Exercise("copy", asked, text, text, key)


def copy_sentence(draw: Draw) -> Exercise:
    (name, word), key = draw.combine("copy_sentence", FIRST_NAMES, WORDS)
    sentence = f"{name} {draw.pick(_PASTS)} the {draw.pick(THING_ADJECTIVES)} {word}."
    asked = draw.pick(
        ("Repeat this sentence", "Copy the sentence", "Write the same sentence again", "Say exactly this")
    )
    return Exercise("copy", asked, f'"{sentence}"', sentence, key)


def repeat_word(draw: Draw) -> Exercise:
    (word, times), key = draw.combine("repeat", WORDS, range(2, 8))
    count = draw.pick((str(times), SMALL[times - 1]))
    asked = draw.pick(
        (
            f'Repeat the word "{word}" {count} times',
            f'Write "{word}" {count} times',
            f'Say the word "{word}" {count} times',
            f'Write the word "{word}" {count} times',
        )
    )
    return Exercise("repeat", asked, "", " ".join([word] * times), key)


def count_items(draw: Draw) -> Exercise:
    items, key = _list(draw, "count", WORDS, 2, 9)
    asked = draw.pick(
        (
            "Count the words",
            "How many words are in this list?",
            "How many items are there?",
            "Count the items in the list",
        )
    )
    return Exercise("count", asked, _comma(items), str(len(items)), key)


def reverse_words(draw: Draw) -> Exercise:
    items, key = _list(draw, "reverse", WORDS, 3, 7)
    separator = draw.pick((", ", " "))
    asked = draw.pick(
        (
            "Reverse this list",
            "Write the words in reverse order",
            "Say the words from last to first",
            "Turn the list around",
        )
    )
    return Exercise("reverse", asked, separator.join(items), separator.join(reversed(items)), key)


def reverse_letters(draw: Draw) -> Exercise:
    (word,), key = draw.combine("reverse_letters", SHORT_WORDS)
    asked = draw.pick(
        ("Reverse the letters", "Write the letters in reverse order", "Say the letters from last to first")
    )
    return Exercise("reverse_letters", asked, " ".join(word), " ".join(reversed(word)), key)


def spell_word(draw: Draw) -> Exercise:
    (word,), key = draw.combine("spell", SHORT_WORDS)
    asked = draw.pick((f'Spell the word "{word}"', f'Write the letters of "{word}"', f'How do you spell "{word}"?'))
    return Exercise("spell", asked, "", " ".join(word), key)


def sort_numbers(draw: Draw) -> Exercise:
    items, key = _list(draw, "sort_numbers", range(1, 100), 3, 6)
    if draw.chance(0.6):
        asked = draw.pick(
            (
                "Sort these numbers",
                "Sort the numbers from smallest to largest",
                "Put the numbers in ascending order",
                "Order the numbers from low to high",
            )
        )
        return Exercise("sort", asked, _comma(items), _comma(sorted(items)), key)
    asked = draw.pick(
        (
            "Sort the numbers from largest to smallest",
            "Put the numbers in descending order",
            "Order the numbers from high to low",
        )
    )
    return Exercise("sort", asked, _comma(items), _comma(sorted(items, reverse=True)), key)


def sort_words(draw: Draw) -> Exercise:
    items, key = _list(draw, "sort_words", WORDS, 3, 5)
    asked = draw.pick(
        ("Sort these words alphabetically", "Put the words in alphabetical order", "Sort the words from A to Z")
    )
    return Exercise("sort", asked, _comma(items), _comma(sorted(items)), key)


def pick_item(draw: Draw) -> Exercise:
    """The first, last or n-th of a list."""
    items, key = _list(draw, "item", WORDS, 3, 7)
    index = draw.number(0, len(items) - 1)
    which = "last" if index == len(items) - 1 and draw.chance(0.8) else ORDINALS[index]
    asked = draw.pick(
        (
            f"What is the {which} word of this list?",
            f"Name the {which} item",
            f"Which word comes {which}?",
            f"Give the {which} word",
            f"Pick the {which} item of the list",
        )
    )
    return Exercise("item", asked, _comma(items), items[index], key)


def next_number(draw: Draw) -> Exercise:
    """An arithmetic progression of three to five numbers, rising or falling."""
    (start, step), key = draw.combine("next", range(1, 61), (*range(1, 13), 20, 25, 50, 100))
    shown = draw.number(3, 5)
    series = [start + step * index for index in range(shown + 1)]
    if draw.chance(0.2):
        series.reverse()
    asked = draw.pick(
        ("What number comes next?", "Continue the sequence", "Give the next number", "Which number follows?")
    )
    return Exercise("next", asked, _comma(series[:-1]), str(series[-1]), key)


def uppercase(draw: Draw) -> Exercise:
    (word,), key = draw.combine("uppercase", SHORT_WORDS)
    asked = draw.pick(
        ("Write in capital letters", "Change to uppercase", "Put this word in capitals", "Write in uppercase")
    )
    return Exercise("uppercase", asked, word, word.upper(), key)


def larger(draw: Draw) -> Exercise:
    pool = NUMBERS if draw.chance(0.6) else range(1, 1000)
    (a, b), key = draw.combine("larger", pool, pool, symmetric=True)
    while a == b:
        (a, b), key = draw.combine("larger", pool, pool, symmetric=True)
    word, answer = draw.pick((("larger", max(a, b)), ("bigger", max(a, b)), ("smaller", min(a, b))))
    asked = draw.pick(
        (f"Which number is {word}, {a} or {b}?", f"Which is {word}: {a} or {b}?", f"What is {word}, {a} or {b}?")
    )
    return Exercise("larger", asked, "", str(answer), key)


def membership(draw: Draw) -> Exercise:
    """Whether a word is in a list; the word and another one are the combination."""
    (word, other), key = _two(draw, "member", WORDS)
    items = [other]
    length = draw.number(3, 7)
    while len(items) < length:
        item = draw.pick(WORDS)
        if item not in items and item != word:
            items.append(item)
    inside = draw.chance(0.5)
    if inside:
        items[-1] = word
    draw.random.shuffle(items)
    asked = draw.pick(
        (f'Is "{word}" in this list?', f'Does the list contain "{word}"?', f'Is the word "{word}" among these?')
    )
    return Exercise("member", asked, _comma(items), "yes" if inside else "no", key)


MAKERS: tuple[Callable[[Draw], Exercise], ...] = (
    copy_words,
    copy_words,
    copy_digits,
    copy_sentence,
    repeat_word,
    count_items,
    count_items,
    reverse_words,
    reverse_words,
    reverse_letters,
    spell_word,
    sort_numbers,
    sort_numbers,
    sort_words,
    pick_item,
    pick_item,
    next_number,
    next_number,
    uppercase,
    larger,
    membership,
)


def _stopped(instruction: str) -> str:
    return instruction if instruction.endswith("?") else f"{instruction}."


def _line(item: Exercise) -> str:
    """ "Count the words: oak, lamp", "How many items are there? oak, lamp", "Repeat the word "oak" 3 times."."""
    if not item.items:
        return _stopped(item.instruction)
    return f"{item.instruction}{' ' if item.instruction.endswith('?') else ': '}{item.items}"


def single(draw: Draw) -> Document:
    """One exercise and its answer."""
    item = draw.pick(MAKERS)(draw)
    form = draw.number(0, 5)
    if form == 0:
        given, answer = f"{_line(item)}\nAnswer:", f" {item.answer}"
    elif form == 1:
        given, answer = f"Question: {_line(item)}\nAnswer:", f" {item.answer}"
    elif form == 2:
        given, answer = f"Q: {_line(item)}\nA:", f" {item.answer}"
    elif form == 3:
        given, answer = f"{_line(item)}\n", item.answer
    elif item.items:
        given, answer = f"{_stopped(item.instruction)}\nInput: {item.items}\nOutput:", f" {item.answer}"
    else:
        given, answer = f"Task: {_line(item)}\nOutput:", f" {item.answer}"
    return Document(f"sequences.{item.task}", (given, answer), (item.key,))


def several(draw: Draw) -> Document:
    """Two to five exercises of one kind in the same form, each with the words of its own instruction."""
    maker = draw.pick(MAKERS)
    before, after, separator = draw.pick(
        (
            ("Question: ", "\nAnswer:", "\n\n"),
            ("Q: ", "\nA:", "\n"),
            ("", "\nAnswer:", "\n\n"),
            ("Task: ", "\nResult:", "\n\n"),
        )
    )
    parts: list[str] = []
    keys: list[str] = []
    for index in range(draw.number(2, 5)):
        item = maker(draw)
        parts += (f"{separator if index else ''}{before}{_line(item)}{after}", f" {item.answer}")
        keys.append(item.key)
    return Document(f"sequences.{item.task}", tuple(parts), tuple(keys))


def arrows(draw: Draw) -> Document:
    """Shots without any instruction: the first shows what is asked, the rest can be worked out from it."""
    maker = draw.pick((reverse_words, reverse_letters, uppercase, copy_words, count_items))
    between, separator = draw.pick(((" =>", "\n"), (" ->", "\n"), ("\nOutput:", "\n\n")))
    before = "Input: " if between.startswith("\n") else ""
    given = ""
    parts: list[str] = []
    keys: list[str] = []
    for index in range(draw.number(3, 7)):
        item = maker(draw)
        given += f"{separator if index else ''}{before}{item.items}{between}"
        keys.append(item.key)
        if index == 0:
            given += f" {item.answer}"
        else:
            parts += (given, f" {item.answer}")
            given = ""
    return Document(f"sequences.{item.task}", tuple(parts), tuple(keys))


def ask(draw: Draw) -> Question:
    """An exercise for a chat; the sentence is the answer alone where a full sentence would only blur it."""
    item = draw.pick(MAKERS)(draw)
    if item.answer in ("yes", "no"):
        sentence = "Yes, it is." if item.answer == "yes" else "No, it is not."
    elif item.answer.endswith("."):
        sentence = draw.pick(("{}", "Here it is: {}")).format(item.answer)
    else:
        sentence = draw.pick(("{}", "The answer is {}.", "Here it is: {}")).format(item.answer)
    return Question(_line(item), item.answer, sentence, (item.key,))


_RECITE = (
    ("Say this again: ", "\nAgain:"),
    ("Repeat after me: ", "\n"),
    ("Copy the line.\n", "\nCopy:"),
    ("Text: ", "\nThe same text:"),
    ("Input: ", "\nOutput:"),
    ("", "\nOnce more:"),
)


def recite(draw: Draw) -> Document:
    """A long line of unrelated words and numbers, then the same again: every token of the copy can be known."""
    pool = draw.pick((WORDS, LABEL_WORDS, FIRST_NAMES, NUMBERS, DIGITS))
    separator = draw.pick((" ", " ", ", ", "; "))
    while True:
        items = [str(draw.pick(pool)) for _ in range(draw.number(6, 40))]
        key = _copied(items)
        if draw.allows(key):
            break
    line = separator.join(items)
    before, after = draw.pick(_RECITE)
    copy = line if after.endswith("\n") else f" {line}"
    return Document("sequences.recite", (f"{before}{line}{after}", copy), (key,))


def _copied(items: list[str]) -> str:
    """The combination of `copy_words` or `copy_digits` that a line of these begins like."""
    if len(items[0]) == 1:
        return combination_key("copy_digits", "".join(items[:2]), "".join(items[2:4]))
    return combination_key("copy", *items[:2])


FAMILIES = ((4.0, single), (3.0, several), (1.5, arrows), (2.5, recite))
