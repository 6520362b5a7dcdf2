"""What the programs of section 6 of the SGLang paper say, made from a seed: our own texts of their lengths and sharing.

A trace is a list with one entry for each program. Lengths are tokens, which are words here (words.py), and never
scaled: a smaller run has fewer programs. The texts mean nothing, so nothing is copied of the data sets that the paper
used; what is taken from them is how long their parts are and who shares them. `*_output` is how much a model writes.
"""

import random
from dataclasses import dataclass

from ramet.bench.programs.words import text


@dataclass(frozen=True)
class Shot:
    """One call: a head that others share, and a question. With choices one of them is selected instead of writing."""

    head: str
    question: str
    output: int
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Move:
    thought: str
    action: str
    observation: str


@dataclass(frozen=True)
class Agent:
    """Before each move and at the end the model writes; what was recorded stands in the place of what it wrote."""

    head: str
    question: str
    moves: tuple[Move, ...]
    answer_output: int


@dataclass(frozen=True)
class Chains:
    """Several solutions of one question, each elicited in another way, then one answer made of all."""

    question: str
    hints: tuple[str, ...]
    outputs: tuple[int, ...]  # one for each hint
    merge: str
    answer_output: int


@dataclass(frozen=True)
class Tree:
    """A tree of thoughts: each of `outputs` is a level, with one length for each thought on it."""

    question: str
    branch: int
    asks: tuple[str, ...]  # of each level
    outputs: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Outline:
    """A skeleton of an answer, written in one call, whose points are then expanded beside each other."""

    head: str  # what a skeleton is, with an example
    question: str
    skeleton_output: int
    ask: str  # before each point
    points: tuple[str, ...]  # as recorded: they stand in the place of what the skeleton says
    outputs: tuple[int, ...]  # one for each point


@dataclass(frozen=True)
class Topic:
    """A skeleton of tips, written one after the other, each of which is expanded by a nested program."""

    head: str
    topic: str
    tip_outputs: tuple[int, ...]
    shots: str  # what the nested program begins with
    expansion_outputs: tuple[int, ...]


@dataclass(frozen=True)
class Article:
    """Judged on several dimensions at once, then graded."""

    text: str
    dimensions: tuple[str, ...]
    outputs: tuple[int, ...]
    grade: str
    grade_output: int


@dataclass(frozen=True)
class TracePage:
    """A long page whose fields are written one after the other."""

    text: str
    fields: tuple[str, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class Documents:
    """One question over the segments of a paper, which need not attend to each other."""

    segments: tuple[str, ...]
    question: str
    output: int


@dataclass(frozen=True)
class TraceTurn:
    said: str
    output: int


Chat = tuple[TraceTurn, ...]

SEGMENT, NUM_SEGMENTS = 1200, 10
REGEX_PAGE = 500


def _draw(name: str, seed: int) -> random.Random:
    return random.Random(f"{name} {seed}")


def _between(draw: random.Random, least: int, most: int) -> str:
    return text(draw, draw.randint(least, most))


# -- few shots --------------------------------------------------------------------------------------------------------


def mmlu(num: int, seed: int = 0) -> list[Shot]:
    """5 shots of one of ten subjects, one token out; subjects come in any order."""
    draw = _draw("mmlu", seed)
    heads = [_between(draw, 350, 1500) for _ in range(10)]
    shots = [Shot(heads[i % 10], _between(draw, 40, 200), 1) for i in range(num)]
    draw.shuffle(shots)
    return shots


def hellaswag(num: int, seed: int = 0) -> list[Shot]:
    """20 shots, one of four endings is selected."""
    draw = _draw("hellaswag", seed)
    head = text(draw, 1700)
    return [Shot(head, _between(draw, 40, 80), 0, tuple(_between(draw, 10, 40) for _ in range(4))) for _ in range(num)]


def gsm8k(num: int, seed: int = 0) -> list[Shot]:
    draw = _draw("gsm8k", seed)
    head = text(draw, 850)
    return [Shot(head, _between(draw, 40, 120), draw.randint(60, 200)) for _ in range(num)]


def retrieval(num: int, seed: int = 0) -> list[Shot]:
    """A compiled pipeline of demonstrations, then three passages of its own and a question."""
    draw = _draw("retrieval", seed)
    head = text(draw, 1400)
    return [Shot(head, _between(draw, 300, 520), draw.randint(40, 90)) for _ in range(num)]


def in_batch(num: int, seed: int = 0) -> list[Shot]:
    """32 prompts share a prefix that no one has computed when they arrive together."""
    draw = _draw("in batch", seed)
    heads = [text(draw, 1024) for _ in range(-(-num // 32))]
    return [Shot(heads[i // 32], text(draw, 128), 1) for i in range(num)]


def shared_and_own(num: int, seed: int = 0, *, shared: int = 256, own: int = 256) -> list[Shot]:
    """Figure 12, left, and section 6.4.4: subtrees of 8 prompts, 256 tokens shared, 256 not, 256 out."""
    draw = _draw(f"shared {shared} {own}", seed)
    heads = [text(draw, shared) for _ in range(-(-num // 8))]
    shots = [Shot(heads[i // 8], text(draw, own), 256) for i in range(num)]
    draw.shuffle(shots)
    return shots


def articles(num: int, seed: int = 0, *, questions: int = 2) -> list[Shot]:
    """Figure 12, right: `num` articles of 1,000 tokens with as many questions of 256 each. `num` counts articles."""
    draw = _draw(f"articles {questions}", seed)
    return [
        Shot(head, text(draw, 256), 256) for head in [text(draw, 1000) for _ in range(num)] for _ in range(questions)
    ]


def unshared(num: int, seed: int = 0) -> list[Shot]:
    """Nothing in common: what is left is what the cache costs."""
    draw = _draw("unshared", seed)
    return [Shot("", text(draw, 512), 256) for _ in range(num)]


# -- agents -----------------------------------------------------------------------------------------------------------

MOVES = ((2, 2), (3, 37), (4, 19), (5, 42))  # number of moves, per cent of the agents


def react(num: int, seed: int = 0) -> list[Agent]:
    """Questions that take several searches; observations are 99 tokens on average and 392 at most."""
    draw = _draw("react", seed)
    head = text(draw, 1650)
    return [Agent(head, _between(draw, 10, 40), _moves(draw), 36) for _ in range(num)]


def _moves(draw: random.Random) -> tuple[Move, ...]:
    counts, weights = zip(*MOVES, strict=True)
    return tuple(
        Move(_between(draw, 14, 42), _between(draw, 4, 10), text(draw, min(392, 1 + int(draw.expovariate(0.01)))))
        for _ in range(draw.choices(counts, weights)[0])
    )


FUNCTIONS = ((75, 2), (150, 20), (30, 6), (400, 10), (240, 5))  # tokens of its constant text, tokens out


def generative_agents(num: int, seed: int = 0) -> list[Shot]:
    """Events of a game with 25 persons, one after the other: a function's text, then what just happened.

    The first function, how much an event matters to somebody, begins with who that is.
    """
    draw = _draw("generative agents", seed)
    constants = [text(draw, size) for size, _ in FUNCTIONS]
    persons = [_between(draw, 120, 200) for _ in range(25)]
    events = []
    for _ in range(num):
        function = draw.randrange(len(FUNCTIONS))
        person = draw.choice(persons) if function == 0 else ""
        events.append(Shot(person + constants[function], _between(draw, 10, 40), FUNCTIONS[function][1]))
    return events


# -- reasoning --------------------------------------------------------------------------------------------------------


def multi_chain(num: int, seed: int = 0) -> list[Chains]:
    draw = _draw("multi-chain", seed)
    hints, merge = tuple(text(draw, 10) for _ in range(5)), text(draw, 10)
    return [
        Chains(_between(draw, 50, 110), hints, tuple(draw.randint(90, 220) for _ in hints), merge, 16)
        for _ in range(num)
    ]


def tree_of_thought(num: int, seed: int = 0, *, branch: int = 2, depth: int = 4) -> list[Tree]:
    """30 thoughts a question: 2 + 4 + 8 + 16."""
    draw = _draw("tree of thought", seed)
    asks = tuple(text(draw, 10) for _ in range(depth))
    return [
        Tree(
            _between(draw, 50, 110),
            branch,
            asks,
            tuple(tuple(draw.randint(100, 256) for _ in range(branch**level)) for level in range(1, depth + 1)),
        )
        for _ in range(num)
    ]


def skeleton_of_thought(num: int, seed: int = 0) -> list[Outline]:
    """3 to 8 points of 3 to 6 tokens, each of which becomes a short paragraph."""
    draw = _draw("skeleton of thought", seed)
    head, ask = text(draw, 240), text(draw, 30)
    outlines = []
    for _ in range(num):
        points = tuple(_between(draw, 3, 6) for _ in range(draw.randint(3, 8)))
        outputs = tuple(draw.randint(30, 80) for _ in points)
        outlines.append(Outline(head, _between(draw, 10, 40), 7 * len(points), ask, points, outputs))
    return outlines


# -- writing ----------------------------------------------------------------------------------------------------------


def tips(num: int, seed: int = 0) -> list[Topic]:
    draw = _draw("tips", seed)
    head, shots = text(draw, 22), text(draw, 372)
    outputs = lambda least, most: tuple(draw.randint(least, most) for _ in range(5))  # noqa: E731
    return [Topic(head, _between(draw, 4, 12), outputs(8, 24), shots, outputs(64, 128)) for _ in range(num)]


def judge(num: int, seed: int = 0) -> list[Article]:
    draw = _draw("judge", seed)
    dimensions, grade = tuple(_between(draw, 46, 89) for _ in range(6)), text(draw, 30)
    return [
        Article(_between(draw, 769, 1263), dimensions, tuple(draw.randint(120, 256) for _ in dimensions), grade, 2)
        for _ in range(num)
    ]


# -- structured, long, chats ------------------------------------------------------------------------------------------


def long_json(num: int, seed: int = 0) -> list[TracePage]:
    draw = _draw("long json", seed)
    fields = tuple(text(draw, 6) for _ in range(4))
    return [TracePage(text(draw, 10000), fields, (8, 8, 8, 24)) for _ in range(num)]


def pages(num: int, seed: int = 0) -> list[str]:
    """What a regular expression's or a schema's fields are to be found in."""
    draw = _draw("pages", seed)
    return [text(draw, REGEX_PAGE) for _ in range(num)]


def names(num: int, seed: int = 0) -> list[str]:
    draw = _draw("names", seed)
    return [text(draw, 2) for _ in range(num)]


def documents(num: int, seed: int = 0) -> list[Documents]:
    """One paper, ten questions; more than ten come from further papers."""
    draw = _draw("documents", seed)
    papers = [tuple(text(draw, SEGMENT) for _ in range(NUM_SEGMENTS)) for _ in range(-(-num // 10))]
    return [Documents(papers[i // 10], _between(draw, 10, 30), 16) for i in range(num)]


def chats(num: int, seed: int = 0, *, long: bool = False) -> list[Chat]:
    draw = _draw(f"chats {long}", seed)
    least, most = (256, 512) if long else (4, 8)
    return [tuple(TraceTurn(_between(draw, 256, 512), draw.randint(least, most)) for _ in range(4)) for _ in range(num)]
