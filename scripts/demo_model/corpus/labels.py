"""Labels in context: short texts with their labels, none to fourteen before the last one.

Decides the label words, the order of classes, the layout and what of it can be inferred; the texts come from
label_texts. Mostly the label words are drawn at random for each document, so that only the shots can tell which word
stands for which class. A label is a produced part once it follows from what stands before it: its class was labeled
already, or it is the last word left of those that the header states.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from scripts.demo_model.corpus.draw import Document, Draw, Question, combination_key
from scripts.demo_model.corpus.label_texts import SENTIMENT, SIMPLE_TASKS, TOPIC, Task, TextSource
from scripts.demo_model.corpus.words import LABEL_WORDS

LETTERS = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
DIGITS = tuple("0123456789")
SHOT_COUNTS = (1, 2, 3, 3, 4, 4, 4, 5, 5, 5, 5, 6, 6, 7, 8)
_TASK_WHEEL: tuple[Task, ...] = (SENTIMENT,) * 4 + (TOPIC,) * 4 + SIMPLE_TASKS


@dataclass(frozen=True)
class Layout:
    """Where text and label stand. The tags {text} and {label} in `before` and `between` are the task's words."""

    before: str
    between: str
    separator: str


LAYOUTS = (
    Layout("{text}: ", "\n{label}:", "\n\n"),
    Layout("{text}: ", "\n{label}:", "\n\n"),
    Layout("{text}: ", "\n{label}:", "\n"),
    Layout("Text: ", "\nLabel:", "\n\n"),
    Layout("Text: ", "\nLabel:", "\n"),
    Layout("Input: ", "\nOutput:", "\n\n"),
    Layout("Input: ", "\nOutput:", "\n"),
    Layout("Q: ", "\nA:", "\n\n"),
    Layout("Q: ", "\nA:", "\n"),
    Layout("", " =>", "\n"),
    Layout("", " =>", "\n"),
    Layout("", " ->", "\n"),
    Layout("", "\nLabel:", "\n\n"),
    Layout("", "\n{label}:", "\n\n"),
    Layout("- ", " :", "\n"),
    Layout('"', '" =', "\n"),
    Layout("Example: ", "\nClass:", "\n\n"),
    Layout("{text}: ", " {label}:", "\n"),
)
# {words} is "lamp or river".
STATING_HEADERS = (
    "Label each text as {words}.",
    "Classify each text as {words}.",
    "Each text is {words}.",
    "Answer with {words}.",
    "Mark each line as {words}.",
    "Say {words} for each text.",
    "The labels are {words}.",
    "Decide between the labels: {words}.",
    "Is it {words}? Follow the examples.",
    "Use the label {words}, as the examples show.",
)
PLAIN_HEADERS = (
    "Label each text like the examples.",
    "Give each text its label.",
    "Continue in the same way.",
    "Learn the labels from the examples.",
    "Here are some texts with labels.",
)
MEANING_HEADERS = (
    "Write {0} for {1}",
    "Label {1} as {0}",
    "Say {0} for {1}",
    "Use {0} for {1}",
)


@dataclass(frozen=True)
class Labeling:
    """The classes of one document with their words; `header` is "" or opens the document."""

    names: tuple[str, ...]
    sources: tuple[TextSource, ...]
    words: tuple[str, ...]
    keys: tuple[str, ...]
    header: str
    states_words: bool
    tells_meaning: bool


def options(words: Sequence[str]) -> str:
    """ "lamp or river", "lamp, river or oak"."""
    return f"{', '.join(words[:-1])} or {words[-1]}"


def label_words(draw: Draw, count: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Different words to stand for classes, every pair on this draw's side of the split, and the pairs' keys."""
    roll = draw.random.random()
    pool = LETTERS if roll < 0.05 else DIGITS if roll < 0.07 else LABEL_WORDS
    (first, second), key = draw.combine("labels", pool, pool, symmetric=True)
    while first == second:
        (first, second), key = draw.combine("labels", pool, pool, symmetric=True)
    words, keys = [first, second], [key]
    while len(words) < count:
        word = draw.pick(pool)
        pairs = [combination_key("labels", *sorted((word, other))) for other in words]
        if word not in words and all(draw.allows(pair) for pair in pairs):
            words.append(word)
            keys += pairs
    return tuple(words), tuple(keys)


def _classes(draw: Draw, task: Task, most: int) -> tuple[tuple[str, TextSource], ...]:
    """Two classes of the task, of topics sometimes three or four, in random order."""
    count = 2
    if len(task.classes) > 2 and most > 2 and not draw.held_out and draw.chance(0.2):
        count = draw.number(3, min(4, most))
    return tuple(draw.sample(task.classes, count))


def _header(draw: Draw, words: tuple[str, ...], states_words: bool) -> str:
    if states_words:
        return draw.pick(STATING_HEADERS).format(words=options(draw.sample(words, len(words))))
    return draw.pick(PLAIN_HEADERS) if draw.chance(0.3) else ""


def _meaning_header(draw: Draw, names: tuple[str, ...], words: tuple[str, ...]) -> str:
    """ "Write lamp for positive and river for negative."."""
    opening = draw.pick(MEANING_HEADERS)
    rest = opening.split(" ", 1)[1]
    told = [
        (opening if index == 0 else rest).format(word, name) for index, (word, name) in enumerate(zip(words, names))
    ]
    return f"{', '.join(told[:-1])} and {told[-1]}."


def random_labeling(draw: Draw, task: Task, shots: int, five_shot: bool = False) -> Labeling:
    """Label words that mean nothing before the shots; with a single shot the header must state them."""
    classes = _classes(draw, task, 2 if five_shot else shots)
    names, sources = tuple(name for name, _ in classes), tuple(source for _, source in classes)
    words, keys = label_words(draw, len(classes))
    if not five_shot and draw.chance(0.06):
        return Labeling(names, sources, words, keys, _meaning_header(draw, names, words), True, True)
    states_words = shots < 2 or draw.chance(0.35)
    return Labeling(names, sources, words, keys, _header(draw, words, states_words), states_words, False)


def natural_labeling(draw: Draw, task: Task, shots: int) -> Labeling:
    """The classes' own names, now and then the wrong way round."""
    classes = _classes(draw, task, shots)
    names, sources = tuple(name for name, _ in classes), tuple(source for _, source in classes)
    swapped = shots > 1 and draw.chance(0.3)
    words = names[1:] + names[:1] if swapped else names
    states_words = shots < 2 or draw.chance(0.5)
    header = _header(draw, words, states_words)
    return Labeling(names, sources, words, (), header, states_words, states_words and not swapped)


def _order(draw: Draw, num_classes: int, shots: int, at_least: int) -> list[int]:
    """The class of each shot and of the last text; every class is shown `at_least` times before the last text."""
    order = list(range(num_classes)) * at_least
    order = order[:shots] + [draw.number(0, num_classes - 1) for _ in range(shots - len(order))]
    draw.random.shuffle(order)
    return [*order, draw.number(0, num_classes - 1)]


def _document(draw: Draw, family: str, task: Task, labeling: Labeling, order: list[int]) -> Document:
    layout = draw.pick(LAYOUTS)
    text_tag, label_tag = draw.pick(task.tags)
    before = layout.before.format(text=text_tag)
    between = layout.between.format(label=label_tag)
    gap = layout.separator if draw.chance(0.5) else "\n"
    given = labeling.header + gap if labeling.header else ""
    parts: list[str] = []
    keys = list(labeling.keys)
    seen: set[int] = set()
    for index, position in enumerate(order):
        text, key = labeling.sources[position](draw)
        if key:
            keys.append(key)
        given += f"{layout.separator if index else ''}{before}{text}{between}"
        last_left = labeling.states_words and len(seen) == len(labeling.words) - 1
        if labeling.tells_meaning or position in seen or last_left:
            parts += (given, f" {labeling.words[position]}")
            given = ""
        else:
            given += f" {labeling.words[position]}"
        seen.add(position)
    return Document(family, tuple(parts), tuple(keys))


def zero_shot(draw: Draw, task: Task | None = None) -> Document:
    """One question of a class by its own name, with all names stated."""
    question, text, name, keys, tags = _asked(draw, task)
    form = draw.number(0, 3)
    text_tag, label_tag = tags
    if form == 0:
        given = f"{question}\n{text_tag}: {text}\n{label_tag}:"
    elif form == 1:
        given = f'Question: {question} "{text}"\nAnswer:'
    elif form == 2:
        given = f"{text_tag}: {text}\n{question}\nAnswer:"
    else:
        given = f"Q: {question} {text}\nA:"
    return Document("labels.zero_shot", (given, f" {name}"), keys)


def _asked(draw: Draw, task: Task | None) -> tuple[str, str, str, tuple[str, ...], tuple[str, str]]:
    """A question, the text, the class's name, the keys and the tags. Digits cannot be held out, so they only train."""
    task = task or draw.pick(_TASK_WHEEL[:-1] if draw.held_out else _TASK_WHEEL)
    classes = task.classes
    if len(classes) > 2:
        classes = tuple(draw.sample(classes, draw.pick((2, 2, 3, 4, 5))))
    name, source = draw.pick(classes)
    text, key = source(draw)
    question = draw.pick(task.asks).format(options=options([name for name, _ in classes]))
    return question, text, name, (key,) if key else (), draw.pick(task.tags)


def few_shot(draw: Draw, shots: int | None = None, task: Task | None = None) -> Document:
    """Labeled texts and one more to label; mostly three to eight shots with random label words."""
    if shots is None:
        shots = draw.pick(SHOT_COUNTS)
    if shots == 0:
        return zero_shot(draw, task)
    task = task or draw.pick(_TASK_WHEEL)
    if draw.held_out or draw.chance(0.78):
        labeling = random_labeling(draw, task, shots)
    else:
        labeling = natural_labeling(draw, task, shots)
    order = _order(draw, len(labeling.words), shots, at_least=1)
    return _document(draw, f"labels.few_shot.{task.name}", task, labeling, order)


def many_queries(draw: Draw) -> Document:
    """Eight to fourteen texts with random label words, nearly all of them to be labeled: these teach most a token."""
    task = draw.pick(_TASK_WHEEL)
    shots = draw.number(7, 13)
    labeling = random_labeling(draw, task, shots)
    order = _order(draw, len(labeling.words), shots, at_least=1)
    return _document(draw, f"labels.many.{task.name}", task, labeling, order)


def five_shot_prompt(draw: Draw, task: Task | None = None) -> Document:
    """What the evaluation asks: five shots of two classes under random words, each class shown at least twice."""
    task = task or draw.pick(_TASK_WHEEL)
    labeling = random_labeling(draw, task, 5, five_shot=True)
    return _document(draw, f"labels.five_shot.{task.name}", task, labeling, _order(draw, 2, 5, at_least=2))


def ask(draw: Draw) -> Question:
    """A question of class by its own name, for chats."""
    question, text, name, keys, _ = _asked(draw, None)
    sentence = draw.pick(("It is {}.", "The answer is {}.", "The label is {}.")).format(name)
    return Question(f'{question} "{text}"' if draw.chance(0.7) else f"{question}\n{text}", name, sentence, keys)


FAMILIES = ((6.0, few_shot), (6.0, many_queries), (1.5, five_shot_prompt), (1.5, zero_shot))
