"""A conversation to the text that the model was trained to read: its Jinja template, in a sandbox.

Decides what a template may use, which is what transformers 5 gives it, and what a failure of it means to the client.
Knows no tokenizer; a message's shape is chat_messages.py's.

Bounded here: a rendering's length, a repetition ('-' * n), a product, a range (100,000), and its time, which is looked
at wherever it writes or calls something. No single filter, method or comparison is bounded by that: it ends with the
process that it runs in (rendering.py). Compiling computes nothing of a template, so it may be done anywhere.
"""

import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, NoReturn

import msgspec
from jinja2 import Template, TemplateError, TemplateSyntaxError, nodes
from jinja2.compiler import CodeGenerator
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from ramet.runtime import exact_json
from ramet.runtime.errors import ClientError, ConfigError, describe
from ramet.runtime.text.chat_messages import REASONING_NAMES
from ramet.runtime.text.context import TooManyBytes
from ramet.runtime.text.template_files import TemplateSources

MAX_CHARACTERS = 1 << 26  # of one rendering: more than any context holds
MAX_REPEATED = 1 << 24  # items of one `sequence * number`
MAX_BITS = 1 << 16  # of one product or power of whole numbers

DICT_NAMES = frozenset(dir(dict))
CANNOT = "cannot be rendered by the chat template"
RESERVED = ("messages", "tools", "add_generation_prompt", "continue_final_message", "chat_template")
MARK = f"END_{os.urandom(8).hex().upper()} "  # no client knows it; its blank shows whether the template trims


class RenderLimits(msgspec.Struct, frozen=True):
    """What one rendering may take. Memory is bounded in a process of its own alone."""

    timeout_s: float = 3.0
    memory_mb: float = 512.0

    @property
    def too_long(self) -> str:
        return f"it takes longer than the {self.timeout_s:g} s of --chat-template-timeout-s"

    @property
    def too_large(self) -> str:
        return f"it needs more memory than the {self.memory_mb:g} MiB of --chat-template-memory-mb"


class ChatTemplate:
    """The templates of one model, each compiled when it is first used. Not for two threads at once."""

    def __init__(
        self,
        sources: TemplateSources,
        limits: RenderLimits = RenderLimits(),
        kind: "type[TemplateEnvironment] | None" = None,
    ) -> None:
        self.limits, self._sources = limits, sources
        self.environment = _environment(limits, kind or TemplateEnvironment)
        self._compiled: dict[str, Template] = {}

    def check(self) -> None:
        """Compile every template. Raises ConfigError."""
        for name, source in self._sources.by_name.items():
            self._template(source, name)

    def render(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None = None,
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        kwargs: Mapping[str, Any] = {},
        max_bytes: int | None = None,
    ) -> str:
        """With `continue_final_message` the text ends inside the last message.

        Raises ClientError, and TooManyBytes as soon as a text that is certain to have more than `max_bytes` is
        written so far. It may return one that has more.
        """
        if not messages:
            raise ClientError("messages", "is empty, must have at least 1 message")
        if continue_final_message and add_generation_prompt:
            raise ClientError("continue_final_message", "is true, must be false where add_generation_prompt is true")
        kwargs = {name: exact_json.read(value) for name, value in kwargs.items()}
        tools = None if tools is None else [exact_json.read(tool) for tool in tools]
        _check_kwargs(kwargs)
        source = source_for(self._sources, tools is not None)
        turns = [_as_templates_read(message) for message in messages]
        unfinished = None
        if continue_final_message:
            turns[-1] = {**turns[-1]}
            unfinished = _mark_the_end(turns[-1], source)
        variables = {
            **self._sources.special_tokens,
            "documents": None,
            **kwargs,
            "messages": turns,
            "tools": tools,
            "add_generation_prompt": add_generation_prompt,
        }
        template = self._template(source)
        self.environment.begin()
        most = None if unfinished is not None else max_bytes  # what follows the mark is cut off
        text = _rendered(template, variables, self.environment, most)
        return text if unfinished is None else _cut_at_the_mark(text, unfinished)

    def _template(self, source: str, name: str = "") -> Template:
        if source not in self._compiled:
            self._compiled[source] = _compile(self.environment, source, name)
        return self._compiled[source]


def source_for(sources: TemplateSources, has_tools: bool) -> str:
    """The template that a conversation gets. Raises ClientError when there is none."""
    source = sources.of(has_tools)
    if source is None:
        names = ", ".join(sorted(sources.named))
        fact = f"need a default chat template, this model only has {names}" if names else "need a chat template"
        raise ClientError("messages", fact, hint="start the server with --chat-template NAME or FILE")
    return source


def _as_templates_read(message: dict[str, Any]) -> dict[str, Any]:
    """The message without what is null, and with its reasoning under each name that some template reads."""
    if message.__class__ is dict and None not in message.values() and message.keys().isdisjoint(REASONING_NAMES):
        return message
    turn = {key: value for key, value in message.items() if value is not None}
    reasoning = next((turn[name] for name in REASONING_NAMES if name in turn), None)
    return turn if reasoning is None else {"thinking": reasoning, **turn, "reasoning_content": reasoning}


def _check_kwargs(kwargs: Mapping[str, Any]) -> None:
    clash = [name for name in RESERVED if name in kwargs]
    if clash:
        fact = f"has {clash[0]!r}, must have none of {', '.join(RESERVED)}"
        raise ClientError("chat_template_kwargs", fact, hint="they are fields of the request, or the server's choice")
    documents = kwargs.get("documents")
    if documents is not None and not (isinstance(documents, list) and all(isinstance(d, dict) for d in documents)):
        raise ClientError("chat_template_kwargs.documents", "must be a list of objects")


def _mark_the_end(turn: dict[str, Any], source: str) -> str:
    """Mark where `turn`'s text ends, and give that text back."""
    content = turn.get("content")
    if "content" not in source:
        raise ClientError("continue_final_message", "is true, but the chat template does not look at a message's text")
    match content:
        case str():
            turn["content"] = content + MARK
            return content
        case [*parts, {"type": "text", "text": str() as text}]:
            turn["content"] = [*parts, {"type": "text", "text": text + MARK}]
            return text
    raise ClientError("continue_final_message", "is true, the last message must have a text to continue")


def _cut_at_the_mark(rendered: str, unfinished: str) -> str:
    mark = MARK.strip()
    if mark not in rendered or unfinished.strip() not in rendered.replace(mark, ""):
        raise ClientError("continue_final_message", "is true, but the chat template changes the last message's text")
    end = rendered.rindex(mark)
    kept = rendered[:end].replace(MARK, "").replace(mark, "")  # a template may write the text more than once
    trims = not rendered.startswith(MARK, end)
    return kept.rstrip() if trims and unfinished.strip() else kept  # blanks before an empty text are the template's


def _rendered(
    template: Template, variables: dict[str, Any], environment: "TemplateEnvironment", max_bytes: int | None
) -> str:
    try:
        return _joined(template.generate(variables), environment, max_bytes)
    except TooManyBytes:
        raise
    except _Refusal as error:
        raise ClientError("messages", f"are refused by the chat template: {describe(error)}") from error
    except Exception as error:  # an expression of a template may fail in any way
        raise environment.failed(error) from error


class RenderingEnded(ClientError):
    """A rendering passed a bound, or its process was killed. That shows nothing about the template's form."""

    def __init__(self, why: str, status: int = 400) -> None:
        super().__init__("messages", f"{CANNOT}: {why}", status=status)
        self.why = why


def cannot_render(why: str) -> ClientError:
    return ClientError("messages", f"{CANNOT}: {why}")


def _joined(pieces: Iterable[str], environment: "TemplateEnvironment", max_bytes: int | None) -> str:
    kept, room = [], environment.max_characters
    left = room if max_bytes is None else max_bytes  # a character has at least one byte
    for piece in pieces:
        environment.check_time()
        room -= len(piece)
        left -= len(piece)
        if left < 0 <= room:
            raise TooManyBytes
        if room < 0:
            raise OverflowError(f"more than {environment.max_characters} characters")
        kept.append(piece)
    return "".join(kept)


def _compile(environment: "TemplateEnvironment", source: str, name: str) -> Template:
    title = f"chat template {name!r}" if name else "the chat template"
    try:
        return environment.from_string(source)
    except TemplateSyntaxError as error:
        raise ConfigError(f"{title} does not compile: line {error.lineno}: {error.message}") from error
    except Exception as error:  # what Python's own compiler says of the code made of it
        raise ConfigError(f"{title} does not compile: {type(error).__name__}: {describe(error)}") from error


class _Refusal(TemplateError):
    """The template itself says no."""


class TooLong(Exception):
    """Its time is over."""


class Unfolded(CodeGenerator):
    """Computes nothing where it compiles, not even what is constant."""

    def _output_child_to_const(self, node: nodes.Expr, frame: Any, finalize: Any) -> str:
        if not isinstance(node, nodes.TemplateData):
            raise nodes.Impossible
        return super()._output_child_to_const(node, frame, finalize)


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox, with operators that refuse to make something enormous of two small values."""

    code_generator_class: type[CodeGenerator] = Unfolded
    intercepted_binops = frozenset({"*", "**"})
    limits: RenderLimits
    deadline_s = computed_until_s = math.inf  # of the clock, and of the CPU time of this thread

    def begin(self) -> None:
        self.deadline_s = time.monotonic() + self.limits.timeout_s
        self.computed_until_s = time.thread_time() + self.limits.timeout_s

    def check_time(self) -> None:
        """Raises TooLong when both are over: reading the CPU time takes longer, and others may have had the CPU."""
        if time.monotonic() > self.deadline_s and time.thread_time() > self.computed_until_s:
            raise TooLong

    @property
    def max_characters(self) -> int:
        """Of one rendering."""
        return MAX_CHARACTERS

    def own_filters(self) -> Mapping[str, Callable[..., Any]]:
        return {}

    def failed(self, error: Exception) -> Exception:
        """What an exception within a rendering means."""
        match error:
            case MemoryError():
                return RenderingEnded(self.limits.too_large)
            case TooLong():
                return RenderingEnded(self.limits.too_long)
        return cannot_render(f"{type(error).__name__}: {describe(error)}")

    def getattr(self, obj: Any, attribute: str) -> Any:
        """As the sandbox's own, which would look for an attribute of each message first, and raise for each."""
        if obj.__class__ is dict and attribute not in DICT_NAMES:
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        return super().getattr(obj, attribute)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        self.check_time()
        return super().call(context, obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        _check_size(operator, left, right)
        return super().call_binop(context, operator, left, right)


def _check_size(operator: str, left: Any, right: Any) -> None:
    match left, right:
        case int(), int():
            bits = left.bit_length() + right.bit_length() if operator == "*" else left.bit_length() * right
            if bits > MAX_BITS:
                raise OverflowError(f"a number of more than {MAX_BITS} bits")
        case (str() | list() | tuple(), int() as times) | (int() as times, str() | list() | tuple()):
            sequence = right if times is left else left
            if len(sequence) * times > MAX_REPEATED:
                raise OverflowError(f"a repetition of more than {MAX_REPEATED} items")


class _GenerationTag(Extension):
    """{% generation %}...{% endgeneration %}: what the model wrote. It matters to training; here it is its body."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


class _PublicNames(Namespace):
    """namespace(...): its names must not look like Python's own."""

    def __init__(self, /, *args: Any, **kwargs: Any) -> None:
        values = dict(*args, **kwargs)
        for name in values:
            _check_public(name)
        super().__init__(values)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_public(name)
        super().__setitem__(name, value)


def _check_public(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace cannot have the name {name!r}: it starts with an underscore")


class _DictMaker:
    """dict(...) and dict.fromkeys(...), without the type and what hangs on it."""

    def __call__(self, /, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, keys: Iterable[Any], value: Any = None) -> dict[Any, Any]:
        return dict.fromkeys(keys, value)


def to_json(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """Jinja's own would write < and & as escapes."""
    return exact_json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _refuse(message: str) -> NoReturn:
    raise _Refusal(message)


def _now(form: str) -> str:
    return datetime.now().strftime(form)


def _environment(limits: RenderLimits, kind: type[TemplateEnvironment]) -> TemplateEnvironment:
    extensions = [_GenerationTag, loopcontrols]
    environment = kind(trim_blocks=True, lstrip_blocks=True, extensions=extensions, optimized=False)
    environment.limits = limits
    environment.filters |= {"tojson": to_json, **environment.own_filters()}
    environment.globals |= {
        "raise_exception": _refuse,
        "strftime_now": _now,
        "dict": _DictMaker(),
        "namespace": _PublicNames,
    }
    return environment
