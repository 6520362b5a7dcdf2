"""The log of requests: what is said of a request when it arrives and when it ends.

Decides the fields of each level and the two formats; a thread makes and writes the lines (log_lines.py). What a request
keeps secret (its cache salt) and keys of the server are in none of them.

    level 0   id, tokens, latency, how it ended        1   its sampling parameters, the texts in them only counted
    level 2   prompt and output, cut to MAX_CUT        3   all of both
"""

import json
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from ramet.ipc.messages import FinishKind, unpack_ids
from ramet.ipc.params import SamplingParams
from ramet.runtime import log
from ramet.runtime.config import ServeArgs
from ramet.runtime.engine_client.submission import Prompt, Sequence
from ramet.runtime.log_lines import LineWriter, LoggerSink, RotatingFile, Sink, StdoutSink

MAX_CUT = 2048  # characters of a text, or token ids
LINE_BYTES = 1024  # that a line keeps beside its texts, about
PLAIN = SamplingParams()
Fields = dict[str, Any]


class Settings(Struct, frozen=True):
    """What /configure_logging may change."""

    on: bool
    level: int
    format: Literal["text", "json"]
    min_ms: float | None  # only requests that took longer; None: all


class RequestLog:
    """`on` and `keeps_texts` are read with every request: they are plain attributes."""

    def __init__(self, serve: ServeArgs) -> None:
        self.writer = LineWriter([_sink(target, serve) for target in serve.log_requests_target])
        level, form = serve.log_requests_level, serve.log_requests_format
        self.change(Settings(serve.log_requests, level, form, serve.log_requests_min_ms))

    def change(self, settings: Settings) -> None:
        """For requests that begin from now on."""
        self.settings = settings
        self.on, self.keeps_texts = settings.on, settings.on and settings.level >= 2

    def begins(self, sequence: Sequence, *, is_first: bool) -> None:
        """It is about to be sent. `is_first`: of the samples of its prompt, for all of which it speaks."""
        if self.keeps_texts:
            sequence.said = []
        if is_first and self.settings.format == "json" and self.settings.min_ms is None:
            obj = _asked(sequence.prompt, self.settings.level)
            self._put({"event": "request.received", "rid": sequence.prompt.rid, "obj": obj}, "", sequence)

    def ended(self, sequence: Sequence, kind: FinishKind, latency_s: float) -> None:
        settings = self.settings
        if settings.min_ms is not None and latency_s * 1000 <= settings.min_ms:
            return
        out = {
            "finish_reason": kind.value,
            "prompt_tokens": sequence.num_prompt,
            "cached_tokens": sequence.num_cached,
            "completion_tokens": sequence.num_generated,
            "e2e_latency": round(latency_s, 6),
        }
        if sequence.said is not None and settings.level >= 2:
            out["text"] = _cut("".join([*sequence.said, *(sequence.texts or ()), sequence.tail]), settings.level)
        obj = _asked(sequence.prompt, settings.level)
        line = "" if settings.format == "json" else _line(sequence, kind, latency_s, settings.level)
        self._put({"event": "request.finished", "rid": sequence.id, "obj": obj, "out": out}, line, sequence)

    def _put(self, fields: Fields, line: str, sequence: Sequence) -> None:
        size = LINE_BYTES
        if self.settings.level >= 2:
            size += sequence.prompt.num_bytes + len(fields.get("out", {}).get("text", ""))
        make = partial(as_text, line) if line else as_json
        self.writer.put(partial(make, {"timestamp": time.time(), **fields}), size)


def _sink(target: str, serve: ServeArgs) -> Sink:
    match target:
        case "log":
            return LoggerSink()
        case "stdout":
            return StdoutSink()
        case folder:
            max_bytes = int(serve.log_requests_file_mb * (1 << 20))
            return RotatingFile(Path(folder), max_bytes, serve.log_requests_num_files)


def _cut(value: Any, level: int) -> Any:
    return value if level >= 3 else value[:MAX_CUT]


# -- on the event loop: what a line is made of, without making anything of it ------------------------------------------


def _asked(prompt: Prompt, level: int) -> Fields:
    """Of the prompt, and what is asked of it. Ids are packed."""
    fields: Fields = {"sampling_params": given(prompt.params, level)} if level >= 1 else {}
    if level >= 2 and prompt.text is not None:
        fields["text"] = _cut(prompt.text, level)
    elif level >= 2 and prompt.ids is not None:
        fields["input_ids"] = prompt.ids if level >= 3 else prompt.ids[: 4 * MAX_CUT]
    return fields


def given(params: SamplingParams, level: int = 1) -> Fields:
    """The parameters that differ from the table's defaults; stop strings are text, and below level 2 only counted."""
    found = {name: getattr(params, name) for name in params.__struct_fields__}
    changed = {name: value for name, value in found.items() if value != getattr(PLAIN, name)}
    return {name: len(v) if isinstance(v, tuple) and level < 2 else v for name, v in changed.items()}


def _line(sequence: Sequence, kind: FinishKind, latency_s: float, level: int) -> str:
    asked = " ".join(f"{name}={value}" for name, value in given(sequence.prompt.params, level).items())
    return log.request_line(
        sequence.id,
        params=(asked or "default parameters") if level >= 1 else "",
        prompt_tokens=sequence.num_prompt,
        cached_tokens=sequence.num_cached,
        completion_tokens=sequence.num_generated,
        latency_s=latency_s,
        ending=kind.value,
    )


# -- on the thread -----------------------------------------------------------------------------------------------------


def as_json(fields: Fields) -> bytes:
    readable = _readable(fields)
    try:
        return msgspec.json.encode(readable, enc_hook=repr)
    except UnicodeEncodeError:  # half a surrogate pair, which a JSON body may have and UTF-8 does not
        return json.dumps(readable, default=repr).encode()


def as_text(line: str, fields: Fields) -> bytes:
    """One line: texts are written as Python writes them, without line breaks."""
    readable = _readable(fields)
    obj, out = readable["obj"], readable["out"]
    line += "".join(f", in={obj[name]!r}" for name in ("text", "input_ids") if name in obj)
    line += f", out={out['text']!r}" if "text" in out else ""
    return line.encode("utf-8", "replace")


def _readable(fields: Fields) -> Fields:
    """With the ids as numbers and the time as text."""
    obj: Mapping[str, Any] = fields["obj"]
    ids = {"input_ids": unpack_ids(obj["input_ids"])} if "input_ids" in obj else {}
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(fields["timestamp"]))
    return {**fields, "timestamp": f"{stamp}.{int(fields['timestamp'] * 1000) % 1000:03d}Z", "obj": {**obj, **ids}}
