"""Rewrites a conversation so that its template shows all of it, for templates that drop or refuse some of its turns.

Decides where the text of such a turn goes, by what template_rules.py finds out. A turn that the template shows is not
changed. Otherwise:

    several turns of system and developer at the start    one of them, or a part of the first user turn
    a later one of system or developer                    a part of the user turn beside it, or a user turn of its own
    two user turns, or two of the assistant               one
    a user turn right after results of calls              a part of the last result
    two calls in one turn                                 a turn for each call, with its result behind it
    a text beside a call, or in the turn before           a turn of its own before the call's, if that is shown,
                                                          with an empty user turn between them if it must be so
    calls and results                                     texts of the assistant and of the user

Knows messages after chat_messages.py, and no template.
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from ramet.runtime.text.template_rules import PLAIN, CallForm, Message, TemplateRules, to_json

SYSTEM_ROLES = ("system", "developer")
BETWEEN = "\n\n"  # stands between the texts of two turns that become one
Kind = tuple[str, bool]  # a turn's role, and whether it has calls
CHAT = ("user", "assistant", "user")
CALLED = ("user", "call", "tool", "assistant", "user")
EMPTY: Message = {"role": "user", "content": ""}


def fitted(turns: list[Message], rules: TemplateRules) -> list[Message]:
    """The conversation in turns whose texts the template shows, as far as it shows texts at all."""
    if any("tool_calls" in turn or turn["role"] == "tool" for turn in turns):
        turns = _with_calls(turns, rules)
    first = next((i for i, turn in enumerate(turns) if turn["role"] not in SYSTEM_ROLES), len(turns))
    groups = _groups(turns[first:], rules)
    lead, rest = turns[:first], [group[0] if len(group) == 1 else joined(group) for group in groups]
    if lead:
        lead, rest = _led(lead, rest, rules)
    return lead + rest


# -- turns of system and developer -------------------------------------------------------------------------------------


def _led(lead: list[Message], rest: list[Message], rules: TemplateRules) -> tuple[list[Message], list[Message]]:
    """The first turns of system or developer, and the remaining turns."""
    roles = [turn["role"] for turn in lead]
    then, later = _end_of(rest), sorted(set(roles[1:]))
    again = later if len(roles) > 2 else ()  # two may be shown, and three not
    if not rules.loses(roles[0], *later, *again, *then, instead=then or ("user",)):
        return lead, rest
    for role in dict.fromkeys(roles):
        if rules.shows(role, *then):
            return [{**joined(lead), "role": role}], rest
    opening = {**joined(lead), "role": "user"}
    if rest and rest[0]["role"] == "user":
        return [], [joined([opening, rest[0]]), *rest[1:]]
    return [], [opening, *rest]


def _end_of(rest: list[Message]) -> tuple[str, ...]:
    """Roles of a short conversation with the same end: some templates put the system text into the last user turn."""
    if not rest:
        return ()
    return ("user",) if rest[-1]["role"] == "user" else ("user", "assistant")


def _lost_systems(roles: set[str], rules: TemplateRules) -> set[str]:
    """Those of these roles, system and developer, whose later turns the template does not show."""
    found = roles.intersection(SYSTEM_ROLES)
    return {role for role in found if rules.loses("user", role, "assistant", role, "user", role, instead=CHAT)}


# -- neighbours --------------------------------------------------------------------------------------------------------


def _groups(turns: list[Message], rules: TemplateRules) -> list[list[Message]]:
    """Each group becomes one turn."""
    kinds = [(turn["role"], "tool_calls" in turn) for turn in turns]
    lost = _lost_systems({role for role, _ in kinds}, rules)
    joins = {pair: _must_join(*pair, rules) for pair in dict.fromkeys(pairwise(kinds))}
    if not lost and not any(joins.values()):
        return [[turn] for turn in turns]
    groups: list[list[Message]] = []
    was_lost, before = False, ("", False)
    for turn, kind in zip(turns, kinds, strict=True):
        is_lost = kind[0] in lost
        if is_lost:
            turn, kind = {**turn, "role": "user"}, ("user", kind[1])
        if (before, kind) not in joins:
            joins[before, kind] = _must_join(before, kind, rules)
        both_users = before[0] == kind[0] == "user"
        if groups and (joins[before, kind] or (both_users and (is_lost or was_lost))):
            role = groups[-1][0]["role"]
            groups[-1].append({**turn, "role": role})
            kind = role, kind[1]
        else:
            groups.append([turn])
        was_lost, before = is_lost, kind
    return groups


def _must_join(before: Kind, turn: Kind, rules: TemplateRules) -> bool:
    """Whether the template does not show two such turns one after the other."""
    match before, turn:
        case ("user", _), ("user", _):
            return rules.loses("user", "user", "assistant", "user", "user", instead=CHAT)
        case ("assistant", True), ("assistant", _):
            return False  # a text would come before the calls that it follows
        case ("assistant", False), ("assistant", True):
            return rules.loses("user", "assistant", *CALLED[1:], instead=CALLED, form=rules.call_form or PLAIN)
        case ("assistant", False), ("assistant", False):
            return rules.loses("user", "assistant", "assistant", "user", instead=CHAT)
        case ("tool", _), ("user", _):
            form = rules.call_form or PLAIN
            return rules.loses("user", "call", "tool", "user", "assistant", "user", instead=CALLED, form=form)
    return False


def joined(turns: list[Message]) -> Message:
    """One turn with the role of the first and the texts, thoughts and calls of all."""
    if len(turns) == 1:
        return turns[0]
    made = {**turns[0], "content": _content([turn["content"] for turn in turns])}
    thoughts = [turn["reasoning_content"] for turn in turns if turn.get("reasoning_content")]
    if thoughts:
        made["reasoning_content"] = BETWEEN.join(thoughts)
    calls = [call for turn in turns if "tool_calls" in turn for call in turn["tool_calls"]]
    if calls:
        made["tool_calls"] = calls
    return made


def _content(contents: list[str | list[Any]]) -> str | list[Any]:
    """A text, or a list of parts in order if there are media."""
    given = [content for content in contents if content]
    if {*map(type, given)} <= {str}:  # without a look at each in Python: there may be thousands
        return BETWEEN.join(map(str, given))
    parts: list[Any] = []
    for content in given:
        parts += [_part(BETWEEN)] if parts else []
        parts += [_part(content)] if isinstance(content, str) else content
    return parts


def _part(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


# -- calls -------------------------------------------------------------------------------------------------------------


def _with_calls(turns: list[Message], rules: TemplateRules) -> list[Message]:
    form = rules.call_form
    if form is None:
        return [_as_text(turn) for turn in turns] if rules.shows(*CHAT) else turns
    turns = form.written(turns)
    if _has_several_calls(turns) and rules.loses("user", "calls", "tool", *CALLED[2:], instead=CALLED, form=form):
        turns = list(_one_by_one(turns))
    if _has_text_before_calls(turns) and (between := _between_text_and_calls(form, rules)) is not None:
        turns = list(_texts_apart(turns, between))
    return turns


def _has_several_calls(turns: list[Message]) -> bool:
    return any(len(turn.get("tool_calls", ())) > 1 for turn in turns)


def _has_text_before_calls(turns: list[Message]) -> bool:
    return any(
        "tool_calls" in turn and (turn["content"] or _is_said(before)) for before, turn in pairwise([{}, *turns])
    )


def _is_said(turn: Message) -> bool:
    """Whether it is a text of the assistant without calls."""
    return turn.get("role") == "assistant" and "tool_calls" not in turn and bool(turn["content"])


def _between_text_and_calls(form: CallForm, rules: TemplateRules) -> list[Message] | None:
    """The turns between a text and the calls that follow it.

    None: one turn has both, because the template shows its text, or shows it in no other way either.
    """
    if rules.shows("user", "said call", *CALLED[2:], form=form):
        return None
    if rules.shows("user", "assistant", *CALLED[1:], form=form):
        return []
    return [EMPTY] if rules.shows("user", "assistant", "empty user", *CALLED[1:], form=form) else None


def _one_by_one(turns: list[Message]) -> Iterator[Message]:
    """Each call as a turn of its own, followed by its results. Results of unknown calls come last."""
    i = 0
    while i < len(turns):
        turn, i = turns[i], i + 1
        calls = turn.get("tool_calls", ())
        if len(calls) < 2:
            yield turn
            continue
        results: dict[str | None, list[Message]] = defaultdict(list)
        known = {call.get("id") for call in calls}
        while i < len(turns) and turns[i]["role"] == "tool":
            called = turns[i].get("tool_call_id")
            results[called if called in known else None].append(turns[i])
            i += 1
        for call in calls:
            yield {**turn, "tool_calls": [call]}
            turn = {"role": "assistant", "content": ""}
            yield from results.pop(call.get("id"), ())
        for others in results.values():
            yield from others


def _text_and_calls(turn: Message) -> list[Message]:
    if "tool_calls" not in turn or not turn["content"]:
        return [turn]
    calls = {"role": "assistant", "content": "", "tool_calls": turn["tool_calls"]}
    return [_without_calls(turn), calls]


def _texts_apart(turns: list[Message], between: list[Message]) -> Iterator[Message]:
    before: Message = {}
    for turn in turns:
        for part in _text_and_calls(turn):
            if "tool_calls" in part and _is_said(before):
                yield from between
            yield part
            before = part


def _as_text(turn: Message) -> Message:
    """The turn as text, for a template that shows neither calls nor results."""
    if turn["role"] == "tool":
        of = f" of {turn['name']}" if turn.get("name") else ""
        return {"role": "user", "content": _content([f"Result{of}:", turn["content"]])}
    if "tool_calls" not in turn:
        return turn
    functions = [call["function"] for call in turn["tool_calls"]]
    calls = [to_json({"name": each["name"], "arguments": each["arguments"]}) for each in functions]
    return {**_without_calls(turn), "content": _content([turn["content"], "\n".join(calls)])}


def _without_calls(turn: Message) -> Message:
    return {name: value for name, value in turn.items() if name != "tool_calls"}
