"""Renders small chats in this process, by templates each step of which is bounded (bounded_templates.py).

Decides how much such a rendering may take: the CPU time is looked at in each turn of a loop, each branch and each
operation that makes a text or a list, and what is made is counted. A rendering that takes more, and any chat of another
template, is left to a worker process, which renders the same text.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.filters import FILTERS as DEFAULT_FILTERS
from jinja2.runtime import Context, Undefined

from ramet.runtime.text.bounded_templates import FILTERS, MAX_CHARS, is_bounded
from ramet.runtime.text.chat_template import ChatTemplate, RenderLimits, TemplateEnvironment, TooLong, Unfolded, to_json
from ramet.runtime.text.chats import Chats
from ramet.runtime.text.template_files import TemplateSources

MAX_CHAT_BYTES = 1 << 14  # as JSON; beyond, a worker costs little beside the rendering and the tokenising
MAX_TEXT = 1 << 17  # characters of any text in a rendering
MAX_MADE = 1 << 20  # characters of all of them together
ITEM = 8  # characters for which an item of a list counts
TIMEOUT_S = 0.03  # of CPU time; a chat of MAX_CHAT_BYTES takes a few milliseconds
TICK = nodes.EnvironmentAttribute("tick")


class NotHere(Exception):
    """A worker has to render this chat."""


class BoundedTemplate:
    """A Renderer. Raises NotHere for what it leaves to a worker. Not for two threads at once."""

    def __init__(self, sources: TemplateSources) -> None:
        self._sources = sources
        self._template = ChatTemplate(sources, RenderLimits(timeout_s=TIMEOUT_S), BoundedEnvironment)
        self._is_bounded = {source: _is_bounded(source) for source in sources.by_name.values()}

    @property
    def limits(self) -> RenderLimits:
        return self._template.limits

    def compile(self) -> None:
        """So that the first chat need not wait for it."""
        self._template.check()

    @property
    def renders_some(self) -> bool:
        """Whether it renders any chat."""
        return any(self._is_bounded.values())

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
        """As ChatTemplate.render."""
        if not self._is_bounded.get(self._sources.of(tools is not None) or "", False):
            raise NotHere
        return self._template.render(
            messages,
            tools,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            kwargs=kwargs,
            max_bytes=max_bytes,
        )


def chats_here(sources: TemplateSources) -> Chats | None:
    """None: no template is bounded."""
    template = BoundedTemplate(sources)
    if not template.renders_some:
        return None
    template.compile()
    return Chats(sources, template)


def _is_bounded(source: str) -> bool:
    if len(source) > MAX_CHARS:
        return False
    try:
        return is_bounded(ChatTemplate(TemplateSources(source)).environment.parse(source))
    except RecursionError:
        return False


class _Ticking(Unfolded):
    """Looks at the time where a template may compute for long, and makes values by functions of the environment."""

    def visit_Assign(self, node: nodes.Assign, frame: Frame) -> None:
        self._tick(node, frame)
        super().visit_Assign(node, frame)

    def visit_For(self, node: nodes.For, frame: Frame) -> None:
        if node.test is not None:
            node.test = nodes.And(nodes.EnvironmentAttribute("ticked"), node.test, lineno=node.lineno)
        super().visit_For(node, frame)

    def blockvisit(self, nodes: Iterable[nodes.Node], frame: Frame) -> None:
        """Of a loop, a branch, a macro or the whole template."""
        body = list(nodes)
        if body:
            self._tick(body[0], frame)
        super().blockvisit(body, frame)

    def visit_Add(self, node: nodes.BinExpr, frame: Frame) -> None:
        self._call("added", [node.left, node.right], frame)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self._call("joined", node.nodes, frame)

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:
        self.write("(environment.ticked and ")
        super().visit_Compare(node, frame)
        self.write(")")

    def visit_Test(self, node: nodes.Test, frame: Frame) -> None:
        self.write("(environment.ticked and ")
        super().visit_Test(node, frame)
        self.write(")")

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:
        if isinstance(node.arg, nodes.Slice):
            ends = [each or nodes.Const(None) for each in (node.arg.start, node.arg.stop, node.arg.step)]
            self._call("sliced", [node.node, *ends], frame)
        else:
            super().visit_Getitem(node, frame)

    def _output_child_pre(self, node: nodes.Expr, frame: Frame, finalize: Any) -> None:
        self.write("environment.written(")

    def _output_child_post(self, node: nodes.Expr, frame: Frame, finalize: Any) -> None:
        self.write(")")

    def _tick(self, at: nodes.Node, frame: Frame) -> None:
        self.visit_ExprStmt(nodes.ExprStmt(TICK, lineno=at.lineno), frame)

    def _call(self, name: str, args: Iterable[nodes.Node], frame: Frame) -> None:
        self.write(f"environment.{name}(")
        for arg in args:
            self.visit(arg, frame)
            self.write(", ")
        self.write(")")


class BoundedEnvironment(TemplateEnvironment):
    """Counts what a rendering makes: the characters of texts, and ITEM for each item of a list."""

    code_generator_class: type[CodeGenerator] = _Ticking
    intercepted_binops = frozenset({"*", "%", "-", "/", "//"})
    _room = MAX_MADE

    def begin(self) -> None:
        super().begin()
        self._room = MAX_MADE

    @property
    def max_characters(self) -> int:
        return MAX_TEXT

    @property
    def tick(self) -> None:
        self.check_time()

    @property
    def ticked(self) -> bool:
        self.check_time()
        return True

    def made(self, value: Any) -> Any:
        """The value, which is new. Raises NotHere when it is too much."""
        self.check_time()
        if isinstance(value, str):
            self._take(len(value))
        elif isinstance(value, list | tuple | dict):
            self._take(ITEM * len(value))
        return value

    def _take(self, num: int) -> None:
        self._room -= num
        if num > MAX_TEXT or self._room < 0:
            raise NotHere

    def own_filters(self) -> Mapping[str, Callable[..., Any]]:
        given = {name: self._counted(DEFAULT_FILTERS[name]) for name in FILTERS}
        own = {"tojson": self._counted(to_json), "string": self._string, "join": self._join, "list": self._list}
        return {**given, **own, "replace": self._replace}

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def counted(*args: Any, **kwargs: Any) -> Any:
            return self.made(function(*args, **kwargs))

        return counted

    def written(self, value: Any) -> str:
        """What is written of a value."""
        return value if type(value) is str else self._string(value)

    def concat(self, pieces: Iterable[str]) -> str:
        """What a macro or a block has written."""
        return self._join(pieces)

    def joined(self, *values: Any) -> str:
        return self._join(values)

    def added(self, left: Any, right: Any) -> Any:
        if isinstance(left, list | tuple) and isinstance(right, list | tuple):
            raise NotHere
        return self.made(left + right)

    def sliced(self, value: Any, start: Any, stop: Any, step: Any) -> Any:
        return self.made(value[start:stop:step])

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        owner = getattr(obj, "__self__", None)
        if isinstance(owner, str) and obj.__name__ == "replace" and 2 <= len(args) <= 3:
            if not all(isinstance(arg, str) for arg in args[:2]):
                raise NotHere
            return self._replace(owner, *args)
        return self.made(super().call(context, obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        numbers = int | float | Undefined
        if not isinstance(left, numbers) or not isinstance(right, numbers):
            raise NotHere
        if operator == "*":  # numbers grow
            return super().call_binop(context, operator, left, right)
        return self.binop_table[operator](left, right)

    def failed(self, error: Exception) -> Exception:
        match error:
            case NotHere() | MemoryError() | TooLong() | RecursionError() | OverflowError():
                return NotHere()
        return super().failed(error)

    def _string(self, value: Any) -> str:
        text = str(value)
        self.made(text)
        return text

    def _join(self, value: Iterable[Any], between: Any = "") -> str:
        texts, gap = [self.written(each) for each in value], str(between)
        self.check_time()
        self._take(sum(map(len, texts)) + len(gap) * len(texts))
        return gap.join(texts)

    def _replace(self, value: Any, old: Any, new: Any, count: Any = -1) -> str:
        text, before, after = self.written(value), str(old), str(new)
        self.check_time()
        self._take(len(text) + (text.count(before) if before else len(text) + 1) * len(after))
        return text.replace(before, after, -1 if count is None else count)

    def _list(self, value: Iterable[Any]) -> list[Any]:
        if isinstance(value, str):  # a list of letters is written as five times the text
            raise NotHere
        items = list(value)
        self.made(items)
        return items
