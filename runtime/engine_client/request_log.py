"""The log of requests: what is said of a request when it arrives and when it ends.

Decides the fields of each level and the two formats; a thread for each target makes and writes the lines
(log_lines.py). What a request keeps secret (its cache salt) and keys of the server are in none of them; the name of its
key is.

    level 0   id, tokens, latency, how it ended        1   its sampling parameters, the texts in them only counted
    level 2   prompt and output, cut to MAX_CUT        3   all of both
"""

import json
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Struct

from ramet.ipc.messages import FinishKind, unpack_ids
from ramet.ipc.params import SamplingParams
from ramet.runtime import log
from ramet.runtime.config import ServeArgs
from ramet.runtime.engine_client.prompt import Prompt
from ramet.runtime.engine_client.submission import GeneratedSequence
from ramet.runtime.metrics.table import REQUESTS, Metrics
from ramet.runtime.workers.log_lines import LineWriter, LoggerSink, RotatingFile, StdoutSink

MAX_CUT = 2048  # characters of a text, or token ids
LINE_BYTES = 1024  # that a line keeps beside its texts, about
PLAIN = SamplingParams()
Fields = dict[str, Any]


class LogSettings(Struct, frozen=True):
    """What /configure_logging may change."""

    on: bool
    level: int
    format: Literal["text", "json"]
    min_ms: float | None  # only requests that took longer; None: all


class LogEntry(NamedTuple):
    """What a line is made of: nothing that changes any more."""

    event: str
    rid: str
    trace_id: str
    time_s: float  # Unix time
    prompt: Prompt
    out: Fields  # empty: it has not ended
    level: int


class RequestLog:
    """`on` and `keeps_texts` are read with every request: they are plain attributes."""

    def __init__(self, serve: ServeArgs, metrics: Metrics) -> None:
        self._lock, self._metrics = threading.Lock(), metrics
        self.writers = [self._writer(target, serve) for target in serve.log_requests_target]
        level, form = serve.log_requests_level, serve.log_requests_format
        self.change(LogSettings(serve.log_requests, level, form, serve.log_requests_min_ms))

    def change(self, settings: LogSettings) -> None:
        """For requests that begin from now on."""
        self.settings = settings
        self.on, self.keeps_texts = settings.on, settings.on and settings.level >= 2

    def begins(self, sequence: GeneratedSequence) -> None:
        """Log a sequence that is about to be sent. The first sample of a prompt speaks for all of them."""
        if self.keeps_texts:
            sequence.said = []
        if sequence.sample == 0 and self.settings.format == "json" and self.settings.min_ms is None:
            self._put("request.received", sequence, sequence.prompt.rid, {})

    def ended(self, sequence: GeneratedSequence, kind: FinishKind, latency_s: float) -> None:
        if self.settings.min_ms is not None and latency_s * 1000 <= self.settings.min_ms:
            return
        out = {
            "finish_reason": kind.value,
            "prompt_tokens": sequence.opened.prompt_tokens,
            "cached_tokens": sequence.opened.cached_tokens,
            "completion_tokens": sequence.num_generated,
            "e2e_latency": latency_s,
        }
        if sequence.said is not None and self.settings.level >= 2:
            out["text"] = "".join([*sequence.said, *(sequence.texts or ()), sequence.tail])
        self._put("request.finished", sequence, sequence.id, out)

    def close(self) -> None:
        """Writes what waits, for a moment at most."""
        for writer in self.writers:
            writer.close()

    def _writer(self, target: str, serve: ServeArgs) -> LineWriter:
        match target:
            case "log":
                return LineWriter(LoggerSink(), "the log of requests", self._count_lost)
            case "stdout":
                return LineWriter(StdoutSink(), "the log of requests on stdout", self._count_lost)
            case folder:
                max_bytes = int(serve.log_requests_file_mb * (1 << 20))
                file = RotatingFile(Path(folder), max_bytes, serve.log_requests_num_files)
                return LineWriter(file, f"the log of requests in {folder}", self._count_lost)

    def _count_lost(self, num: int) -> None:
        """On any thread."""
        with self._lock:
            self._metrics.dropped_lines.add(num, REQUESTS)

    def _put(self, event: str, sequence: GeneratedSequence, rid: str, out: Fields) -> None:
        prompt, trace, settings = sequence.prompt, sequence.submission.origin.trace, self.settings
        trace_id = trace.trace_id if trace is not None else ""
        size = LINE_BYTES + (prompt.num_bytes + len(out.get("text", "")) if settings.level >= 2 else 0)
        entry = LogEntry(event, rid, trace_id, time.time(), prompt, out, settings.level)
        line = partial(as_json if settings.format == "json" else as_text, entry)
        for writer in self.writers:
            writer.put(line, size)


# -- on the thread -----------------------------------------------------------------------------------------------------


def as_json(entry: LogEntry) -> bytes:
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(entry.time_s))
    fields: Fields = {"timestamp": f"{stamp}.{int(entry.time_s * 1000) % 1000:03d}Z", "event": entry.event}
    fields |= {"trace_id": entry.trace_id} if entry.trace_id else {}
    fields |= {"key": entry.prompt.spec.key_name} if entry.prompt.spec.key_name else {}
    fields |= {"rid": entry.rid, "obj": _asked(entry)}
    fields |= {"out": _told(entry)} if entry.out else {}
    try:
        return msgspec.json.encode(fields, enc_hook=repr)
    except UnicodeEncodeError:  # half a surrogate pair, which UTF-8 does not have
        return json.dumps(fields, default=repr).encode()


def as_text(entry: LogEntry) -> bytes:
    """One line: texts are written as Python writes them, without line breaks."""
    asked, out = _asked(entry), _told(entry)
    words = " ".join(f"{name}={value}" for name, value in asked.get("sampling_params", {}).items())
    line = log.request_line(
        entry.rid,
        params=(words or "default parameters") if entry.level >= 1 else "",
        prompt_tokens=out["prompt_tokens"],
        cached_tokens=out["cached_tokens"],
        completion_tokens=out["completion_tokens"],
        latency_s=out["e2e_latency"],
        ending=out["finish_reason"],
        trace_id=entry.trace_id,
    )
    line += f", key {entry.prompt.spec.key_name}" if entry.prompt.spec.key_name else ""
    line += "".join(f", in={asked[name]!r}" for name in ("text", "input_ids") if name in asked)
    line += f", out={out['text']!r}" if "text" in out else ""
    return line.encode("utf-8", "replace")


def _asked(entry: LogEntry) -> Fields:
    """The fields of the prompt and of what is asked of it."""
    prompt, level = entry.prompt, entry.level
    fields: Fields = {"sampling_params": _given(prompt.spec.params, level)} if level >= 1 else {}
    content = prompt.content
    if level >= 2 and content.text is not None:
        fields["text"] = _cut(content.text, level)
    elif level >= 2 and content.ids is not None:
        fields["input_ids"] = _cut(unpack_ids(content.ids), level)
    return fields


def _told(entry: LogEntry) -> Fields:
    out = {**entry.out, "e2e_latency": round(entry.out["e2e_latency"], 6)}
    return {**out, "text": _cut(out["text"], entry.level)} if "text" in out else out


def _cut(value: Any, level: int) -> Any:
    return value if level >= 3 else value[:MAX_CUT]


def _given(params: SamplingParams, level: int) -> Fields:
    """The parameters that differ from the table's defaults; stop strings are text, and below level 2 only counted."""
    found = {name: getattr(params, name) for name in params.__struct_fields__}
    changed = {name: value for name, value in found.items() if value != getattr(PLAIN, name)}
    return {name: len(v) if isinstance(v, tuple) and level < 2 else v for name, v in changed.items()}
