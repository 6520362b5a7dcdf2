"""ReAct traces in plain text: Thought and Action are produced, Observation is given, Finish ends the trace.

Decides the steps of a trace: a search in a text about the world or about an invented person, a search in two hops, or a
calculation. A trace may stand after one or two whole traces.
"""

from collections.abc import Callable
from typing import NamedTuple

from scripts.demo_model.corpus import arithmetic, facts
from scripts.demo_model.corpus.draw import Document, Draw
from scripts.demo_model.corpus.people import company, person, record
from scripts.demo_model.corpus.relations import RELATIONS
from scripts.demo_model.corpus.telling import about, answer_text, question_text


class Step(NamedTuple):
    thought: str
    action: str
    observation: str  # empty after Finish


class Trace(NamedTuple):
    question: str
    steps: tuple[Step, ...]
    keys: tuple[str, ...]


_SEARCH_THOUGHTS = (
    "I need to search for {}.",
    "I should look up {}.",
    "I will search for {}.",
    "First I look for {}.",
    "I need to find out about {}.",
)
_FINISH_THOUGHTS = (
    "The text gives the answer: {}.",
    "The text says it: {}.",
    "Now I know the answer: {}.",
    "I have found the answer: {}.",
    "This is the answer: {}.",
)
_WORKED_OUT_THOUGHTS = (
    "The result is {}.",
    "Now I know the result: {}.",
    "The answer is {}.",
    "So the answer is {}.",
)
_CALCULATE_THOUGHTS = (
    "I need to calculate {}.",
    "I have to work out {}.",
    "I should calculate {}.",
    "This is a calculation: {}.",
)


def _search(draw: Draw, what: str, observation: str, called: str | None = None) -> Step:
    """A search for `what`, which the thought may call by another form, such as with its article."""
    return Step(draw.pick(_SEARCH_THOUGHTS).format(called or what), f"Search[{what}]", observation)


def _finish(draw: Draw, answer: str, thoughts: tuple[str, ...] = _FINISH_THOUGHTS) -> Step:
    return Step(draw.pick(thoughts).format(answer), f"Finish[{answer}]", "")


def _world_trace(draw: Draw) -> Trace:
    """A fact about the world; the text found says it in a sentence."""
    relation = RELATIONS[draw.pick(_SEARCHED)]
    one = facts.ask_about(draw, relation)
    item = one.keys[0].split("|")[2]
    search = _search(draw, item, one.sentence, relation.facts[item].fields["x"])
    return Trace(one.question, (search, _finish(draw, one.answer)), one.keys)


_SEARCHED = (
    "capital",
    "capital",
    "currency",
    "language",
    "continent",
    "symbol",
    "atomic number",
    "animal class",
    "state",
)


def _record_trace(draw: Draw) -> Trace:
    """Something about an invented record that only the text found can tell."""
    one = record(draw)
    told = draw.sample(_PLAIN[one.kind], draw.number(1, 3))
    asked = draw.pick(told)
    called = one.name if one.kind == "person" else f"the {one.name}"
    search = _search(draw, one.name, about(draw, one, list(told)), called)
    steps = (search, _finish(draw, answer_text(one, asked)))
    return Trace(question_text(draw, one._replace(short=one.name), asked), steps, one.keys)


_PLAIN = {
    "person": (
        "age",
        "city",
        "job",
        "company",
        "pet",
        "pet_name",
        "colour",
        "food",
        "instrument",
        "language",
        "start_year",
    ),
    "product": ("price", "material", "weight", "shop_city", "warranty", "rating", "year", "code"),
    "event": ("date", "time", "place", "event_city", "fee", "guests", "host"),
}
_OWNED = (
    ("the owner of {}", "{} belongs to {}."),
    ("the head of {}", "The head of {} is {}."),
    ("the founder of {}", "{} was founded by {}."),
    ("the boss of {}", "The boss of {} is {}."),
)
_HOP_QUESTIONS = (
    ("city", ("In which city does {} live?", "Where does {} live?")),
    ("age", ("How old is {}?", "What is the age of {}?")),
    ("pet", ("Which pet does {} have?", "What pet does {} have?")),
    ("instrument", ("Which instrument does {} play?",)),
    ("language", ("Which language is {} learning?",)),
    ("birth_month", ("In which month was {} born?",)),
)


def _two_hop_trace(draw: Draw) -> Trace:
    """A company leads to a person, the person to the answer."""
    one = person(draw)
    firm = company(draw)
    who, said = draw.pick(_OWNED)
    attribute, questions = draw.pick(_HOP_QUESTIONS)
    steps = (
        _search(draw, firm, said.format(firm, one.name)),
        Step(
            f"{_opening(who.format(firm))} is {one.name}. {draw.pick(('Now I search for', 'I look up'))} {one.name}.",
            f"Search[{one.name}]",
            about(draw, one, [attribute]),
        ),
        _finish(draw, answer_text(one, attribute)),
    )
    return Trace(draw.pick(questions).format(who.format(firm)), steps, one.keys)


def _opening(text: str) -> str:
    return text[0].upper() + text[1:]


def _calculation_trace(draw: Draw) -> Trace:
    if draw.chance(0.5):
        question, item = arithmetic.story_problem(draw)
    else:
        item = arithmetic.exercise(draw)
        question = f"What is {item.expression}?"
    step = Step(
        draw.pick(_CALCULATE_THOUGHTS).format(item.expression), f"Calculate[{item.expression}]", str(item.result)
    )
    return Trace(question, (step, _finish(draw, str(item.result), _WORKED_OUT_THOUGHTS)), item.keys)


_MAKERS: tuple[Callable[[Draw], Trace], ...] = (
    *(_world_trace,) * 3,
    *(_record_trace,) * 3,
    *(_two_hop_trace,) * 2,
    *(_calculation_trace,) * 3,
)
_HEADERS = (
    "Answer in turns of Thought, Action and Observation. Actions: Search[what], Calculate[how], Finish[answer].\n\n",
    "Actions are Search[what], Calculate[expression] and Finish[answer].\n\n",
    "Solve the question step by step. You may Search[what], Calculate[expression] or Finish[answer].\n\n",
    "",
    "",
    "",
)


def _written(trace: Trace, numbered: bool) -> list[str]:
    """Given and produced parts in turn, from the question on."""
    parts = []
    given = f"Question: {trace.question}\n"
    for index, step in enumerate(trace.steps, 1):
        number = f" {index}" if numbered else ""
        parts += [f"{given}Thought{number}:", f" {step.thought}\nAction{number}: {step.action}"]
        given = f"\nObservation{number}: {step.observation}\n"
    return parts


def _document(draw: Draw, traces: list[Trace]) -> Document:
    numbered = draw.chance(0.75)
    parts: list[str] = []
    for index, trace in enumerate(traces):
        written = _written(trace, numbered)
        written[0] = (draw.pick(_HEADERS) if index == 0 else "\n\n") + written[0]
        parts += written
    return Document("react", tuple(parts), tuple(key for trace in traces for key in trace.keys))


def draw_trace(draw: Draw) -> Trace:
    return draw.pick(_MAKERS)(draw)


def react(draw: Draw) -> Document:
    return _document(draw, [draw_trace(draw)])


def react_after_examples(draw: Draw) -> Document:
    return _document(draw, [draw_trace(draw) for _ in range(draw.number(2, 3))])


TRACES = ((5, react), (1.5, react_after_examples))
