"""Chats in which every field stands under a marker such as [[ ## answer ## ]].

Decides the fields of a task, how the system turn lists them, and the reply: each output field under its marker, then
[[ ## completed ## ]]. The tasks are questions, passages, records and the steps of an agent that uses tools.
"""

import json
from collections.abc import Callable
from typing import NamedTuple

from scripts.demo_model.corpus import arithmetic, facts, labels, talk
from scripts.demo_model.corpus.chat_turns import Chat
from scripts.demo_model.corpus.draw import Document, Draw
from scripts.demo_model.corpus.extraction import record_fields
from scripts.demo_model.corpus.passages import passage
from scripts.demo_model.corpus.traces import draw_trace

_TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "array": "list[str]"}


class Slot(NamedTuple):
    """A field with its type and its value as text."""

    name: str
    type: str
    value: str


class Task(NamedTuple):
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    keys: tuple[str, ...]
    instruction: str = ""


_QUESTIONS = ("question", "question", "question", "query", "input", "problem", "request")
_ANSWERS = ("answer", "answer", "answer", "response", "result", "output", "final_answer")
_LABELS = ("label", "category", "class", "answer")
_REASONS = ("reasoning", "reasoning", "reasoning", "rationale", "explanation", "thought")
_TEXTS = ("context", "context", "text", "passage", "document")


def text_slot(name: str, value: str) -> Slot:
    return Slot(name, "str", value)


def _reasoned(draw: Draw, reason: str, answer: Slot) -> tuple[Slot, ...]:
    """The answer alone, or after a reason."""
    return (text_slot(draw.pick(_REASONS), reason), answer) if draw.chance(0.5) else (answer,)


def _question_task(draw: Draw) -> Task:
    if draw.chance(0.4):
        asked, item = arithmetic.story_problem(draw)
        answer = Slot(draw.pick(_ANSWERS), draw.pick(("int", "str")), str(item.result))
        reason = f"{item.expression}: {item.steps}. {item.equation}."
        return Task((text_slot(draw.pick(_QUESTIONS), asked),), _reasoned(draw, reason, answer), item.keys)
    one = facts.ask(draw) if draw.chance(0.6) else talk.ask(draw)
    answer = text_slot(draw.pick(_ANSWERS), one.answer)
    return Task((text_slot(draw.pick(_QUESTIONS), one.question),), _reasoned(draw, one.sentence, answer), one.keys)


def _label_task(draw: Draw) -> Task:
    one = labels.ask(draw)
    answer = text_slot(draw.pick(_LABELS), one.answer)
    return Task((text_slot(draw.pick(_QUESTIONS), one.question),), _reasoned(draw, one.sentence, answer), one.keys)


def _passage_task(draw: Draw) -> Task:
    one = passage(draw, 1)
    asked, answer = one.questions[0]
    inputs = (text_slot(draw.pick(_TEXTS), one.text), text_slot(draw.pick(_QUESTIONS[:4]), asked))
    slot = text_slot(draw.pick(_ANSWERS), answer)
    return Task(inputs, _reasoned(draw, f"The text gives the answer: {answer}.", slot), one.keys)


def _record_task(draw: Draw) -> Task:
    text, fields, keys = record_fields(draw)
    outputs = tuple(Slot(one.name, _TYPES[one.type], _plain(one.value)) for one in fields)
    return Task((text_slot(draw.pick(_TEXTS), text),), outputs, keys)


def _plain(value: object) -> str:
    return str(value) if isinstance(value, str | bool) else json.dumps(value)


_AGENT_NAMES = (
    ("next_thought", "next_tool_name", "next_tool_args"),
    ("thought", "tool", "args"),
    ("thought", "tool_name", "tool_args"),
)
_AGENT_TOOLS = (
    '(1) search: finds a text about a subject. It takes {"query": string}.\n'
    '(2) calculate: works out an expression. It takes {"expression": string}.\n'
    "(3) finish: ends the work when all is known. It takes {}.",
    "Tools: search(query: string), calculate(expression: string), finish()",
    "- search, with the argument query\n- calculate, with the argument expression\n- finish, without arguments",
)


def _agent_task(draw: Draw) -> Task:
    """One step of an agent, after the steps that it has done."""
    trace = draw_trace(draw)
    done = draw.number(0, len(trace.steps) - 1)
    written: list[str] = []
    for index, step in enumerate(trace.steps[:done]):
        tool, arguments = _tool_step(step.action)
        shown = (
            ("thought", step.thought),
            ("tool_name", tool),
            ("tool_args", arguments),
            ("observation", step.observation),
        )
        written += [f"[[ ## {name}_{index} ## ]]\n{value}" for name, value in shown]
    tool, arguments = _tool_step(trace.steps[done].action)
    names = _AGENT_NAMES[0] if draw.chance(0.6) else draw.pick(_AGENT_NAMES)
    outputs = (
        text_slot(names[0], trace.steps[done].thought),
        text_slot(names[1], tool),
        Slot(names[2], "dict", arguments),
    )
    inputs = (text_slot("question", trace.question), text_slot("trajectory", "\n\n".join(written)))
    return Task(inputs, outputs, trace.keys, draw.pick(_AGENT_TOOLS))


def _tool_step(action: str) -> tuple[str, str]:
    """Search[Rome] as a tool with its arguments; Finish takes none."""
    name, argument = action[:-1].split("[", 1)
    match name:
        case "Search":
            return "search", json.dumps({"query": argument})
        case "Calculate":
            return "calculate", json.dumps({"expression": argument})
        case _:
            return "finish", "{}"


_TASKS: tuple[Callable[[Draw], Task], ...] = (
    *(_question_task,) * 5,
    *(_label_task,) * 2,
    *(_passage_task,) * 3,
    *(_record_task,) * 2,
    *(_agent_task,) * 3,
)
_COMPLETED = "[[ ## completed ## ]]"
_LIST_HEADS = (
    ("Input fields:", "Output fields:"),
    ("The input fields are:", "The output fields are:"),
    ("Inputs:", "Outputs:"),
    ("You are given these fields:", "You write these fields:"),
)
_FORMS = (
    "All messages have this form:",
    "Every message is written like this:",
    "Use this form:",
    "The form of the messages:",
)
_GOALS = (
    "Your task: from {inputs}, write {outputs}.",
    "Given {inputs}, write {outputs}.",
    "Read {inputs} and fill in {outputs}.",
    "Work out {outputs} from {inputs}.",
)


def _ticked(slots: tuple[Slot, ...]) -> str:
    return ", ".join(f"`{slot.name}`" for slot in slots)


def _system(draw: Draw, task: Task) -> str:
    heads = draw.pick(_LIST_HEADS)
    lines = []
    for head, slots in zip(heads, (task.inputs, task.outputs), strict=True):
        lines.append(head)
        lines += [f"{index}. `{slot.name}` ({slot.type})" for index, slot in enumerate(slots, 1)]
    if draw.chance(0.6):
        lines.append(draw.pick(_FORMS))
        lines += [f"\n[[ ## {slot.name} ## ]]\n{{{slot.name}}}" for slot in task.inputs + task.outputs]
        lines.append(f"\n{_COMPLETED}")
    lines.append(draw.pick(_GOALS).format(inputs=_ticked(task.inputs), outputs=_ticked(task.outputs)))
    if task.instruction:
        lines.append(task.instruction)
    return "\n".join(lines)


def _reminder(draw: Draw, task: Task) -> str:
    """What the user turn says about the reply; sometimes nothing."""
    names = [f"`[[ ## {slot.name} ## ]]`" for slot in task.outputs]
    return draw.pick(
        (
            f"\n\nReply with the output fields: {', then '.join(names)}, and at the end `{_COMPLETED}`.",
            f"\n\nStart with {names[0]} and end with `{_COMPLETED}`.",
            f"\n\nWrite {', '.join(names)} and then `{_COMPLETED}`.",
            "",
        )
    )


def _fields_text(slots: tuple[Slot, ...]) -> str:
    return "\n\n".join(f"[[ ## {slot.name} ## ]]\n{slot.value}" for slot in slots)


def marker_chat(draw: Draw) -> Document:
    """One task: its fields listed, its inputs given, its outputs produced."""
    task = draw.pick(_TASKS)(draw)
    chat = Chat()
    chat.system(_system(draw, task))
    chat.user(_fields_text(task.inputs) + _reminder(draw, task))
    chat.reply(f"{_fields_text(task.outputs)}\n\n{_COMPLETED}")
    chat.add_keys(*task.keys)
    return chat.document("chat.markers")
