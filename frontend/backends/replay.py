"""Calls and their answers in a file: recorded once, then answered from there, for tests without a model."""

import hashlib
import os
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from ramet.frontend.backends.base import Backend, Capabilities, Completion, GenCall, OnText, SelectCall, SelectedChoice
from ramet.frontend.backends.chosen import as_backend
from ramet.frontend.errors import BackendError
from ramet.frontend.json_lines import end_last_line, whole_lines
from ramet.frontend.prompt import Prompt
from ramet.frontend.written import as_json, written
from ramet.ipc.loop_thread import LoopThread
from ramet.ipc.owned import NotCopied

ALL = Capabilities(
    held=frozenset({"regex", "json_schema", "ebnf", "structural_tag"}), media=frozenset({"image", "video", "audio"})
)
BEGINS = (b'{"capabilities":', b'{"prompt":')  # each line
SHOWN = 60  # characters of a prompt in an error


class RecordingHead(msgspec.Struct):
    """The first line of a file: what a program asked that backend for depends on it."""

    capabilities: Capabilities


class RecordedCall(msgspec.Struct, omit_defaults=True):
    """A line of the file. `prompt`: its pieces; `call`: what was asked; `outputs` or `chosen` is the answer.

    `occurrence`: how many calls with this prompt and these choices were asked before. Lines come as calls are answered.
    """

    prompt: list[Any]
    call: dict[str, Any]
    outputs: list[Completion] | None = None
    chosen: int | None = None
    meta: dict[str, Any] = {}
    occurrence: int = 0


class Replay(Backend, NotCopied):
    """`recorded`: a file of JSON lines, or entries (dicts) of that form.

    The same call gets the same answer, and calls that are equal get theirs in the order in which they were asked. A
    call that is not there is an error, or where `record` is given (a backend, or what run() takes as one), it is asked
    of that backend and written to the file. `strict`: a call is the same if its prompt and all of its parameters are;
    False: its prompt and choices suffice. Raises ValueError for a line that is no entry, OSError, and TypeError for
    what is no backend.
    """

    name = "Replay"
    only_one = "it counts which recorded answers were given; share the object, or read the file once more"
    reads_files = False

    def __init__(
        self,
        recorded: str | os.PathLike[str] | Iterable[Mapping[str, Any]],
        record: Any = None,
        strict: bool = True,
    ) -> None:
        self._path = os.fspath(recorded) if isinstance(recorded, str | os.PathLike) else None
        self._record = None if record is None else as_backend(record)
        self._strict = strict
        self._lock = threading.Lock()
        self._entries: dict[str, list[RecordedCall]] = defaultdict(list)
        self._num_asked: dict[str, int] = defaultdict(int)
        self._num_alike: dict[str, int] = defaultdict(int)  # as `occurrence` counts them
        heads, entries = self._read(recorded)
        self.capabilities = self._allowed(heads)
        for entry in sorted(entries, key=lambda entry: entry.occurrence):
            self._entries[_key(entry.prompt, entry.call, strict)].append(entry)

    @property
    def loop(self) -> LoopThread:
        return self._record.loop if self._record is not None else super().loop

    async def generate(self, prompt: Prompt, call: GenCall, on_text: OnText | None = None) -> list[Completion]:
        asked = {
            "gen": dict(call.sampling),
            "options": dict(call.options),
            "held": None if call.held is None else [call.held.kind, call.held.value],
            "dtype": None if call.kind is None else call.kind.__name__,
            "thoughts": call.thoughts,
        }
        entry, occurrence = self._found(prompt, asked)
        if entry is not None and entry.outputs is not None:
            outputs = [Completion(each.text, dict(each.meta), each.thought) for each in entry.outputs]
            if on_text is not None:
                on_text(outputs[0].text)
            return outputs
        outputs = await self._recorder(prompt, asked).generate(prompt, call, on_text)
        self._write(RecordedCall(written(prompt), asked, outputs=outputs, occurrence=occurrence))
        return outputs

    async def select(self, prompt: Prompt, call: SelectCall) -> SelectedChoice:
        method = call.method if isinstance(call.method, str) else getattr(call.method, "__qualname__", "")
        asked = {
            "select": list(call.choices),
            "method": method,
            "temperature": call.temperature,
            "options": dict(call.options),
        }
        entry, occurrence = self._found(prompt, asked)
        if entry is not None and entry.chosen is not None:
            return SelectedChoice(entry.chosen, dict(entry.meta))
        selection = await self._recorder(prompt, asked).select(prompt, call)
        entry = RecordedCall(written(prompt), asked, chosen=selection.index, meta=selection.meta, occurrence=occurrence)
        self._write(entry)
        return selection

    async def flush_cache(self) -> None:
        if self._record is not None:
            await self._record.flush_cache()

    async def close(self) -> None:
        if self._record is not None:
            await self._record.close()

    def _allowed(self, heads: Sequence[RecordingHead]) -> Capabilities:
        if self._record is not None:  # hints would be told of calls that it never gets
            return replace(self._record.capabilities, prefixes=False, follow_ups=False, renders=False)
        return heads[0].capabilities if heads else ALL

    def _found(self, prompt: Prompt, asked: Mapping[str, Any]) -> tuple[RecordedCall | None, int]:
        """The next answer to this call, None where there is no further one; and which occurrence of it this is."""
        pieces = written(prompt)
        key, alike = _key(pieces, asked, self._strict), _key(pieces, asked, strict=False)
        with self._lock:
            number, occurrence = self._num_asked[key], self._num_alike[alike]
            self._num_asked[key] += 1
            self._num_alike[alike] += 1
            known = self._entries.get(key, [])
            return known[number] if number < len(known) else None, occurrence

    def _recorder(self, prompt: Prompt, asked: Mapping[str, Any]) -> Backend:
        """Raises BackendError where none is given."""
        if self._record is not None:
            return self._record
        known = self._entries.get(_key(written(prompt), asked, self._strict))
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

    def _read(self, recorded: Any) -> tuple[list[RecordingHead], list[RecordedCall]]:
        """A further head, as of files that were put together, counts for nothing."""
        heads, entries = list[RecordingHead](), list[RecordedCall]()
        for number, line in enumerate(self._lines(recorded), 1):
            try:
                made = msgspec.json.decode(line) if isinstance(line, bytes) else line
                if isinstance(made, Mapping) and "capabilities" in made:
                    heads.append(msgspec.convert(made, RecordingHead))
                else:
                    entries.append(msgspec.convert(made, RecordedCall))
            except msgspec.DecodeError as error:
                raise ValueError(f"{self._path or 'recorded'}, line {number}: {error}") from None
        if self._path is not None and self._record is not None and os.path.exists(self._path):
            end_last_line(self._path, BEGINS)
        return heads, entries

    def _lines(self, recorded: Any) -> Iterable[Any]:
        if self._path is None:
            return list(recorded)
        if not os.path.exists(self._path) and self._record is not None:
            return []
        return whole_lines(self._path, BEGINS)

    def _write(self, entry: RecordedCall) -> None:
        """To the file, and to no memory: a call that is equal is asked anew, as it was when it was recorded."""
        if self._path is not None:
            line = _json(entry) + b"\n"
            with self._lock, open(self._path, "ab") as file:
                if file.tell() == 0:
                    file.write(_json(RecordingHead(self.capabilities)) + b"\n")
                file.write(line)


def _key(prompt: Sequence[Any], call: Mapping[str, Any], strict: bool) -> str:
    same = call if strict else {name: call[name] for name in ("select",) if name in call}
    return hashlib.sha256(_json([list(map(_content, prompt)), sorted(same.items())])).hexdigest()


def _content(piece: Any) -> Any:
    """Media whose content is known are the same wherever they lie."""
    if isinstance(piece, Mapping) and "sha256" in piece:
        return {name: value for name, value in piece.items() if name != "source"}
    return piece


def _json(value: Any) -> bytes:
    return msgspec.json.encode(value, enc_hook=as_json, order="deterministic")


def _text(prompt: Sequence[Any]) -> str:
    return "".join(piece for piece in prompt if isinstance(piece, str))


def _num_common(one: str, other: str) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))
