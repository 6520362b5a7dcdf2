"""Whether each single step of a chat template is bounded by the size of what it reads, as its syntax alone shows.

Decides which nodes, filters, tests, methods and calls of Jinja such a template may have; one with anything else is not
bounded, whatever it does. A step is one operation: bounded_rendering.py stops a template between two of them. So
nothing here may compute for long, or make something large, within one step:

    a value that has another one twice      no list or mapping but of constants, no namespace in a namespace
    a number that says how much             no range, slice of a list into lists, centring, format, repetition
    a text that grows                       only by what bounded_rendering.py checks: + ~ join replace tojson string
    a call of what it has at run time       only macros, and methods with these names

Loops, also one inside another over the same turns, and macros, also those that call themselves, are stopped by time.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

from jinja2 import nodes

MAX_CHARS = 1 << 16  # of a template: how many steps there can be in a row
MAX_INDENT = 8
MAX_STRIPPED = 32  # characters that are removed from the ends of a text: each of its characters is looked for in them
PLAIN = frozenset(
    {
        nodes.Template, nodes.Output, nodes.TemplateData, nodes.If, nodes.For, nodes.Scope, nodes.Break, nodes.Continue,
        nodes.Assign, nodes.AssignBlock, nodes.NSRef, nodes.Macro, nodes.Name, nodes.Const, nodes.Getattr,
        nodes.Getitem, nodes.Slice, nodes.Call, nodes.Filter, nodes.Test, nodes.Compare, nodes.Operand, nodes.CondExpr,
        nodes.And, nodes.Or, nodes.Not, nodes.Neg, nodes.Pos, nodes.Add, nodes.Sub, nodes.Mul, nodes.Div,
        nodes.FloorDiv, nodes.Mod, nodes.Concat, nodes.List, nodes.Tuple, nodes.Dict, nodes.Pair, nodes.Keyword,
    }
)  # fmt: skip
FILTERS = frozenset(
    {
        "abs", "capitalize", "count", "d", "default", "first", "float", "int", "items", "join", "last", "length",
        "list", "lower", "map", "reject", "rejectattr", "replace", "reverse", "select", "selectattr", "string", "title",
        "tojson", "trim", "upper",
    }
)  # fmt: skip
OF_EACH = frozenset(
    {"capitalize", "first", "int", "last", "length", "lower", "string", "title", "tojson", "trim", "upper"}
)
TESTS = frozenset(
    {
        "!=", "<", "<=", "==", ">", ">=", "boolean", "defined", "eq", "equalto", "even", "false", "float", "ge", "gt",
        "in", "integer", "iterable", "le", "lower", "lt", "mapping", "ne", "none", "number", "odd", "sameas",
        "sequence", "string", "true", "undefined", "upper",
    }
)  # fmt: skip
METHODS = frozenset(
    {
        "capitalize", "count", "endswith", "find", "get", "index", "isdigit", "isspace", "items", "keys", "lower",
        "lstrip", "replace", "rstrip", "split", "splitlines", "startswith", "strip", "title",
        "upper", "values",
    }
)  # fmt: skip
STRIPPING = ("lstrip", "rstrip", "strip")
OF_LOOPS = frozenset(
    {"first", "index", "index0", "last", "length", "nextitem", "previtem", "revindex", "revindex0"}
)  # fmt: skip
GLOBALS = frozenset(
    {
        "cycler", "dict", "joiner", "lipsum", "namespace", "raise_exception", "range", "strftime_now",
        "caller", "context", "environment", "kwargs", "self", "super", "varargs",
    }
)  # fmt: skip
PLAIN_DATE = re.compile(r"(?:%[A-Za-z%]|[^%]){0,64}")


def is_bounded(tree: nodes.Template) -> bool:
    """`tree`: of a template of at most MAX_CHARS."""
    return _TemplateReader(tree).is_bounded(tree)


class _TemplateReader:
    def __init__(self, tree: nodes.Template) -> None:
        self._macros = {macro.name for macro in tree.find_all(nodes.Macro)}
        self._namespaces = set(_namespaces(tree))
        self._of_node: dict[type, Callable[[Any], bool]] = {
            nodes.Assign: self._assign,
            nodes.AssignBlock: self._assign_block,
            nodes.Call: self._call,
            nodes.Dict: _is_constant,
            nodes.Filter: self._filter,
            nodes.For: self._for,
            nodes.Getattr: self._getattr,
            nodes.List: _is_constant,
            nodes.Macro: self._macro,
            nodes.Name: self._name,
            nodes.NSRef: self._ns_ref,
            nodes.Test: self._test,
            nodes.Tuple: self._tuple,
        }

    def is_bounded(self, node: nodes.Node) -> bool:
        if type(node) not in PLAIN:
            return False
        check = self._of_node.get(type(node))
        return check(node) if check is not None else self._children(node)

    def _children(self, node: nodes.Node, *but: nodes.Node | None) -> bool:
        return all(
            self.is_bounded(child) for child in node.iter_child_nodes() if not any(child is each for each in but)
        )

    def _name(self, name: nodes.Name) -> bool:
        """A value of its own: neither what can be called nor what changes."""
        return name.name not in GLOBALS | self._macros | self._namespaces | {"loop"}

    def _ns_ref(self, target: nodes.NSRef) -> bool:
        return target.name in self._namespaces

    def _getattr(self, node: nodes.Getattr) -> bool:
        if isinstance(node.node, nodes.Name):
            if node.node.name == "loop":
                return node.attr in OF_LOOPS
            if node.node.name in self._namespaces:
                return True
        return self.is_bounded(node.node)

    def _assign(self, node: nodes.Assign) -> bool:
        if isinstance(node.target, nodes.Name) and _is_namespace(node.node):
            assert isinstance(node.node, nodes.Call)
            if node.target.name in GLOBALS:
                return False
            return not (node.node.dyn_args or node.node.dyn_kwargs or node.node.args) and self._children(
                node.node, node.node.node
            )
        return self.is_bounded(node.target) and self.is_bounded(node.node)

    def _assign_block(self, node: nodes.AssignBlock) -> bool:
        return node.filter is None and self._children(node)

    def _for(self, node: nodes.For) -> bool:
        return not node.recursive and self._children(node)

    def _macro(self, node: nodes.Macro) -> bool:
        return node.name not in GLOBALS and self._children(node)

    def _tuple(self, node: nodes.Tuple) -> bool:
        return _is_constant(node) or (node.ctx == "store" and self._children(node))

    def _call(self, call: nodes.Call) -> bool:
        if call.dyn_args is not None or call.dyn_kwargs is not None:
            return False
        match call.node:
            case nodes.Name(name="raise_exception"):
                return self._children(call, call.node)
            case nodes.Name(name="strftime_now"):
                return not call.kwargs and all(map(_is_plain_date, call.args))
            case nodes.Name(name=name) if name in self._macros:
                return self._children(call, call.node)
            case nodes.Getattr(node=nodes.Name(name="dict"), attr="fromkeys"):
                return len(call.args) == 1 and not call.kwargs and self.is_bounded(call.args[0])
            case nodes.Getattr(node=of, attr=attr) if attr in METHODS and not _is_loop(of):
                is_plain = attr not in STRIPPING or _are_few(call.args)
                return is_plain and not call.kwargs and self._getattr(call.node) and self._children(call, call.node)
        return False

    def _filter(self, node: nodes.Filter) -> bool:
        if node.node is None or node.name not in FILTERS or node.dyn_args is not None or node.dyn_kwargs is not None:
            return False
        match node.name:
            case "map":
                return self.is_bounded(node.node) and _is_plain_map(node)
            case "select" | "reject" | "selectattr" | "rejectattr":
                at = 1 if node.name.endswith("attr") else 0
                return not node.kwargs and self._children(node) and _is_plain_test(node.args, at)
            case "tojson":
                options = [_is_plain_option(each) for each in node.kwargs]
                return not node.args and all(options) and self.is_bounded(node.node)
            case "default" | "d":
                return self._children(node)
            case "trim":
                return not node.kwargs and _are_few(node.args) and self.is_bounded(node.node)
        return not node.kwargs and self._children(node)

    def _test(self, node: nodes.Test) -> bool:
        if node.name not in TESTS or node.dyn_args is not None or node.dyn_kwargs is not None:
            return False
        if node.name in ("defined", "undefined") and isinstance(node.node, nodes.Name):
            return node.node.name not in ("self", "super", "caller")
        return self._children(node)


def _namespaces(tree: nodes.Template) -> Iterator[str]:
    for node in tree.find_all(nodes.Assign):
        if isinstance(node.target, nodes.Name) and _is_namespace(node.node):
            yield node.target.name


def _is_namespace(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Call) and isinstance(node.node, nodes.Name) and node.node.name == "namespace"


def _is_loop(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Name) and node.name == "loop"


def _is_constant(node: nodes.Node) -> bool:
    """A constant, or a list, tuple or mapping of such."""
    if isinstance(node, nodes.Const):
        return True
    kinds = (nodes.List, nodes.Tuple, nodes.Dict, nodes.Pair)
    return (
        isinstance(node, kinds)
        and getattr(node, "ctx", "load") == "load"
        and all(map(_is_constant, node.iter_child_nodes()))
    )


def _are_few(args: list[nodes.Expr]) -> bool:
    """Whether what is removed from the ends of a text is no more than MAX_STRIPPED characters."""
    return all(isinstance(each, nodes.Const) and len(str(each.value)) <= MAX_STRIPPED for each in args)


def _is_plain_date(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Const) and isinstance(node.value, str) and bool(PLAIN_DATE.fullmatch(node.value))


def _is_plain_map(node: nodes.Filter) -> bool:
    args: list[Any] = [*node.args, *node.kwargs]
    match args:
        case [nodes.Const(value=str() as name)]:
            return name in OF_EACH
        case [nodes.Keyword(key="attribute", value=nodes.Const())]:
            return True
    return False


def _is_plain_test(args: list[nodes.Expr], at: int) -> bool:
    """Whether the test that a filter names, if it does, is one of TESTS; what a text is looked for in is constant."""
    if not all(isinstance(each, nodes.Const) for each in args[: at + 1]):
        return False
    match args[at:]:
        case [nodes.Const(value="in"), *rest]:
            return all(map(_is_constant, rest))
        case [nodes.Const(value=name), *_]:
            return name in TESTS
    return True


def _is_plain_option(option: Any) -> bool:
    match option.key, option.value:
        case "indent", nodes.Const(value=None):
            return True
        case "indent", nodes.Const(value=int() as indent):
            return 0 <= indent <= MAX_INDENT
    return option.key in ("ensure_ascii", "sort_keys", "separators") and _is_constant(option.value)
