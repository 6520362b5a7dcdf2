"""Calls and their answers in a file: recorded once, then answered from there, for tests without a model."""

import hashlib
import os
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from ramet.frontend.backends.base import Backend, Capabilities, Completion, GenCall, OnText, SelectCall, Selection
from ramet.frontend.errors import BackendError
from ramet.frontend.loop import Loop
from ramet.frontend.prompt import Prompt
from ramet.frontend.written import as_json, written

ALL = Capabilities(
    held=frozenset({"regex", "json_schema", "ebnf", "structural_tag"}), media=frozenset({"image", "video", "audio"})
)
SHOWN = 60  # characters of a prompt in an error


class Entry(msgspec.Struct, omit_defaults=True):
    """A line of the file. `prompt`: its pieces; `call`: what was asked; one of the others is the answer."""

    prompt: list[Any]
    call: dict[str, Any]
    outputs: list[Completion] | None = None
    chosen: int | None = None
    meta: dict[str, Any] = {}


class Replay(Backend):
    """`recorded`: a file of JSON lines, or entries (dicts) of that form.

    The same call gets the same answer, and calls that are equal get theirs in the recorded order. A call that is not
    there is an error, or where `record` is given, it is asked of that backend and written to the file. `strict`: a
    call is the same if its prompt and all of its parameters are; False: its prompt and choices suffice. Raises
    ValueError for a line that is no entry, and OSError.
    """

    name = "Replay"

    def __init__(
        self,
        recorded: str | os.PathLike[str] | Iterable[Mapping[str, Any]],
        record: Backend | None = None,
        strict: bool = True,
    ) -> None:
        self._path = os.fspath(recorded) if isinstance(recorded, str | os.PathLike) else None
        self._record, self._strict = record, strict
        self._lock = threading.Lock()
        self._entries: dict[str, list[Entry]] = defaultdict(list)
        self._num_asked: dict[str, int] = defaultdict(int)
        self.capabilities = ALL
        if record is not None:  # hints would be told of calls that it never gets
            self.capabilities = replace(record.capabilities, prefixes=False, follow_ups=False, renders=False)
        for entry in self._read(recorded):
            self._entries[self._key(entry.prompt, entry.call)].append(entry)

    @property
    def loop(self) -> Loop:
        return self._record.loop if self._record is not None else super().loop

    async def generate(self, prompt: Prompt, call: GenCall, on_text: OnText | None = None) -> list[Completion]:
        asked = {
            "gen": dict(call.sampling),
            "options": dict(call.options),
            "held": None if call.held is None else [call.held.kind, call.held.value],
            "dtype": None if call.kind is None else call.kind.__name__,
            "thoughts": call.thoughts,
        }
        entry = self._found(prompt, asked)
        if entry is not None and entry.outputs is not None:
            outputs = [Completion(each.text, dict(each.meta), each.thought) for each in entry.outputs]
            if on_text is not None:
                on_text(outputs[0].text)
            return outputs
        outputs = await self._recorder(prompt, asked).generate(prompt, call, on_text)
        self._write(Entry(written(prompt), asked, outputs=outputs))
        return outputs

    async def select(self, prompt: Prompt, call: SelectCall) -> Selection:
        method = call.method if isinstance(call.method, str) else getattr(call.method, "__qualname__", "")
        asked = {
            "select": list(call.choices),
            "method": method,
            "temperature": call.temperature,
            "options": dict(call.options),
        }
        entry = self._found(prompt, asked)
        if entry is not None and entry.chosen is not None:
            return Selection(entry.chosen, dict(entry.meta))
        selection = await self._recorder(prompt, asked).select(prompt, call)
        self._write(Entry(written(prompt), asked, chosen=selection.index, meta=selection.meta))
        return selection

    async def flush_cache(self) -> None:
        if self._record is not None:
            await self._record.flush_cache()

    async def close(self) -> None:
        if self._record is not None:
            await self._record.close()

    def _found(self, prompt: Prompt, asked: Mapping[str, Any]) -> Entry | None:
        """The next answer to this call; None: there is no further one."""
        key = self._key(written(prompt), asked)
        with self._lock:
            number = self._num_asked[key]
            self._num_asked[key] += 1
            known = self._entries.get(key, [])
            return known[number] if number < len(known) else None

    def _recorder(self, prompt: Prompt, asked: Mapping[str, Any]) -> Backend:
        """Raises BackendError where none is given."""
        if self._record is not None:
            return self._record
        known = self._entries.get(self._key(written(prompt), asked))
        if known:
            raise BackendError(self.name, f"this call was recorded {len(known)} times, and is asked once more")
        raise BackendError(self.name, f"this call was not recorded; {self._nearest(prompt, asked)}")

    def _nearest(self, prompt: Prompt, asked: Mapping[str, Any]) -> str:
        """What the recorded call that is most like it has instead."""
        entries = [entry for entries in self._entries.values() for entry in entries]
        if not entries:
            return "nothing was"
        here = _text(written(prompt))
        num, nearest = max(((_num_common(_text(entry.prompt), here), entry) for entry in entries), key=lambda e: e[0])
        there = _text(nearest.prompt)
        if there != here:
            shown = f"has {there[num : num + SHOWN]!r}, and this one {here[num : num + SHOWN]!r}"
            return f"the nearest prompt agrees in {num} characters, then {shown}"
        differing = [
            name for name in {**nearest.call, **asked} if _json(nearest.call.get(name)) != _json(asked.get(name))
        ]
        return f"one with the same prompt was, with other {', '.join(differing) or 'turns'}"

    def _read(self, recorded: Any) -> list[Entry]:
        if self._path is None:
            return [msgspec.convert(entry, Entry) for entry in recorded]
        if not os.path.exists(self._path) and self._record is not None:
            return []
        entries = []
        with open(self._path, "rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    entries.append(msgspec.json.decode(line, type=Entry))
                except msgspec.DecodeError as error:
                    raise ValueError(f"{self._path}, line {number}: {error}") from None
        return entries

    def _write(self, entry: Entry) -> None:
        """To the file, and to no memory: a call that is equal is asked anew, as it was when it was recorded."""
        if self._path is not None:
            line = msgspec.json.encode(entry, enc_hook=as_json) + b"\n"
            with self._lock, open(self._path, "ab") as file:
                file.write(line)

    def _key(self, prompt: Sequence[Any], call: Mapping[str, Any]) -> str:
        same = call if self._strict else {name: call[name] for name in ("select",) if name in call}
        return hashlib.sha256(_json([prompt, sorted(same.items())])).hexdigest()


def _json(value: Any) -> bytes:
    return msgspec.json.encode(value, enc_hook=as_json, order="deterministic")


def _text(prompt: Sequence[Any]) -> str:
    return "".join(piece for piece in prompt if isinstance(piece, str))


def _num_common(one: str, other: str) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))
