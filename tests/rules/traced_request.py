"""What one plain request runs: `python tests/rules/traced_request.py` prints files, functions and boxes by name.

An `LLM` generates four tokens of five, so the path is that of `/generate` without HTTP. Functions are those of ramet
that are entered on any thread of the process. Boxes are the types whose values carry the request from one function to
another: classes of ramet with a field that holds its ids, its parameters or another box.
"""

import gc
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from ramet.ipc.params import SamplingParams
from ramet.ipc.spec import RequestSpec
from ramet.runtime.llm import LLM

ROOT = str(Path(__file__).resolve().parents[2]) + os.sep
PROMPT, TOKENS = [311, 412, 513, 614, 715], 4
TIMEOUT_S = 60.0
ENDED, WAITS = "Results._close", "ThreadInbox.drain"  # when the request has ended, and the turn behind it
NO_BOXES = (FunctionType, MethodType, ModuleType, type, BaseException)
OPTIONS: dict[str, Any] = {"dtype": "float32", "max_total_tokens": 2048, "num_threads": 1, "log_level": "error"}


_output: list[int] = []  # what the request draws


class RequestIds:
    """Stands for ids of the request among the types of values."""


@dataclass
class Trace:
    functions: set[str] = field(default_factory=set)  # "file:qualified name"
    boxes: set[str] = field(default_factory=set)  # "module.name"
    num_calls: int = 0

    @property
    def files(self) -> set[str]:
        return {name.split(":")[0] for name in self.functions}


def fields_of(value: object) -> list[object]:
    """The values of its fields, whatever kind of class it is of; properties are not asked."""
    kind = type(value)
    if issubclass(kind, tuple):
        return list(value)  # type: ignore[call-overload, no-any-return]
    names = [*getattr(kind, "__struct_fields__", ())] or [n for c in kind.__mro__ for n in getattr(c, "__slots__", ())]
    own = [getattr(value, name) for name in names if hasattr(value, name)]
    return [*own, *getattr(value, "__dict__", {}).values()]


def holds(value: object) -> Iterator[type]:
    """Types of what a field holds; where these are ids of the request, also RequestIds."""
    yield type(value)
    if isinstance(value, bytes | bytearray):
        if len(value) >= 4 and len(value) % 4 == 0 and _is_part(np.frombuffer(bytes(value), np.int32).tolist()):
            yield RequestIds
    elif isinstance(value, np.ndarray):
        if value.dtype.kind == "i" and value.ndim == 1 and _is_part(value.tolist()):
            yield RequestIds
    elif isinstance(value, list | tuple):
        yield from {type(each) for each in value}
        if all(isinstance(each, int) for each in value) and _is_part(list(value)):
            yield RequestIds


def boxes_among(fields: Mapping[type, set[type]]) -> set[type]:
    """The types that hold ids or parameters of the request, or another box. `fields`: what each type holds."""
    boxes: set[type] = {SamplingParams, RequestSpec}
    while more := {kind for kind, held in fields.items() if held & {RequestIds, *boxes}} - boxes:
        boxes |= more
    return boxes


def _is_part(ids: list[int]) -> bool:
    """Whether these are ids of the request: its prompt or its output, from any place on."""
    starts = ((known, at) for known in (PROMPT, _output) for at in range(len(known)))
    return len(ids) > 0 and any(known[at : at + len(ids)] == ids for known, at in starts)


def traced() -> Trace:
    """The second request of an engine: the first one loads what only a first one loads."""
    trace, real = Trace(), dict[str, str]()
    before, known = list[object](), set[int]()  # what there was: it is kept, so that nothing new has its id
    fields = defaultdict[type, set[type]](set)

    def note(frame: FrameType, event: str, value: object) -> None:
        if event not in ("call", "return"):
            return
        name = frame.f_code.co_filename
        path = real.get(name)
        if path is None:
            path = real[name] = "" if name.startswith("<") else os.path.realpath(name)
        if not path.startswith(ROOT) or path.startswith((ROOT + "tests", ROOT + ".venv")):
            return
        if event == "call":
            trace.num_calls += 1
            trace.functions.add(f"{path.removeprefix(ROOT)}:{frame.f_code.co_qualname}")
            if frame.f_code.co_qualname == ENDED:
                ended.set()
            elif ended.is_set() and frame.f_code.co_qualname == WAITS:
                idle.set()
            values = [frame.f_locals.get(arg) for arg in frame.f_code.co_varnames[: frame.f_code.co_argcount]]
        else:
            values = [value]
        for each in values:
            kind = type(each)
            is_ours = kind.__module__.startswith("ramet.") and not isinstance(each, NO_BOXES)
            if is_ours and id(each) not in known:
                fields[kind].update(found for one in fields_of(each) for found in holds(one))

    begin, ended, idle = threading.Event(), threading.Event(), threading.Event()

    def waiting(frame: FrameType, event: str, value: object) -> None:
        if begin.is_set():
            note(frame, event, value)

    threading.setprofile(waiting)  # for the threads that the engine is about to start
    try:
        with LLM(**OPTIONS) as llm:
            params = {"temperature": 0, "max_new_tokens": TOKENS, "ignore_eos": True}
            _output.extend(llm.generate([PROMPT], params)[0]["output_ids"])
            llm.flush_cache()
            llm.state()  # the scheduler is idle
            before += gc.get_objects()
            known.update(map(id, before))
            begin.set()
            sys.setprofile(note)
            llm.generate([PROMPT], params)
            sys.setprofile(None)
            assert idle.wait(TIMEOUT_S), "the scheduler does not wait for messages again"
            begin.clear()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    boxes = boxes_among(fields)
    trace.boxes = {f"{kind.__module__.removeprefix('ramet.')}.{kind.__qualname__}" for kind in boxes}
    return trace


if __name__ == "__main__":
    found = traced()
    for title, names in (("files", found.files), ("functions", found.functions), ("boxes", found.boxes)):
        print(f"\n{len(names)} {title}", *sorted(names), sep="\n  ")
    counts = len(found.files), len(found.functions), found.num_calls, len(found.boxes)
    print("\n{} files, {} functions, {} calls, {} boxes".format(*counts))
