"""One request to a server, and the timeline of its answer. Two dialects: /generate and /v1/completions.

Decides what counts as the arrival of a token. An event that says how many tokens there are so far is believed; one
that does not counts as one token if it carries text. To cost little beside the server, a stream is not parsed while it
runs: the count is found as bytes, and JSON is read once, at the end.
"""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson

from ramet.bench.datasets import DatasetPrompt
from ramet.bench.metrics import Timeline
from ramet.bench.sse import DONE, EventSplitter

# Request fields of /generate; everything else in an extra body is a sampling parameter.
NATIVE_FIELDS = frozenset(
    ("rid", "return_logprob", "logprob_start_len", "top_logprobs_num", "token_ids_logprob", "return_text_in_logprobs",
     "lora_path", "custom_logit_processor", "return_hidden_states", "return_routed_experts", "session_params",
     "priority", "extra_key", "cache_salt", "grammar_backend", "token_healing", "prefix_lease_s")
)  # fmt: skip
_COUNT = re.compile(rb'"completion_tokens":\s*(\d+)')
_COUNT_KEY = b'"completion_tokens":'  # cannot occur inside a JSON string, where its quotes are escaped
_NO_CHOICE = re.compile(rb'"choices":\s*\[\s*\]')
_NO_TEXT = re.compile(rb'"text":\s*""')


@dataclass(frozen=True)
class Sampling:
    """What every request of a run asks for beside its prompt."""

    model: str
    stream: bool = True
    ignore_eos: bool = True
    extra: Mapping[str, Any] = field(default_factory=dict)


class NativeApi:
    """/generate of ramet and SGLang: an event carries the whole answer so far (or what is new, if `incremental`)."""

    path = "/generate"

    def __init__(self, incremental: bool = False) -> None:
        self.incremental = incremental

    def body(self, prompt: DatasetPrompt, sampling: Sampling) -> dict[str, Any]:
        params = {"temperature": 0.0, "max_new_tokens": prompt.output_len, "ignore_eos": sampling.ignore_eos}
        extra = dict(sampling.extra)
        params |= extra.pop("sampling_params", {})
        params |= {k: extra.pop(k) for k in list(extra) if k not in NATIVE_FIELDS}
        asked = {"text": prompt.text} if prompt.ids is None else {"input_ids": prompt.ids}
        return {**asked, "sampling_params": params, "stream": sampling.stream, **extra}

    def keep(self, events: list[bytes], event: bytes) -> None:
        if not self.incremental:
            events.clear()
        events.append(event)

    def finish(self, line: Timeline, events: list[bytes]) -> None:
        replies = [orjson.loads(event) for event in events]
        meta = replies[-1]["meta_info"]
        line.text = "".join(reply["text"] for reply in replies)
        line.prompt_tokens, line.completion_tokens = meta["prompt_tokens"], meta["completion_tokens"]
        line.cached_tokens = meta.get("cached_tokens") or 0
        reason = meta["finish_reason"] or {}
        if reason.get("type") == "abort":
            line.error = f"aborted: {reason.get('message', '')}"


class Completions:
    """/v1/completions of any OpenAI-compatible server: deltas, then one event with the usage.

    Not `extended`, only fields of OpenAI's own are sent, as it refuses others: there is no ignore_eos.
    """

    path = "/v1/completions"

    def __init__(self, extended: bool = True) -> None:
        self.extended = extended

    def body(self, prompt: DatasetPrompt, sampling: Sampling) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": sampling.model,
            "prompt": prompt.text if prompt.ids is None else prompt.ids,
            "temperature": 0.0,
            "max_tokens": prompt.output_len,
            "stream": sampling.stream,
        }
        if sampling.stream:
            body["stream_options"] = {"include_usage": True}
        if sampling.ignore_eos and self.extended:
            body["ignore_eos"] = True
        return body | dict(sampling.extra)

    def keep(self, events: list[bytes], event: bytes) -> None:
        events.append(event)

    def finish(self, line: Timeline, events: list[bytes]) -> None:
        replies = [orjson.loads(event) for event in events]
        choices = [choice for reply in replies for choice in reply.get("choices") or []]
        line.text = "".join(choice.get("text") or "" for choice in choices)
        if any(choice.get("finish_reason") == "abort" for choice in choices):
            line.error = "aborted"
        usage = next((reply["usage"] for reply in reversed(replies) if reply.get("usage")), None)
        if usage is None:
            line.completion_tokens = line.counts[-1] if line.counts else 0
            return
        line.prompt_tokens, line.completion_tokens = usage["prompt_tokens"], usage["completion_tokens"]
        line.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0


Dialect = NativeApi | Completions


async def ask(session: aiohttp.ClientSession, url: str, body: bytes, dialect: Dialect, stream: bool) -> Timeline:
    """Send one request and follow it to its end. Whatever goes wrong is the timeline's `error`."""
    return await follow(Timeline(start=time.perf_counter()), session, url, body, dialect, stream)


async def follow(
    line: Timeline, session: aiohttp.ClientSession, url: str, body: bytes, dialect: Dialect, stream: bool
) -> Timeline:
    """As `ask`, on a timeline that can be read meanwhile."""
    try:
        async with session.post(url, data=body) as response:
            if response.status != 200:
                line.error = f"HTTP {response.status}: {_one_line(await response.text())}"
            elif stream:
                await _follow(response, line, dialect)
            else:
                _whole(await response.read(), line, dialect)
    except (aiohttp.ClientError, OSError) as error:
        line.error = f"{type(error).__name__}: {_one_line(str(error))}"
    except (ValueError, KeyError, IndexError, TypeError) as error:
        line.error = f"the answer cannot be read: {error!r}"
    line.end = line.end or time.perf_counter()
    return line


async def _follow(response: aiohttp.ClientResponse, line: Timeline, dialect: Dialect) -> None:
    splitter, done = EventSplitter(), False
    events: list[bytes] = []
    async for piece in response.content.iter_any():
        now = time.perf_counter()
        for event in splitter.feed(piece):
            if event == DONE:
                done = True
            elif event.startswith(b'{"error"'):
                line.error = _one_line(event.decode(errors="replace"))
            else:
                note_event(line, event, now)
                dialect.keep(events, event)
    line.end = time.perf_counter()
    if line.error:
        return
    if not done or not events:
        line.error = "the stream ended before [DONE]"
        return
    dialect.finish(line, events)


def note_event(line: Timeline, event: bytes, now: float) -> None:
    """What this event says about tokens. A closing usage event brings none."""
    if _NO_CHOICE.search(event, 0, 400):
        return
    key = event.rfind(_COUNT_KEY)
    if key >= 0:
        match = _COUNT.match(event, key)
        assert match, "the key was found, so the pattern that begins with it matches"
        count = int(match[1])
    elif _NO_TEXT.search(event):
        return
    else:
        count = (line.counts[-1] if line.counts else 0) + 1
    if count:
        line.note(now, count)


def _whole(reply: bytes, line: Timeline, dialect: Dialect) -> None:
    """An answer that was not streamed arrives all at once: its first token is its last."""
    line.end = time.perf_counter()
    dialect.finish(line, [reply])
    if line.completion_tokens:
        line.note(line.end, line.completion_tokens)


def _one_line(text: str) -> str:
    return " ".join(text.split())[:200]
