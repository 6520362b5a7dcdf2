"""POST /v1/completions.

Decides how OpenAI's fields become sampling parameters, and how choices and chunks look. A streamed token is one event:
everything around its text is made once per choice.
"""

import time
from collections.abc import Callable
from typing import Any

import orjson
from aiohttp import web
from msgspec.structs import asdict, replace

from ramet.ipc.messages import Finish
from ramet.ipc.params import ParamError, SamplingParams, parse
from ramet.runtime.errors import ClientError
from ramet.runtime.scores import ScoreLists
from ramet.runtime.server import problems, prompts, sse
from ramet.runtime.server.body import convert, read_object
from ramet.runtime.server.extras import Extras, checked_processor, in_int32, namespace_of, which_hidden
from ramet.runtime.server.openai_logprobs import CompletionLogprobs, read_logprobs
from ramet.runtime.server.openai_other import check_model
from ramet.runtime.server.openai_types import CompletionBody, ending, usage
from ramet.runtime.server.service import Service
from ramet.runtime.server.submission import Prompt, Sequence

DEFAULT_MAX_TOKENS = 16
NOT_ENDED = {"finish_reason": None, "matched_stop": None}
RENAMED = {"max_tokens": "max_new_tokens", "min_tokens": "min_new_tokens", "seed": "sampling_seed"}
SAMPLING = (
    "n", "max_tokens", "temperature", "top_p", "stop", "seed", "frequency_penalty", "presence_penalty", "logit_bias",
    "min_tokens", "stop_token_ids", "stop_regex", "top_k", "min_p", "repetition_penalty", "sampling_seed", "ignore_eos",
    "skip_special_tokens", "spaces_between_special_tokens", "no_stop_trim", "json_schema", "regex", "ebnf",
    "structural_tag", "custom_params",
)  # fmt: skip
UNBUILT: dict[str, tuple[Any, ...]] = {
    "suffix": ("",), "response_format": ({"type": "text"},),
    "grammar_backend": (), "lora_path": ("",),
}  # fmt: skip


async def completions(service: Service, request: web.Request) -> web.StreamResponse:
    """OpenAI's text completions, whole or as a stream with one event per token."""
    body = convert(await read_object(request), CompletionBody)
    model = check_model(service, body.model)
    params = read_params(body, service.defaults)
    rid = f"cmpl-{prompts.new_id()}" if body.rid is None else prompts.check_rid("rid", body.rid)
    extras = read_extras(body, service.args.execute.enable_custom_logit_processor)
    items = [
        item._replace(**extras._asdict()) for item in read_prompts(body, rid, params, service.client.limits.vocab_size)
    ]
    echoes = [await _echo(service, item) for item in items] if body.echo else [""] * len(items)
    frame = {"id": rid, "object": "text_completion", "created": int(time.time()), "model": model}
    with service.client.submit(items, streaming=bool(body.stream)) as submission:
        if body.stream:
            with_usage = body.stream_options is not None and bool(body.stream_options.include_usage)
            choices = [Choice(s, frame, echoes[s.index // params.n], with_usage) for s in submission.sequences]
            last = _usage_event(frame, submission.sequences) if with_usage else bytes
            return await sse.stream(request, submission, lambda fresh: _events(choices, fresh), last)
        done = await submission.finished()
    whole = [_whole(sequence, echoes[sequence.index // params.n]) for sequence in done]
    return problems.reply({**frame, "choices": whole, "usage": usage(done)})


def read_params(body: CompletionBody, defaults: SamplingParams) -> SamplingParams:
    fields = asdict(body)
    prompts.refuse_unbuilt(fields, UNBUILT)
    given = {RENAMED.get(name, name): fields[name] for name in SAMPLING if fields[name] is not None}
    try:
        params = parse(given, replace(defaults, max_new_tokens=DEFAULT_MAX_TOKENS), "")
    except ParamError as error:
        raise _as_written(error, fields) from None
    if body.best_of not in (None, params.n):
        raise ClientError(
            "best_of", f"is {body.best_of}, must be equal to n = {params.n}", "other values are not built"
        )
    return params


def read_extras(body: CompletionBody, processors_on: bool) -> Extras:
    """What is asked beside sampling; the same of every prompt."""
    priority = in_int32("priority", body.priority or 0)
    namespace = namespace_of(body.cache_salt or "", body.extra_key or "")
    processor = checked_processor(body.custom_logit_processor or "", processors_on)
    hidden = which_hidden(body.return_hidden_states)
    return Extras(read_logprobs(body.logprobs, bool(body.echo)), priority, namespace, processor, hidden)


def read_prompts(body: CompletionBody, rid: str, params: SamplingParams, vocab_size: int) -> list[Prompt]:
    """One prompt as a string or as ids, or a list of either."""
    match body.prompt:
        case None:
            raise ClientError("prompt", "is missing, must be a string, a list of strings, or token ids")
        case str() as text:
            items = [Prompt(rid, params, text=prompts.check_text("prompt", text))]
        case [str(), *_] as texts:
            items = [
                Prompt(rid, params, text=prompts.check_text(f"prompt[{i}]", t), place=f"prompt[{i}]")
                for i, t in enumerate(texts)
            ]
        case [list(), *_] as lists:
            items = [
                Prompt(rid, params, ids=prompts.pack_checked(f"prompt[{i}]", ids, vocab_size), place=f"prompt[{i}]")
                for i, ids in enumerate(lists)
            ]
        case ids:
            items = [Prompt(rid, params, ids=prompts.pack_checked("prompt", ids, vocab_size))]
    prompts.check_count("prompt", len(items), len(items) * params.n)
    return items


def _as_written(error: ParamError, fields: dict[str, Any]) -> ClientError:
    """The error under the name that the client used."""
    place = error.name.removeprefix(".")
    for theirs, ours in RENAMED.items():
        if place.startswith(ours) and fields[theirs] is not None:
            place = place.replace(ours, theirs, 1)
    return ClientError(place, error.fact.replace("max_new_tokens", "max_tokens"), error.hint)


async def _echo(service: Service, item: Prompt) -> str:
    if item.text is not None:
        return item.text
    assert item.ids is not None
    return await service.client.detokenize(item.ids, item.params.skip_special_tokens)


def _whole(sequence: Sequence, echo: str) -> dict[str, Any]:
    texts, _ = sequence.take()
    assert sequence.finish is not None
    text = echo + "".join(texts) + sequence.tail
    logprobs = None
    if sequence.scores is not None:
        logprobs = CompletionLogprobs().take([*sequence.scores.prompt, *sequence.scores.output])
    return {"index": sequence.index, "text": text, "logprobs": logprobs, **_closed(sequence, sequence.finish)}


def _closed(sequence: Sequence, finish: Finish) -> dict[str, Any]:
    """How it ended, and what is told with the end."""
    hidden = {} if sequence.hidden is None else {"hidden_states": sequence.hidden.meta()}
    return ending(finish) | hidden


class Choice:
    """The chunks of one sequence: `head` and `tail` are the bytes around the text of a token."""

    def __init__(self, sequence: Sequence, frame: dict[str, Any], echo: str, with_usage: bool) -> None:
        # the frame is cut open before its closing brace, and the choice after its text
        start = orjson.dumps({**frame, "choices": [{"index": sequence.index, "text": ""}]})
        self.head = b"data: " + start[: -len(b'""}]}')]
        self.logprobs = CompletionLogprobs()
        self.after = b"}]" + (b',"usage":null' if with_usage else b"") + b"}\n\n"
        self.tail = b',"logprobs":null,"finish_reason":null,"matched_stop":null' + self.after
        self.echo = echo

    def events(self, sequence: Sequence) -> bytes:
        """One event per token; the last one tells how the sequence ended."""
        first = sequence.num_taken
        texts, _ = sequence.take()
        if self.echo:
            texts[:1] = [self.echo + (texts[0] if texts else "")]
            self.echo = ""
        if sequence.scores is not None:
            return self._scored_events(sequence, texts, first, sequence.scores)
        if sequence.finish is None:
            return b"".join([self.head + orjson.dumps(text) + self.tail for text in texts])
        last = (texts.pop() if texts else "") + sequence.tail
        closing = b',"logprobs":null,' + orjson.dumps(_closed(sequence, sequence.finish))[1:-1] + self.after
        return (
            b"".join([self.head + orjson.dumps(text) + self.tail for text in texts])
            + self.head
            + orjson.dumps(last)
            + closing
        )

    def _scored_events(self, sequence: Sequence, texts: list[str], first: int, scores: ScoreLists) -> bytes:
        """As `events`, each with the places of its token; the prompt's come with the first one."""
        events = [
            (text, [scores.output[first + i]] if first + i < len(scores.output) else []) for i, text in enumerate(texts)
        ]
        if sequence.finish is not None and not events:
            events = [("", [])]
        if first == 0 and scores.prompt:
            text, places = events[0] if events else ("", [])
            events[:1] = [(text, [*scores.prompt, *places])]
        written = []
        for i, (text, places) in enumerate(events):
            last = sequence.finish is not None and i == len(events) - 1
            shown = orjson.dumps(text + sequence.tail if last else text)
            end = _closed(sequence, sequence.finish) if last and sequence.finish is not None else NOT_ENDED
            logprobs = orjson.dumps(self.logprobs.take(places))
            written += [self.head, shown, b',"logprobs":', logprobs, b",", orjson.dumps(end)[1:-1], self.after]
        return b"".join(written)


def _events(choices: list[Choice], fresh: list[Sequence]) -> bytes:
    if len(fresh) == 1:
        return choices[fresh[0].index].events(fresh[0])
    return b"".join([choices[sequence.index].events(sequence) for sequence in fresh])


def _usage_event(frame: dict[str, Any], sequences: list[Sequence]) -> Callable[[], bytes]:
    return lambda: b"data: " + orjson.dumps({**frame, "choices": [], "usage": usage(sequences)}) + b"\n\n"
