"""The canonical form of a value: the same for equal ones in every process, another one for any that differ.

Data is known by its content and its class, functions and classes that are made while a program runs by their code, and
what a module has by its name. Other objects have no form: nothing that two processes agree on tells them apart.
"""

import hashlib
import inspect
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from os import PathLike, fspath
from types import BuiltinFunctionType, CellType, CodeType, EllipsisType, FunctionType, MethodType, ModuleType
from typing import Any, TypeAlias, get_args, get_origin

import msgspec

from ramet.frontend.backends.base import Backend
from ramet.frontend.media import InMemory, is_array, is_picture, source_of

Form: TypeAlias = Callable[[Any], Any]
OF_CODE = ("co_code", "co_consts", "co_names", "co_varnames", "co_freevars", "co_cellvars", "co_exceptiontable")


class HasBody(ABC):
    """A program, as far as its form goes. `bound`: arguments that it was given."""

    bound: dict[str, Any]

    @property
    @abstractmethod
    def body(self) -> Any:
        """What it executes."""


def canonical(value: Any, within: tuple[int, ...] = ()) -> Any:
    """Of None, booleans, numbers, texts and lists of these. `within`: ids of what holds it. Raises TypeError."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if id(value) in within:
        return ["within", within[::-1].index(id(value))]
    form: Form = partial(canonical, within=(*within, id(value)))
    return [_name(type(value)), _of_code(value, form) if _is_code(value) else _of_data(value, form)]


def body_form(body: Any, form: Form = canonical) -> Any:
    """Of what a program executes: the code of a function counts also where a module has it by its name."""
    match body:
        case FunctionType():
            return _of_function(body, form)
        case MethodType():
            return [body_form(body.__func__, form), form(body.__self__)]
        case partial():
            return [body_form(body.func, form), form(body.args), form(body.keywords)]
        case _ if callable(body):
            return [body_form(type(body).__call__, form), form(body)]
    return form(body)


def _of_data(value: Any, form: Form) -> Any:
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, int | float | str | bytes | bytearray | memoryview | PathLike):
        return _plain(value)
    if isinstance(value, Mapping):
        return sorted(([form(key), form(each)] for key, each in value.items()), key=json.dumps)
    if isinstance(value, Set):
        return sorted(map(form, value), key=json.dumps)
    if isinstance(value, Sequence):
        return list(map(form, value))
    if (content := _content(value)) is not None:
        return form(content)
    if isinstance(value, EllipsisType | complex):
        return repr(value)
    if isinstance(value, InMemory):
        return value.sha256
    if is_picture(value):
        return source_of("image", value).sha256  # type: ignore[union-attr]
    if is_array(value):
        return [list(value.shape), str(value.dtype), hashlib.sha256(value.tobytes()).hexdigest()]
    if isinstance(value, HasBody):
        return [body_form(value.body, form), form(value.bound)]
    if isinstance(value, Backend):
        return value.name
    try:
        return msgspec.to_builtins(value)  # a date, a UUID, a decimal number
    except TypeError:
        raise TypeError(
            f"{type(value).__qualname__} has no form in JSON, by which its run would be known again"
        ) from None


def _plain(value: Any) -> Any:
    """Of a class of its own, or one that JSON does not have."""
    if isinstance(value, PathLike):
        return str(fspath(value))
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    return next(kind(value) for kind in (int, float, str) if isinstance(value, kind))


def _content(value: Any) -> Mapping[str, Any] | None:
    """The fields of an instance of a class that declares them."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.asdict(value)
    if hasattr(type(value), "model_dump"):  # Pydantic's
        return dict(value)
    declared = getattr(type(value), "__attrs_attrs__", None)
    return None if declared is None else {field.name: getattr(value, field.name) for field in declared}


def _is_code(value: Any) -> bool:
    kinds = (type, FunctionType, BuiltinFunctionType, MethodType, CodeType, ModuleType, partial)
    return isinstance(value, kinds) or _is_of_typing(value)


def _of_code(value: Any, form: Form) -> Any:
    match value:
        case ModuleType():
            return value.__name__
        case CodeType():
            return [form(getattr(value, name)) for name in OF_CODE]
        case MethodType():
            return [form(value.__func__), form(value.__self__)]
        case partial():
            return [form(value.func), form(value.args), form(value.keywords)]
        case _ if _is_of_typing(value):
            return [form(get_origin(value)), form(get_args(value))] if get_args(value) else repr(value)
        case _ if value.__module__ == "builtins" or _is_of_module(value):
            return _name(value)
        case FunctionType():
            return _of_function(value, form)
        case BuiltinFunctionType():
            return [_name(value), form(value.__self__)]
    return _of_class(value, form)


def _of_function(function: FunctionType, form: Form) -> Any:
    """Lines and comments are no part of it."""
    closed_over = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            closed_over[name] = form(_content_of(cell))
        except TypeError as error:
            raise TypeError(f"{function.__qualname__} closes over {name!r}: {error}") from None
    defaults = [form(function.__defaults__), form(function.__kwdefaults__)]
    return [_name(function), form(function.__code__), defaults, closed_over]


def _content_of(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is set later
        return ...


def _of_class(kind: type, form: Form) -> Any:
    try:
        source = inspect.getsource(kind)
    except (OSError, TypeError):
        raise TypeError(
            f"the source of {kind.__qualname__} is not there, by which its run would be known again"
        ) from None
    return [_name(kind), source, form(kind.__bases__)]


def _name(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def _is_of_module(value: Any) -> bool:
    """Whether a module has it by its name."""
    found: Any = sys.modules.get(value.__module__)
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is value


def _is_of_typing(value: Any) -> bool:
    """list[int], int | None, Literal["a"]."""
    return get_origin(value) is not None or (not isinstance(value, type) and type(value).__module__ == "typing")
