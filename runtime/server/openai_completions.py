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

from ramet.ipc.params import ParamError, SamplingParams, parse
from ramet.runtime.errors import ClientError
from ramet.runtime.server import problems, prompts, sse
from ramet.runtime.server.body import convert, read_object
from ramet.runtime.server.openai_other import check_model
from ramet.runtime.server.openai_types import CompletionBody, ending, usage
from ramet.runtime.server.service import Service
from ramet.runtime.server.submission import Prompt, Sequence

DEFAULT_MAX_TOKENS = 16
RENAMED = {"max_tokens": "max_new_tokens", "min_tokens": "min_new_tokens", "seed": "sampling_seed"}
SAMPLING = (
    "n", "max_tokens", "temperature", "top_p", "stop", "seed", "frequency_penalty", "presence_penalty", "logit_bias",
    "min_tokens", "stop_token_ids", "stop_regex", "top_k", "min_p", "repetition_penalty", "sampling_seed", "ignore_eos",
    "skip_special_tokens", "spaces_between_special_tokens", "no_stop_trim", "json_schema", "regex", "ebnf",
    "structural_tag", "custom_params",
)  # fmt: skip
UNBUILT: dict[str, tuple[Any, ...]] = {
    "suffix": ("",), "logprobs": (False,), "response_format": ({"type": "text"},), "custom_logit_processor": ("",),
    "grammar_backend": (), "lora_path": ("",), "cache_salt": ("",), "extra_key": ("",), "priority": (0,),
    "return_hidden_states": (False,),
}  # fmt: skip


async def completions(service: Service, request: web.Request) -> web.StreamResponse:
    """OpenAI's text completions, whole or as a stream with one event per token."""
    body = convert(await read_object(request), CompletionBody)
    model = check_model(service, body.model)
    params = read_params(body, service.defaults)
    rid = f"cmpl-{prompts.new_id()}" if body.rid is None else prompts.check_rid("rid", body.rid)
    items = read_prompts(body, rid, params, service.client.limits.vocab_size)
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
    return ClientError(place, error.fact, error.hint)


async def _echo(service: Service, item: Prompt) -> str:
    if item.text is not None:
        return item.text
    assert item.ids is not None
    return await service.client.detokenize(item.ids, item.params.skip_special_tokens)


def _whole(sequence: Sequence, echo: str) -> dict[str, Any]:
    texts, _ = sequence.take()
    assert sequence.finish is not None
    text = echo + "".join(texts) + sequence.tail
    return {"index": sequence.index, "text": text, "logprobs": None, **ending(sequence.finish)}


class Choice:
    """The chunks of one sequence: `head` and `tail` are the bytes around the text of a token."""

    def __init__(self, sequence: Sequence, frame: dict[str, Any], echo: str, with_usage: bool) -> None:
        # the frame is cut open before its closing brace, and the choice after its text
        start = orjson.dumps({**frame, "choices": [{"index": sequence.index, "text": ""}]})
        self.head = b"data: " + start[: -len(b'""}]}')]
        self.after = b"}]" + (b',"usage":null' if with_usage else b"") + b"}\n\n"
        self.tail = b',"logprobs":null,"finish_reason":null,"matched_stop":null' + self.after
        self.echo = echo

    def events(self, sequence: Sequence) -> bytes:
        """One event per token; the last one tells how the sequence ended."""
        texts, _ = sequence.take()
        if self.echo:
            texts[:1] = [self.echo + (texts[0] if texts else "")]
            self.echo = ""
        if sequence.finish is None:
            return b"".join([self.head + orjson.dumps(text) + self.tail for text in texts])
        last = (texts.pop() if texts else "") + sequence.tail
        closing = b',"logprobs":null,' + orjson.dumps(ending(sequence.finish))[1:-1] + self.after
        return (
            b"".join([self.head + orjson.dumps(text) + self.tail for text in texts])
            + self.head
            + orjson.dumps(last)
            + closing
        )


def _events(choices: list[Choice], fresh: list[Sequence]) -> bytes:
    if len(fresh) == 1:
        return choices[fresh[0].index].events(fresh[0])
    return b"".join([choices[sequence.index].events(sequence) for sequence in fresh])


def _usage_event(frame: dict[str, Any], sequences: list[Sequence]) -> Callable[[], bytes]:
    return lambda: b"data: " + orjson.dumps({**frame, "choices": [], "usage": usage(sequences)}) + b"\n\n"
