"""What the C++ sources declare, as ctypes has it: functions after `extern "C"`, and the fields of structs.

A library was made from the sources beside this file (build.py), so they say what its functions take, and no signature
is written in Python. Knows no torch.
"""

import ctypes
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from ramet.kernels.cpu.build import FOLDER

Native = Callable[..., Any]

TYPES: dict[str, Any] = {
    "void": None, "int": ctypes.c_int, "int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64, "float": ctypes.c_float,
    "double": ctypes.c_double,
}  # fmt: skip
FUNCTION = re.compile(r'^extern "C" (\w+ \*?)ramet_(\w+)\(([^{;]*)\) \{', re.MULTILINE)
DECLARED = re.compile(r"\s*(\w+) (\*?)(\w+)\s*")
BESIDE = re.compile(r"//.*|\[\[\w+\]\] |\bconst | = \w+")
CALLBACK = re.compile(r"\(\*(\w+)\)\([^)]*\)")  # a pointer to a function


@dataclass(frozen=True, slots=True)
class NativeParameter:
    """Of a function, or a field of a struct."""

    name: str
    type: str  # in C++: what is pointed to, if it is a pointer
    is_pointer: bool

    @property
    def ctype(self) -> Any:
        return ctypes.c_void_p if self.is_pointer else TYPES[self.type]

    def __str__(self) -> str:
        return f"{self.type} {'*' * self.is_pointer}{self.name}"


@dataclass(frozen=True, slots=True)
class NativeFunction:
    """`ramet_<name>` of a library."""

    name: str
    parameters: tuple[NativeParameter, ...]
    returns: Any  # a type of ctypes, or None

    def of(self, library: ctypes.CDLL) -> Native:
        """What calls it with addresses and numbers."""
        function = library[f"ramet_{self.name}"]  # an object of its own, whose types no other caller changes
        function.argtypes, function.restype = [each.ctype for each in self.parameters], self.returns
        return function

    def listed(self, library: ctypes.CDLL) -> int | None:
        """The address of what calls it with words of 64 bits (replay.h). None: lists of calls do not have it."""
        try:
            entry = library[f"ramet_{self.name}_words"]
        except AttributeError:
            return None
        return ctypes.cast(entry, ctypes.c_void_p).value


@cache
def functions() -> Mapping[str, NativeFunction]:
    """All functions that the sources declare for Python, by name."""
    texts = (path.read_text() for path in sorted(FOLDER.glob("*.cpp")))
    declared = (found.groups() for text in texts for found in FUNCTION.finditer(text))
    return {
        name: NativeFunction(name, _parameters(given.split(",")), _returned(made)) for made, name, given in declared
    }


def native(library: ctypes.CDLL, name: str) -> Native:
    """`ramet_<name>` of the library, which takes addresses and numbers."""
    return functions()[name].of(library)


def struct_of(source: str, name: str, **structs: type[ctypes.Structure]) -> Any:
    return type(name, (ctypes.Structure,), {"_fields_": fields_of(source, name, **structs)})


def fields_of(source: str, name: str, **structs: type[ctypes.Structure]) -> list[tuple[str, Any]]:
    """The fields of a struct, for a Structure of ctypes. `structs` are the types of fields that are structs."""
    (body,) = re.findall(rf"^struct {name} \{{$(.*?)^\}};$", (FOLDER / source).read_text(), re.MULTILINE | re.DOTALL)
    lines = [line for line in _plain(body).split(";") if line.strip()]
    typed = [(line.split()[0], each) for line in lines for each in line.strip().partition(" ")[2].split(",")]
    fields = _parameters([f"{kind} {each.strip()}" for kind, each in typed])
    types = {**TYPES, **structs}
    return [(each.name, ctypes.c_void_p if each.is_pointer else types[each.type]) for each in fields]


def _parameters(declared: Sequence[str]) -> tuple[NativeParameter, ...]:
    found = []
    for each in filter(str.strip, declared):
        parsed = DECLARED.fullmatch(_plain(each))
        assert parsed is not None, f"a declaration that is not understood: {each}"
        found.append(NativeParameter(parsed[3], parsed[1], bool(parsed[2])))
    return tuple(found)


def _plain(text: str) -> str:
    """The text with types and names alone; a pointer to a function is one to void."""
    return CALLBACK.sub(r"*\1", BESIDE.sub("", text))


def _returned(made: str) -> Any:
    return ctypes.c_void_p if made.endswith("*") else TYPES[made.strip()]
