"""The spans of a request that has ended: the request's own, and one for each stage of each sequence. Knows no library.

    chat MODEL                       server       from the request's head until its reply is made, or a stream's end
      intake                         server       until its prompts are sent
        render                       server       waiting for the tokenizer's template and ids
      tokenize                       tokenizer    of each prompt
      queue                          scheduler    until admission
      prefill                        scheduler    until the first token
        prefill chunk                scheduler    of each step
      decode                         scheduler    until the last token
      detokenize                     detokenizer  the step that closes the sequence

Attributes follow OpenTelemetry's conventions for GenAI where they have a name, and begin with `ramet.` where not. No
text of a prompt or an output is among them.
"""

import os
from collections.abc import Mapping
from typing import NamedTuple

from ramet.ipc.spec import RequestSpec
from ramet.ipc.times import PrefillChunk
from ramet.runtime.engine_client.recording import EndedSequence, Outcome, RequestRecording

Value = str | bool | int | float | list[str]
OPERATIONS = {  # by path: what is traced, and what it is called
    "/generate": "text_completion",
    "/v1/completions": "text_completion",
    "/language/generate": "text_completion",
    "/language/select": "select",
    "/v1/chat/completions": "chat",
    "/v1/responses": "chat",
    "/v1/messages": "chat",
    "/v1/embeddings": "embeddings",
    "/v1/score": "score",
    "/score": "score",
    "/v1/rerank": "rerank",
    "/rerank": "rerank",
    "/v1/classify": "classify",
    "/classify": "classify",
    "/pooling": "pooling",
    "/encode": "encode",
}
SERVER, TOKENIZER, SCHEDULER, DETOKENIZER = "server", "tokenizer", "scheduler", "detokenizer"


class SpanRecord(NamedTuple):
    """`parent`: the place of its parent in the list of spans; None: it is the request's own."""

    name: str
    start_s: float
    end_s: float
    attributes: Mapping[str, Value]
    parent: int | None = 0
    error: str = ""  # what it failed with


class ServedFacts(NamedTuple):
    """What is the same for all requests."""

    model: str
    host: str
    port: int


def spans_of(recording: RequestRecording, served: ServedFacts) -> list[SpanRecord]:
    """The request's own comes first, and each parent before its children."""
    outcome = recording.outcome
    assert outcome is not None, "a request that has not ended"
    spans = [_own(recording, outcome, served)]
    _add_intake(spans, recording, outcome)
    for ended in sorted(recording.sequences, key=lambda each: (each.number, each.sample)):
        _add_stages(spans, ended, len(recording.sequences) > 1)
    return spans


def _own(recording: RequestRecording, outcome: Outcome, served: ServedFacts) -> SpanRecord:
    operation = OPERATIONS[recording.path]
    status = max(outcome.status, recording.failure)  # of a stream that has begun the first is 200
    attributes: dict[str, Value] = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": "ramet",
        "gen_ai.request.model": served.model,
        "gen_ai.response.model": served.model,
        "server.address": served.host,
        "server.port": served.port,
        "http.request.method": "POST",
        "http.route": recording.path,
        "http.response.status_code": outcome.status,
        **_process(SERVER, os.getpid()),
        **(_asked(recording, recording.spec) if recording.spec is not None else {}),
        **(_used(recording) if recording.num_sequences else {}),
    }
    if outcome.request_id:
        attributes["gen_ai.response.id"] = outcome.request_id
    if status >= 400:
        attributes["error.type"] = f"{status}"
    # a request whose client went away ends before the last message of its sequences comes
    end_s = max(outcome.end_s, *(_end_of(ended) for ended in recording.sequences), recording.start_s)
    return SpanRecord(
        f"{operation} {served.model}", recording.start_s, end_s, attributes, None, f"{status}" if status >= 500 else ""
    )


def _asked(recording: RequestRecording, spec: RequestSpec) -> dict[str, Value]:
    sampling = spec.params
    found: dict[str, Value] = {
        "gen_ai.request.stream": recording.is_stream,
        "gen_ai.request.max_tokens": sampling.max_new_tokens,
        "gen_ai.request.temperature": sampling.temperature,
        "gen_ai.request.top_p": sampling.top_p,
        "gen_ai.request.top_k": sampling.top_k,
        "gen_ai.request.frequency_penalty": sampling.frequency_penalty,
        "gen_ai.request.presence_penalty": sampling.presence_penalty,
        "ramet.request.prompts": recording.num_prompts,
        "ramet.request.sequences": recording.num_sequences,
    }
    if sampling.n > 1:
        found["gen_ai.request.choice.count"] = sampling.n
    if sampling.sampling_seed is not None:
        found["gen_ai.request.seed"] = sampling.sampling_seed
    if spec.lora is not None:
        found["ramet.request.adapter"] = spec.lora.name
    return found


def _used(recording: RequestRecording) -> dict[str, Value]:
    found: dict[str, Value] = {
        "gen_ai.usage.input_tokens": recording.prompt_tokens,
        "gen_ai.usage.cache_read.input_tokens": recording.cached_tokens,
        "gen_ai.usage.output_tokens": recording.new_tokens,
        "gen_ai.response.finish_reasons": recording.finish_reasons,
    }
    if recording.first_token_s:
        found["gen_ai.response.time_to_first_chunk"] = recording.first_token_s - recording.start_s
    return found


def _add_intake(spans: list[SpanRecord], recording: RequestRecording, outcome: Outcome) -> None:
    at, process = len(spans), _process(SERVER, os.getpid())
    spans.append(SpanRecord("intake", recording.start_s, recording.sent_s or outcome.end_s, process))
    for start_s, end_s in recording.rendered:
        if not recording.sent_s or end_s <= recording.sent_s:
            spans.append(SpanRecord("render", start_s, end_s, process, at))


def _add_stages(spans: list[SpanRecord], ended: EndedSequence, is_one_of_many: bool) -> None:
    """As far as it got."""
    times = ended.times
    which: dict[str, Value] = {"ramet.sequence": ended.number} if is_one_of_many else {}
    if times.tokenized is not None and ended.sample == 0:
        pid, start_s, end_s = times.tokenized.pid, times.tokenized.start_s, times.tokenized.end_s
        spans.append(SpanRecord("tokenize", start_s, end_s, {**_process(TOKENIZER, pid), **which}))
    if times.queued_s:
        _add_scheduled(spans, ended, {**_process(SCHEDULER, times.pid), **which})
    if ended.detokenized is not None:
        pid, start_s, end_s = ended.detokenized.pid, ended.detokenized.start_s, ended.detokenized.end_s
        spans.append(SpanRecord("detokenize", start_s, end_s, {**_process(DETOKENIZER, pid), **which}))


def _add_scheduled(spans: list[SpanRecord], ended: EndedSequence, process: Mapping[str, Value]) -> None:
    times, finish = ended.times, ended.finish
    spans.append(SpanRecord("queue", times.queued_s, times.admitted_s or times.ended_s, process))
    if not times.admitted_s:
        return
    prefilled_s = times.prefilled_s or times.ended_s
    prefill = len(spans)
    spans.append(SpanRecord("prefill", times.admitted_s, prefilled_s, process))
    spans += [_chunk(chunk, process, prefill) for chunk in times.chunks if chunk.end_s <= prefilled_s]
    if times.prefilled_s:
        decode, retractions = len(spans), finish.num_retractions if finish is not None else 0
        more: dict[str, Value] = {"ramet.retractions": retractions} if retractions else {}
        spans.append(SpanRecord("decode", prefilled_s, times.ended_s, {**process, **more}))
        # what is computed again after a retraction
        spans += [_chunk(chunk, process, decode) for chunk in times.chunks if chunk.end_s > prefilled_s]


def _chunk(chunk: PrefillChunk, process: Mapping[str, Value], parent: int) -> SpanRecord:
    attributes = {**process, "ramet.tokens": chunk.num_tokens}
    return SpanRecord("prefill chunk", chunk.start_s, chunk.end_s, attributes, parent)


def _process(name: str, pid: int) -> dict[str, Value]:
    return {"ramet.process": name, "process.pid": pid}


def _end_of(ended: EndedSequence) -> float:
    return ended.detokenized.end_s if ended.detokenized is not None else ended.times.ended_s
