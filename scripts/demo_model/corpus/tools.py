"""Tool calls in chats, and ReAct traces in plain text.

Decides which tools a chat offers and which calls a request needs. The tools come from `tool_words.py`, the format from
`chat_format.py`, the traces from `traces.py`. A tool with its first argument is a combination (kind "tool").
"""

import json
from typing import NamedTuple

from scripts.demo_model.corpus import arithmetic, talk
from scripts.demo_model.corpus.chat_format import call_text, response_text, system_text
from scripts.demo_model.corpus.chat_turns import SYSTEMS, Chat
from scripts.demo_model.corpus.draw import Document, Draw
from scripts.demo_model.corpus.grammar import with_article
from scripts.demo_model.corpus.tool_words import GROUPS, OPTION_FRAMES, OPTIONAL, RESULTS, Argument, Group
from scripts.demo_model.corpus.traces import TRACES

_GROUP_NAMES = tuple(GROUPS)
_NAMES = {
    name: tuple(f"{verb}_{noun}" for verb in group.verbs for noun in group.nouns) for name, group in GROUPS.items()
}
_NOUNLESS = frozenset(("shop", "convert", "language"))  # their requests do not name the noun


class Tool(NamedTuple):
    """One tool as a chat offers it: its name, its line, and its arguments under the names that it gave them."""

    group: Group
    name: str
    verb: str
    noun: str
    line: str
    arguments: tuple[tuple[str, Argument], ...]
    option: tuple[str, Argument] | None


class Job(NamedTuple):
    """A request with the call that it needs, the result, and the reply after it."""

    request: str
    call: str
    result: str
    reply: str


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _words(tool_frame: str, verb: str, noun: str) -> str:
    """The verb and the noun put into a frame; the arguments' braces stay."""
    text = tool_frame.replace("{verb}", verb).replace("{Verb}", verb.capitalize()).replace("{noun}", noun)
    return text.replace("{article}", with_article(noun)) if "{article}" in text else text


def make_tool(draw: Draw, group: Group, name: str) -> Tool:
    verb, noun = name.replace("_", " ").split(" ", 1)
    used: list[str] = []
    for argument in group.arguments:
        used.append(draw.pick([one for one in argument.names if one not in used]))
    arguments = tuple(zip(used, group.arguments, strict=True))
    written = [f"{one}: {argument.type}" for one, argument in arguments]
    option = None
    if draw.chance(0.25):
        extra = draw.pick(OPTIONAL)
        extra_name = draw.pick(extra.names)
        if extra_name not in used:
            option = (extra_name, extra)
            written.append(f"{extra_name}?: {extra.type}")
    shown = _camel(name) if draw.chance(0.1) else name
    line = f"- {shown}({', '.join(written)})"
    if draw.chance(0.9):
        line += ": " + _words(draw.pick(group.describes), verb, noun)
    return Tool(group, shown, verb, noun, line, arguments, option)


def _said(argument: Argument, value: object) -> str:
    return ("on" if value else "off") if argument.type == "boolean" else str(value)


def job(draw: Draw, tool: Tool, first: object) -> Job:
    """A request for this tool whose first argument is `first`."""
    values = [first, *(draw.pick(argument.pool) for _, argument in tool.arguments[1:])]
    said = [_said(argument, value) for (_, argument), value in zip(tool.arguments, values, strict=True)]
    request = _words(draw.pick(tool.group.requests), tool.verb, tool.noun).format(*said)
    sent = {name: value for (name, _), value in zip(tool.arguments, values, strict=True)}
    if tool.option and draw.chance(0.5):
        name, argument = tool.option
        value = draw.pick(argument.pool)
        written = ("true" if value else "false") if argument.type == "boolean" else str(value)
        request += draw.pick(OPTION_FRAMES).format(name=name, value=written)
        sent[name] = value
    result = draw.pick(RESULTS.get(tool.noun, tool.group.results))
    reply = _words(draw.pick(tool.group.answers), tool.verb, tool.noun).format(*said, r=result)
    return Job(request, call_text(tool.name, sent), _result(draw, result), reply)


def _result(draw: Draw, result: str) -> str:
    """A result as plain text or as a small JSON object."""
    if draw.chance(0.5):
        return result
    return json.dumps({draw.pick(("result", "value", "status", "output")): result})


def drawn_tool(draw: Draw) -> tuple[Tool, object, str]:
    """A tool with a first argument on this draw's side, and their key."""
    group_name = draw.pick(_GROUP_NAMES)
    group = GROUPS[group_name]
    (name, first), key = draw.combine("tool", _NAMES[group_name], group.arguments[0].pool)
    return make_tool(draw, group, name), first, key


def _others(draw: Draw, number: int, tool: Tool | None) -> list[Tool]:
    """Other tools, none of which could serve this one's requests, and no two of them alike."""
    tools: list[Tool] = []
    taken = {tool.noun} if tool else set()
    while len(tools) < number:
        group_name = draw.pick(_GROUP_NAMES)
        group = GROUPS[group_name]
        name = draw.pick(_NAMES[group_name])
        noun = name.split("_", 1)[1].replace("_", " ")
        if noun not in taken and not (tool and group is tool.group and group_name in _NOUNLESS):
            taken.add(noun)
            tools.append(make_tool(draw, group, name))
    return tools


def _offer(draw: Draw, chat: Chat, tools: list[Tool]) -> None:
    """The system turn with these tools in any order, after a plain system text or alone."""
    draw.random.shuffle(tools)
    chat.system(system_text(draw.pick(SYSTEMS) if draw.chance(0.4) else "", [tool.line for tool in tools]))


def _after(draw: Draw, chat: Chat, results: list[str], reply: str) -> None:
    """The results and the reply that tells them."""
    chat.user("\n".join(response_text(result) for result in results))
    chat.reply(reply)


def single_call(draw: Draw) -> Document:
    """One call; then often its result and a reply, and sometimes an ordinary turn."""
    chat = Chat()
    tool, first, key = drawn_tool(draw)
    _offer(draw, chat, [tool, *_others(draw, draw.pick((0, 0, 1, 2, 2, 3, 4)), tool)])
    if draw.chance(0.08):
        chat.exchange(talk.small_talk(draw))
    one = job(draw, tool, first)
    chat.user(one.request)
    chat.reply(one.call)
    if draw.chance(0.5):
        _after(draw, chat, [one.result], one.reply)
        if draw.chance(0.2):
            chat.exchange(talk.question(draw))
    chat.add_keys(key)
    return chat.document("tools.single")


_ALSO = ("{} {}", "{} {}", "{} Then: {}", "{}\n{}", "Two things. {} {}", "{} And one more thing: {}")


def parallel_calls(draw: Draw) -> Document:
    """Two requests in one turn, for one tool or for two, and both calls in one reply."""
    chat = Chat()
    tool, first, key = drawn_tool(draw)
    if draw.chance(0.5) and not draw.held_out:
        other, second, other_key = tool, *_another_first(draw, tool, first)
        tools = [tool]
    else:
        other, second, other_key = drawn_tool(draw)
        while other.noun == tool.noun or other.group is tool.group:
            other, second, other_key = drawn_tool(draw)
        tools = [tool, other]
    if draw.chance(0.4):
        tools += [more for more in _others(draw, 1, tool) if more.group is not other.group]
    _offer(draw, chat, tools)
    jobs = [job(draw, tool, first), job(draw, other, second)]
    chat.user(draw.pick(_ALSO).format(jobs[0].request, jobs[1].request))
    chat.reply("\n".join(one.call for one in jobs))
    if draw.chance(0.5):
        _after(draw, chat, [one.result for one in jobs], " ".join(one.reply for one in jobs))
    chat.add_keys(key, other_key)
    return chat.document("tools.parallel")


def _another_first(draw: Draw, tool: Tool, first: object) -> tuple[object, str]:
    """A second first argument for the same tool; its values are too few to ask for held-out ones."""
    name = f"{tool.verb}_{tool.noun.replace(' ', '_')}"
    while True:
        (_, value), key = draw.combine("tool", (name,), tool.group.arguments[0].pool)
        if value != first:
            return value, key


def no_call(draw: Draw) -> Document:
    """Tools are there, but the user talks or asks what the model knows."""
    chat = Chat()
    _offer(draw, chat, _others(draw, draw.number(1, 4), None))
    chat.exchange((talk.question if draw.chance(0.6) else talk.small_talk)(draw))
    return chat.document("tools.none")


_SORRY = ("I am sorry, I cannot {}. I have no tool for that.", "I cannot {}. No tool here does that.")


def missing_tool(draw: Draw) -> Document:
    """The request needs a tool that is not offered."""
    chat = Chat()
    tool, first, key = drawn_tool(draw)
    others = [other for other in _others(draw, draw.number(1, 3), tool) if other.group is not tool.group]
    _offer(draw, chat, others or _others(draw, 1, tool))
    chat.user(job(draw, tool, first).request)
    chat.reply(draw.pick(_SORRY).format(_words(tool.group.cannot, tool.verb, tool.noun)))
    chat.add_keys(key)
    return chat.document("tools.missing")


_CALCULATORS = (
    ("add", "(a: integer, b: integer): Adds two numbers", ("a", "b")),
    ("add_numbers", "(x: integer, y: integer): The sum of two numbers", ("x", "y")),
    ("sum", "(first: number, second: number): The sum of two numbers", ("first", "second")),
    ("calculate", "(expression: string): Works out an expression", ("expression",)),
    ("calculator", "(expression: string): A calculator", ("expression",)),
    ("compute", "(input: string): Computes a result", ("input",)),
)
_SUM_REQUESTS = (
    "What is {} + {}?",
    "Add {} and {}.",
    "Use the tool to add {} and {}.",
    "Please work out {} + {}.",
    "How much is {} plus {}?",
)


def calculator_call(draw: Draw) -> Document:
    """A sum that a tool works out, since one is there."""
    chat = Chat()
    a, b, key = arithmetic.sum_pair(draw)
    name, rest, names = draw.pick(_CALCULATORS)
    tools = [f"- {name}{rest}", *(tool.line for tool in _others(draw, draw.number(0, 2), None))]
    draw.random.shuffle(tools)
    chat.system(system_text(draw.pick(SYSTEMS) if draw.chance(0.4) else "", tools))
    chat.user(draw.pick(_SUM_REQUESTS).format(a, b))
    arguments = {names[0]: a, names[1]: b} if len(names) == 2 else {names[0]: f"{a} + {b}"}
    chat.reply(call_text(name, arguments))
    if draw.chance(0.6):
        _after(
            draw, chat, [str(a + b)], draw.pick(("{} + {} is {}.", "The sum of {} and {} is {}.")).format(a, b, a + b)
        )
    chat.add_keys(key)
    return chat.document("tools.calculator")


FAMILIES = (
    (10, single_call),
    (3, parallel_calls),
    (2, no_call),
    (2, missing_tool),
    (1.5, calculator_call),
    *TRACES,
)
