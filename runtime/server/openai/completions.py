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
from ramet.ipc.params import MAX_SAMPLES
from ramet.ipc.spec import LogprobSpec, RequestSpec
from ramet.runtime.engine_client.submission import Prompt, Sequence
from ramet.runtime.errors import ClientError
from ramet.runtime.intake import prompts
from ramet.runtime.intake.body import convert
from ramet.runtime.intake.sampling import read_params
from ramet.runtime.intake.specs import read_spec
from ramet.runtime.logprobs import LogprobLists
from ramet.runtime.server.http import problems, request_ids, sse
from ramet.runtime.server.http.model_names import check_model
from ramet.runtime.server.http.request_body import read_object
from ramet.runtime.server.http.service import Service
from ramet.runtime.server.openai.logprobs import CompletionLogprobs, read_logprobs
from ramet.runtime.server.openai.types import CompletionBody, ending, usage

DEFAULT_MAX_TOKENS = 16
NOT_ENDED = {"finish_reason": None, "matched_stop": None}


async def completions(service: Service, request: web.Request) -> web.StreamResponse:
    """OpenAI's text completions, whole or as a stream with one event per token."""
    body = convert(await read_object(request), CompletionBody)
    model = check_model(service, body.model)
    params = read_params(asdict(body), replace(service.defaults, max_new_tokens=DEFAULT_MAX_TOKENS))
    best_of = _best_of(body, params.n)
    rid = request_ids.of_request(request, f"cmpl-{prompts.new_id()}", body.rid)
    logprobs = read_logprobs(body.logprobs, bool(body.echo))
    ranked = best_of > params.n
    processors_on = service.args.execute.enable_custom_logit_processor
    asked = logprobs or (LogprobSpec() if ranked else None)
    spec = read_spec(body, replace(params, n=best_of), processors_on, asked, body.return_hidden_states)
    items = read_prompts(body, rid, spec, service.client.limits.vocab_size)
    echoes = [await _echo(service, item) for item in items] if body.echo else [""] * len(items)
    frame = {"id": rid, "object": "text_completion", "created": int(time.time()), "model": model}
    with service.client.submit(items, streaming=bool(body.stream)) as submission:
        if body.stream:
            with_usage = body.stream_options is not None and bool(body.stream_options.include_usage)
            choices = [Choice(s, frame, echoes[s.index // params.n], with_usage) for s in submission.sequences]
            last = _usage_event(frame, submission.sequences) if with_usage else bytes
            return await sse.stream(
                request, submission, lambda fresh: _events(choices, fresh), last, failure=problems.openai_event
            )
        done = await submission.finished()
    kept = _likeliest(done, best_of, params.n) if ranked else done
    whole = [
        _whole(sequence, echoes[sequence.index // best_of], i, logprobs is not None) for i, sequence in enumerate(kept)
    ]
    return problems.reply({**frame, "choices": whole, "usage": usage(done)})


def _best_of(body: CompletionBody, n: int) -> int:
    """How many outputs of each prompt are made."""
    best_of = n if body.best_of is None else body.best_of
    if not n <= best_of <= MAX_SAMPLES:
        raise ClientError("best_of", f"is {best_of}, must be in [n, {MAX_SAMPLES}] = [{n}, {MAX_SAMPLES}]")
    if best_of > n and body.stream:
        raise ClientError("best_of", f"is {best_of}, must be n = {n} in a stream", "which are best only the end shows")
    return best_of


def _likeliest(sequences: list[Sequence], best_of: int, n: int) -> list[Sequence]:
    """Of each prompt's outputs the n whose tokens have the highest mean log-probability, the best first."""
    groups = (sequences[i : i + best_of] for i in range(0, len(sequences), best_of))
    return [sequence for group in groups for sequence in sorted(group, key=_mean_logprob, reverse=True)[:n]]


def _mean_logprob(sequence: Sequence) -> float:
    places = sequence.scores.output if sequence.scores is not None else []
    return sum(place.token[0] or 0.0 for place in places) / max(1, len(places))


def read_prompts(body: CompletionBody, rid: str, spec: RequestSpec, vocab_size: int) -> list[Prompt]:
    contents, _ = prompts.read_contents("prompt", body.prompt, vocab_size)
    prompts.check_count("prompt", len(contents) * spec.params.n)
    return [Prompt(rid, spec, place=place, **prompts.as_fields(content)) for place, content in contents]


async def _echo(service: Service, item: Prompt) -> str:
    if item.text is not None:
        return item.text
    assert item.ids is not None
    return await service.client.detokenize(item.ids, item.params.skip_special_tokens)


def _whole(sequence: Sequence, echo: str, index: int, with_logprobs: bool) -> dict[str, Any]:
    texts, _ = sequence.take()
    assert sequence.finish is not None
    text = echo + "".join(texts) + sequence.tail
    logprobs = None
    if sequence.scores is not None and with_logprobs:
        logprobs = CompletionLogprobs().take([*sequence.scores.prompt, *sequence.scores.output])
    return {"index": index, "text": text, "logprobs": logprobs, **_closed(sequence, sequence.finish)}


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

    def _scored_events(self, sequence: Sequence, texts: list[str], first: int, scores: LogprobLists) -> bytes:
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
