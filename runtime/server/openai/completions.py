"""POST /v1/completions. In a stream a token is one event, and the bytes around its text are made once per choice."""

import math
import time
from functools import partial

from aiohttp import web
from msgspec.structs import replace

from ramet.ipc.messages import Limits
from ramet.ipc.params import MAX_SAMPLES
from ramet.ipc.spec import LogprobSpec, RequestSpec
from ramet.runtime.engine_client.submission import Prompt, Sequence
from ramet.runtime.errors import ClientError
from ramet.runtime.intake import prompts
from ramet.runtime.logprobs import Place
from ramet.runtime.server.http import sse
from ramet.runtime.server.http.asked import read_asked, read_sampling
from ramet.runtime.server.http.exchange import encode, read_body, respond
from ramet.runtime.server.http.service import Service
from ramet.runtime.server.openai import replies
from ramet.runtime.server.openai.types import CompletionBody

DEFAULT_MAX_TOKENS = 16


async def completions(service: Service, request: web.Request) -> web.StreamResponse:
    """OpenAI's text completions, whole or as a stream with one event per token."""
    body = await read_body(request, CompletionBody)
    params = read_sampling(service, body, max_new_tokens=DEFAULT_MAX_TOKENS)
    n, best_of = params.n, _best_of(body, params.n)
    wanted = _logprobs(body)
    logprobs = wanted or (LogprobSpec() if best_of > n else None)
    sampled = replace(params, n=best_of)
    asked = read_asked(service, request, body, "cmpl-", sampled, logprobs, body.return_hidden_states)
    items = read_prompts(body, asked.rid, asked.spec, service.client.limits)
    echoes = [await _echo(service, item) for item in items] if body.echo else [""] * len(items)
    reply = replies.CompletionReply(id=asked.rid, created=int(time.time()), model=asked.model, choices=[])
    with service.client.submit(items, streaming=bool(body.stream)) as submission:
        if body.stream:
            chunk = replace(reply, usage=None) if body.with_usage else reply
            choices = [Choice(s, s.index, echoes[s.index // n], chunk) for s in submission.sequences]
            last = partial(replies.last_chunk, chunk, submission.sequences)
            return await sse.stream(request, submission, [choice.events for choice in choices], last)
        done = await submission.finished()
    kept = likeliest(done, best_of, n) if best_of > n else done
    whole = [Choice(s, i, echoes[i // n], reply).whole(wanted is not None) for i, s in enumerate(kept)]
    return respond(replace(reply, choices=whole, usage=replies.usage_of(done)))


def _logprobs(body: CompletionBody) -> LogprobSpec | None:
    if body.logprobs is None or body.logprobs is False:
        return None
    return LogprobSpec(0 if body.echo else None, int(body.logprobs), texts=True)


def _best_of(body: CompletionBody, n: int) -> int:
    """How many outputs of each prompt are made."""
    best_of = n if body.best_of is None else body.best_of
    if not n <= best_of <= MAX_SAMPLES:
        raise ClientError("best_of", f"is {best_of}, must be in [n, {MAX_SAMPLES}] = [{n}, {MAX_SAMPLES}]")
    if best_of > n and body.stream:
        raise ClientError("best_of", f"is {best_of}, must be n = {n} in a stream", "which are best only the end shows")
    return best_of


def likeliest(sequences: list[Sequence], best_of: int, n: int) -> list[Sequence]:
    """Of each prompt's outputs the n whose tokens have the highest mean log-probability, the best first."""
    groups = (sequences[i : i + best_of] for i in range(0, len(sequences), best_of))
    return [sequence for group in groups for sequence in sorted(group, key=_mean_logprob, reverse=True)[:n]]


def _mean_logprob(sequence: Sequence) -> float:
    """Of its tokens; an output without any comes last."""
    places = sequence.logprobs.output if sequence.logprobs is not None else []
    return sum(place.token[0] or 0.0 for place in places) / len(places) if places else -math.inf


def read_prompts(body: CompletionBody, rid: str, spec: RequestSpec, limits: Limits) -> list[Prompt]:
    prompts.check_prompts("prompt", body.prompt)
    contents, _ = prompts.read_contents("prompt", body.prompt, limits)
    items = [
        Prompt(rid, spec, place=place, entry=place.removeprefix("prompt"), **content) for place, content in contents
    ]
    prompts.check_count("prompt", sum(item.params.n for item in items))
    return items


async def _echo(service: Service, item: Prompt) -> str:
    if item.text is not None:
        return item.text
    assert item.ids is not None
    return await service.client.detokenize(item.ids, item.params.skip_special_tokens)


class Choice:
    """One sequence, whole or as chunks. Without log-probabilities the chunks differ only in their text."""

    def __init__(self, sequence: Sequence, index: int, echo: str, reply: replies.CompletionReply) -> None:
        """`reply`: what all chunks have in common."""
        self._sequence, self._index, self._echo, self._reply = sequence, index, echo, reply
        self._offset = 0  # characters of the text whose places were read
        self._frame = sse.frame(replace(reply, choices=[self._choice(sse.HOLE)]))

    def whole(self, with_logprobs: bool) -> replies.CompletionChoice:
        texts, _ = self._sequence.take()
        lists = self._sequence.logprobs if with_logprobs else None
        places = [*lists.prompt, *lists.output] if lists is not None else None
        return self._choice(self._echo + "".join(texts) + self._sequence.tail, places, ended=True)

    def events(self) -> bytes:
        """One event per token; the last one shows how the sequence ended. The prompt's places come with the first."""
        sequence, first = self._sequence, self._sequence.num_taken
        texts = sequence.take()[0] or [""]
        ended, lists = sequence.finish is not None, sequence.logprobs
        if first == 0:
            texts[0] = self._echo + texts[0]
        if ended:
            texts[-1] += sequence.tail
        if lists is None:
            head, tail = self._frame
            last = self._event(texts.pop(), None, ended=True) if ended else b""
            return b"".join([head + encode(text) + tail for text in texts]) + last
        events = []
        for place, text in enumerate(texts, first):
            places = [*(lists.prompt if place == 0 else ()), *lists.output[place : place + 1]]
            events.append(self._event(text, places, ended and place == first + len(texts) - 1))
        return b"".join(events)

    def _event(self, text: str, places: list[Place] | None, ended: bool) -> bytes:
        return sse.event(replace(self._reply, choices=[self._choice(text, places, ended)]))

    def _choice(self, text: str, places: list[Place] | None = None, ended: bool = False) -> replies.CompletionChoice:
        logprobs = self._listed(places) if places is not None else None
        end = replies.ending(self._sequence) if ended else {}
        return replies.CompletionChoice(index=self._index, text=text, logprobs=logprobs, **end)

    def _listed(self, places: list[Place]) -> replies.CompletionLogprobs:
        """The next places. `text_offset` counts characters from the start of the choice's text."""
        tokens, offsets = [place.token[2] or "" for place in places], list[int]()
        for place, token in zip(places, tokens, strict=True):
            held = max(0, place.length - len(token))  # characters of tokens before it, which only now are certain
            offsets.append(self._offset + held)
            self._offset += place.length
        values = [place.token[0] for place in places]
        return replies.CompletionLogprobs(tokens, values, [_by_text(place) for place in places], offsets)


def _by_text(place: Place) -> dict[str, float] | None:
    """The best tokens and the place's own; of tokens with one text the likelier counts."""
    if place.top is None:
        return None
    found: dict[str, float] = {}
    for value, _, text in sorted((*place.top, place.token), key=lambda triple: -(triple[0] or 0.0)):
        assert value is not None
        found.setdefault(text or "", value)
    return found
