"""One option: a field of a msgspec Struct as people write it. Reads text and typed values, names what would be valid.

Knows types and bounds by introspection, no option by name, no command line and no file.
"""

import difflib
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import Meta, inspect

from ramet.runtime.errors import ConfigError

PREFIX = "RAMET_"
SECRET = frozenset({"api_key", "admin_api_key", "ssl_keyfile_password"})  # options that are never printed
_WORDS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def about(text: str, **bounds: Any) -> Meta:
    """What an option does, with its unit and its bounds."""
    return Meta(description=text, **bounds)


@dataclass(frozen=True)
class Option:
    """One field of one struct, as the command line sees it. `type` is msgspec's description, without None."""

    group: str
    name: str
    type: inspect.Type
    optional: bool  # None is a value
    default: Any
    about: str

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return PREFIX + self.name.upper()

    @property
    def valid(self) -> str:
        return _valid(self.type) + (", or none" if self.optional else "")

    @property
    def help(self) -> str:
        silent = self.optional or isinstance(self.type, inspect.BoolType | inspect.VarTupleType)
        default = "" if silent else f" [{self.default!r}]"
        bounds = f" ({self.valid})" if _bounds(self.type) else ""
        return f"{self.about}{bounds}{default}".replace("%", "%%")


def options_of(struct: Any, group: str = "") -> list[Option]:
    """Every field of a msgspec Struct type, in order. A field that is itself a Struct is a group of options."""
    found: list[Option] = []
    described = inspect.type_info(struct)
    assert isinstance(described, inspect.StructType)
    for field in described.fields:
        if isinstance(field.type, inspect.StructType):
            found += options_of(field.type.cls, field.name)
            continue
        about, bare = "", field.type
        if isinstance(bare, inspect.Metadata):
            about, bare = (bare.extra_json_schema or {}).get("description", ""), bare.type
        bare, optional = _without_none(bare)
        found.append(Option(group, field.name, bare, optional, field.default, about))
    return found


def check(option: Option, value: Any, origin: str) -> Any:
    """The value as the option's type. Text is read; a typed value (YAML) must already be of the type."""
    if option.optional and (value is None or (isinstance(value, str) and value.lower() == "none")):
        return None
    try:
        return _read(option.type, value)
    except (ValueError, OverflowError):  # an integer of a file may be too large for a float
        shown = "hidden" if option.name in SECRET else repr(value)
        raise ConfigError(f"{origin} is {shown}, must be {option.valid}") from None


def nearest(word: str, words: Sequence[str], cutoff: float = 0.6, written: str = "") -> str:
    """Half a sentence that names the closest known word, or nothing. `written`: before the word, not compared."""
    close = difflib.get_close_matches(word, words, n=1, cutoff=cutoff)
    return f"; did you mean {written}{close[0]}?" if close else ""


def _without_none(kind: inspect.Type) -> tuple[inspect.Type, bool]:
    if not isinstance(kind, inspect.UnionType):
        return kind, False
    rest = [t for t in kind.types if not isinstance(t, inspect.NoneType)]
    assert len(rest) == 1, f"an option is one type or None, not {kind}"
    return rest[0], True


def _read(kind: inspect.Type, value: Any) -> Any:
    """`value` as `kind`, or ValueError."""
    for described, reader in _READERS.items():
        if isinstance(kind, described):
            read = reader(kind, value)
            if not _inside(kind, read):
                raise ValueError
            return read
    raise AssertionError(f"no option may be of type {kind}")


def _read_bool(kind: Any, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if not isinstance(value, str) or value.lower() not in _WORDS:
        raise ValueError
    return _WORDS[value.lower()]


def _read_int(kind: Any, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError
    return int(value)


def _read_float(kind: Any, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError
    number = float(value)
    if not math.isfinite(number):
        raise ValueError
    return number


def _read_text(kind: Any, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def _read_words(kind: Any, value: Any) -> tuple[str, ...]:
    """A list, or text with commas between the words. Commas of a JSON object are its own."""
    words = re.split(r",(?![^{]*\})", value) if isinstance(value, str) else value
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ValueError
    read = tuple(word.strip() for word in words if word.strip())
    if isinstance(kind.item_type, inspect.LiteralType) and not set(read) <= set(kind.item_type.values):
        raise ValueError
    return read


def _read_literal(kind: Any, value: Any) -> Any:
    for choice in kind.values:
        if not isinstance(value, bool) and str(choice) == str(value):
            return choice
    raise ValueError


_READERS: dict[Any, Callable[[Any, Any], Any]] = {
    inspect.BoolType: _read_bool,
    inspect.IntType: _read_int,
    inspect.FloatType: _read_float,
    inspect.StrType: _read_text,
    inspect.LiteralType: _read_literal,
    inspect.VarTupleType: _read_words,
}


def _bounds(kind: inspect.Type) -> dict[str, float]:
    if not isinstance(kind, inspect.IntType | inspect.FloatType):
        return {}
    return {k: v for k in ("gt", "ge", "lt", "le") if (v := getattr(kind, k)) is not None}


def _inside(kind: inspect.Type, value: Any) -> bool:
    holds: dict[str, Callable[[Any, Any], bool]] = {
        "gt": lambda a, b: a > b,
        "ge": lambda a, b: a >= b,
        "lt": lambda a, b: a < b,
        "le": lambda a, b: a <= b,
    }
    return all(holds[k](value, bound) for k, bound in _bounds(kind).items())


def _valid(kind: inspect.Type) -> str:
    if isinstance(kind, inspect.BoolType):
        return "true or false"
    if isinstance(kind, inspect.LiteralType):
        return "one of " + ", ".join(str(v) for v in sorted(kind.values, key=str))
    if isinstance(kind, inspect.StrType):
        return "text"
    if isinstance(kind, inspect.VarTupleType) and isinstance(kind.item_type, inspect.LiteralType):
        return f"words separated by commas, each {_valid(kind.item_type)} (in Python a list of texts)"
    if isinstance(kind, inspect.VarTupleType):
        return "words separated by commas (in Python a list of texts)"
    noun = "an integer" if isinstance(kind, inspect.IntType) else "a number"
    bounds = _bounds(kind)
    low, high = bounds.get("ge", bounds.get("gt")), bounds.get("le", bounds.get("lt"))
    if low is not None and high is not None:
        first, last = "(" if "gt" in bounds else "[", ")" if "lt" in bounds else "]"
        return f"{noun} in {first}{_number(low)}, {_number(high)}{last}"
    if low is not None:
        return f"{noun} {'>' if 'gt' in bounds else '>='} {_number(low)}"
    return noun if high is None else f"{noun} {'<' if 'lt' in bounds else '<='} {_number(high)}"


def _number(value: float) -> str:
    return f"{int(value)}" if value == int(value) else f"{value:g}"


def metavar(option: Option) -> str:
    if isinstance(option.type, inspect.LiteralType):
        return "{" + ",".join(str(v) for v in sorted(option.type.values, key=str)) + "}"
    names: dict[Any, str] = {
        inspect.IntType: "INT", inspect.FloatType: "NUMBER", inspect.StrType: "TEXT", inspect.VarTupleType: "A,B,..."
    }  # fmt: skip
    return next(name for kind, name in names.items() if isinstance(option.type, kind))
