"""Which of its tools an output may call, which it must, and the constraint that holds it to them.

Without a constraint of calls an output calls what the model likes. There is one where a call is forced, where a tool
that may be called is strict, and where the answer has a format, which a call has not.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Many
from typing import Any, NamedTuple

from msgspec.structs import replace

from ramet.ipc.params import quoted, shown
from ramet.ipc.spec import Constraint, ConstraintKind, RequestSpec
from ramet.runtime import exact_json
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.constraints import of_tag
from ramet.runtime.intake.messages import AllowedTools, NamedChoice
from ramet.runtime.intake.parsers.structure import Part, json_of
from ramet.runtime.intake.parsers.tools import Offer, ToolParser, Unwritable, tool_parser_class

# fields that say what the answer is; a call in its place has arguments of its own schema
MAX_NAMED = 32  # tools in an error
ANSWERS = ("response_format", "text.format", "output_format", "output_config.format")


class CallRules(NamedTuple):
    """What an output may call."""

    names: frozenset[str] = frozenset()
    forced: bool = False  # it is at least one call, and nothing else
    single: bool = False  # one call at most
    strict: frozenset[str] = frozenset()  # tools whose calls keep to their schema, forced or not
    schemas: Mapping[str, str] = {}  # the field of each tool's schema, as the client wrote it


def read_choice(choice: str | NamedChoice | None, names: Many[str]) -> CallRules:
    """Of the tools with these names. Raises ClientError."""
    match choice:
        case None | "auto" | "required":
            if choice == "required" and not names:
                raise ClientError("tool_choice", f"is {choice!r}, but tools is empty", "it needs tools")
            return CallRules(frozenset(names), forced=choice == "required")
        case NamedChoice(type="allowed_tools"):
            return _allowed(choice.allowed_tools or choice, names)
        case NamedChoice():
            return named_call(choice.function.name if choice.function is not None else choice.name, names)
    return CallRules()


def named_call(name: str | None, names: Many[str]) -> CallRules:
    """Exactly one call, of this tool."""
    if name is None:
        raise ClientError("tool_choice", "is of type 'function', must have the function's name")
    if name not in names:
        raise ClientError("tool_choice", f"names {shown(name)}, must name one of tools: {_some_of(names)}")
    return CallRules(frozenset({name}), forced=True, single=True)


def _allowed(allowed: AllowedTools | NamedChoice, names: Many[str]) -> CallRules:
    if allowed.mode is None or not allowed.tools:
        fact = "is of type 'allowed_tools', must have the mode auto or required, and a list of tools"
        raise ClientError("tool_choice", fact)
    chosen, known = set[str](), frozenset(names)
    for tool in allowed.tools:
        function = tool.get("function", tool)
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(name, str) or name not in known:
            raise ClientError("tool_choice", f"names {shown(name)}, must name some of tools: {_some_of(names)}")
        chosen.add(name)
    return CallRules(frozenset(chosen), forced=allowed.mode == "required")


def _some_of(names: Many[str]) -> str:
    """The first tools by name, for an error."""
    named = ", ".join(names[:MAX_NAMED])
    return f"{named}, … ({len(names)} in all)" if len(names) > MAX_NAMED else named


# -- the constraint ----------------------------------------------------------------------------------------------------


class Keeping(NamedTuple):
    """How a constraint is kept to that is made of a request's tools."""

    backend: str = ""
    whitespace: str = ""


def held_to(
    spec: RequestSpec, calls: CallRules, tools: list[dict[str, Any]], parser: str, keeping: Keeping
) -> tuple[RequestSpec, dict[str, str]]:
    """With the constraint of its calls, if they need one; the client's field of each schema in it. Raises ClientError.

    `tools`: those that may be called, as the template gets them. `parser`: that of the model's calls.
    """
    answer = spec.constraint
    if not calls.forced and not calls.strict and answer is None:
        return spec, {}
    if answer is not None and (answer.place not in ANSWERS or answer.kind is not ConstraintKind.JSON_SCHEMA):
        by = "tool_choice forces a call" if calls.forced else "tools may be called"
        raise ClientError(answer.place, f"is set, but {by}: an output cannot be both", "omit one of them")
    try:
        offers = [_offer(tool, calls) for tool in tools]
        form = _form(tool_parser_class(parser), calls, offers, answer)
    except Unwritable as error:
        fact = f"has {quoted(error.name)}, whose {error.fact}" if error.name else error.fact
        raise ClientError("tools", fact, f"calls are those of --tool-call-parser {parser}") from None
    held = of_tag("tools", {"type": "structural_tag", "format": form})
    fields = {id(offer.schema): calls.schemas[offer.name] for offer in offers if offer.name in calls.schemas}
    parts = {"/".join(map(str, keys)): field for keys, field in _places(form, ("#", "format"), fields)}
    return replace(spec, constraint=replace(held, backend=keeping.backend, whitespace=keeping.whitespace)), parts


def _places(
    part: Any, keys: tuple[str | int, ...], fields: Mapping[int, str]
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """The field of each schema in it, with the keys on the way to it. `fields`: by the schema's id, which has no other
    inside: a schema may have thousands of values.
    """
    if (field := fields.get(id(part))) is not None:
        yield keys, field
        return
    entries = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for key, value in entries:
        yield from _places(value, (*keys, key), fields)


def _form(parser: type[ToolParser], calls: CallRules, offers: list[Offer], answer: Constraint | None) -> Part:
    twice = next((name for name, count in Counter(offer.name for offer in offers).items() if count > 1), None)
    if twice is not None:
        raise ClientError("tools", f"has {quoted(twice)} twice: each must have a name of its own")
    if calls.forced:
        return parser.calls_form(offers, calls.single)
    if answer is None:
        return parser.text_form(offers, calls.single)
    return parser.answer_form(offers, calls.single, json_of(exact_json.loads(answer.text)))


def _offer(tool: dict[str, Any], calls: CallRules) -> Offer:
    name, schema = tool["function"]["name"], tool["function"].get("parameters")
    if not calls.forced and name not in calls.strict:
        return Offer(name, {"type": "object"})
    if schema is None:
        return Offer(name, {"type": "object", "properties": {}, "additionalProperties": False})
    kind = exact_json.read(schema.get("type", "object"))
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        raise ClientError("tools", f"has {quoted(name)}, whose arguments are of type {shown(kind)}, must be an object")
    return Offer(name, {**schema, "type": "object"})
