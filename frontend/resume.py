"""The file of a batch that may be resumed: one line of JSON for each program that is done.

A program is known by its key (run_keys.py). A line that was cut off, as when the machine failed, is ignored, and its
program runs again.
"""

import math
import os
import threading
from collections import deque
from typing import Any

import msgspec

from ramet.frontend.json_lines import end_last_line, whole_lines
from ramet.frontend.results import Result
from ramet.frontend.run import Run
from ramet.frontend.state import State
from ramet.frontend.written import as_json, read, written

BEGINS = b'{"key":"'  # each line


class Kept(msgspec.Struct):
    """What is kept of a state. Values are what JSON makes of them."""

    variables: dict[str, Any]
    metas: dict[str, Any]
    pieces: list[Any]
    returned: Any = None


class ResumeLine(msgspec.Struct):
    key: str
    state: Kept


class ResumeFile:
    """Written by many threads."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Raises OSError, and ValueError for a file that is not one of a batch."""
        self._lock = threading.Lock()
        self._known: dict[str, deque[Kept]] = {}  # several of equal arguments
        if os.path.exists(path):
            for number, line in enumerate(whole_lines(path, (BEGINS,)), 1):
                self._read(line, f"resume: line {number} of {os.fspath(path)!r}")
            end_last_line(path, (BEGINS,))
        self._file = open(path, "ab")  # noqa: SIM115 - it stays open for the batch

    def take(self, key: str) -> Kept | None:
        """Each line once: programs with equal arguments drew their outputs each for itself."""
        with self._lock:
            left = self._known.get(key)
            return left.popleft() if left else None

    def write(self, key: str, state: Kept) -> None:
        """Raises TypeError, ValueError and RecursionError for what JSON has no form of, and OSError."""
        _check_numbers(msgspec.to_builtins([state.variables, state.returned], enc_hook=_as_json))
        line = msgspec.json.encode(ResumeLine(key, state), enc_hook=_as_json) + b"\n"
        with self._lock:
            if not self._file.closed:
                self._file.write(line)
                self._file.flush()

    def close(self) -> None:
        with self._lock:
            self._file.close()

    def _read(self, line: bytes, place: str) -> None:
        try:
            read = msgspec.json.decode(line, type=ResumeLine)
        except msgspec.DecodeError as error:
            raise ValueError(f"{place} is not of a batch that may be resumed: {error}") from None
        self._known.setdefault(read.key, deque()).append(read.state)


def kept(state: State) -> Kept | None:
    """Of a state that is done. None: a call failed, or a value is missing, and the program is to run again."""
    results = state.results()
    if state.run.failures or not all(result.done and not result.failed for result in results.values()):
        return None
    variables = {name: result.get() for name, result in results.items()}
    metas = {name: result.meta for name, result in results.items() if result.meta is not None}
    return Kept(variables, metas, written(state.stream_prompt), state.ret_value)


def restored(run: Run, found: Kept) -> State:
    values = {name: Result.of(value, found.metas.get(name)) for name, value in found.variables.items()}
    state = State.known(run, read(found.pieces), values)
    state.ret_value = found.returned
    run.end_body()
    return state


def _check_numbers(value: Any) -> None:
    """Raises ValueError for one that would be null in the file."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is not a JSON number")
    if isinstance(value, dict | list | tuple):
        for each in value.values() if isinstance(value, dict) else value:
            _check_numbers(each)


def _as_json(value: Any) -> Any:
    """Of a type that msgspec does not know. Raises TypeError."""
    if callable(dump := getattr(value, "model_dump", None)):  # Pydantic's
        return dump(mode="json")
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return as_json(value)
