"""POST /v1/completions. In a stream a token is one event, and the bytes around its text are made once per choice."""

import math
import time
from functools import partial
from typing import Any

from aiohttp import web
from msgspec import UNSET
from msgspec.structs import replace

from ramet.ipc.params import MAX_SAMPLES, SamplingParams
from ramet.ipc.spec import LogprobSpec, RequestSpec
from ramet.runtime.engine_client.submission import Prompt, Sequence
from ramet.runtime.errors import ClientError
from ramet.runtime.intake import prompts
from ramet.runtime.intake.truncation import cut_ids
from ramet.runtime.logprobs import Place
from ramet.runtime.reply import prompt_ids_of
from ramet.runtime.server.http import sse
from ramet.runtime.server.http.asked import read_asked, read_sampling
from ramet.runtime.server.http.exchange import encode, read_body, respond
from ramet.runtime.server.http.service import Service
from ramet.runtime.server.openai import replies
from ramet.runtime.server.openai.prompt_logprobs import prompt_places
from ramet.runtime.server.openai.types import CompletionBody

DEFAULT_MAX_TOKENS = 16


async def completions(service: Service, request: web.Request) -> web.StreamResponse:
    """OpenAI's text completions, whole or as a stream with one event per token."""
    body = await read_body(request, CompletionBody)
    params = read_sampling(service, body, max_new_tokens=DEFAULT_MAX_TOKENS)
    n, best_of = params.n, _best_of(body, params.n)
    sampled = replace(params, n=best_of)
    asked = read_asked(service, request, body, "cmpl-", sampled, **_details(service, body, params, best_of))
    items = read_prompts(body, asked.rid, asked.spec, service.client.limits.vocab_size)
    echoes = [await _echo(service, item) for item in items] if body.echo else [""] * len(items)
    reply = replies.CompletionReply(id=asked.rid, created=int(time.time()), model=asked.model, choices=[])
    with service.client.submit(items, streaming=bool(body.stream)) as submission:
        if body.stream:
            chunk = replace(reply, usage=None) if body.with_usage else reply
            choices = [Choice(s, s.index, echoes[s.index // n], chunk, body) for s in submission.sequences]
            last = partial(replies.last_chunk, chunk, submission.sequences)
            return await sse.stream(request, submission, [choice.events for choice in choices], last)
        done = await submission.finished()
    kept = likeliest(done, best_of, n) if best_of > n else done
    whole = [await Choice(s, i, echoes[i // n], reply, body).whole() for i, s in enumerate(kept)]
    return respond(replace(reply, choices=whole, usage=replies.usage_of(done)))


def _details(service: Service, body: CompletionBody, params: SamplingParams, best_of: int) -> dict[str, Any]:
    """What is asked for beside the parameters; several outputs are compared by their log-probabilities."""
    context, start = service.client.limits.context_length, 0 if body.echo else None
    found = body.details(context, params.max_new_tokens, _top(body), start)
    if best_of > params.n and found["logprobs"] is None:
        found["logprobs"] = LogprobSpec()
    return found


def _top(body: CompletionBody) -> int | None:
    """How many of the best tokens its log-probabilities have; None: it asks for none."""
    return None if body.logprobs is None or body.logprobs is False else int(body.logprobs)


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


def read_prompts(body: CompletionBody, rid: str, spec: RequestSpec, vocab_size: int) -> list[Prompt]:
    contents, _ = prompts.read_contents("prompt", cut_ids(body.prompt, spec.truncate), vocab_size)
    items = [Prompt(rid, spec, place=place, **content) for place, content in contents]
    prompts.check_count("prompt", sum(item.params.n for item in items))
    return items


async def _echo(service: Service, item: Prompt) -> str:
    if item.text is not None:
        return item.text
    assert item.ids is not None
    return await service.client.detokenize(item.ids, item.params.skip_special_tokens)


class Choice:
    """One sequence, whole or as chunks. Without log-probabilities the chunks differ only in their text."""

    def __init__(
        self, sequence: Sequence, index: int, echo: str, reply: replies.CompletionReply, body: CompletionBody
    ) -> None:
        """`reply`: what all chunks have in common."""
        self._sequence, self._index, self._echo, self._reply, self._body = sequence, index, echo, reply, body
        self._detailed = bool(_top(body) is not None or body.return_token_ids or body.with_usage_each)
        self._offset = 0  # characters of the text whose places were read
        self._frame = sse.frame(replace(reply, choices=[self._choice(sse.HOLE)]))

    async def whole(self) -> replies.CompletionChoice:
        body, lists = self._body, self._sequence.logprobs
        texts, ids = self._sequence.take()
        places = None
        if lists is not None and _top(body) is not None:
            places = [*(lists.prompt if body.echo else ()), *lists.output]
        choice = self._choice(self._echo + "".join(texts) + self._sequence.tail, places, ids, first=True, ended=True)
        if body.prompt_logprobs is None or lists is None:
            return choice
        return replace(choice, prompt_logprobs=await prompt_places(lists, body.prompt_logprobs))

    def events(self) -> bytes:
        """One event for each token, or for an interval of them; the last one shows how the sequence ended. The
        prompt's places come with the first.
        """
        sequence, first = self._sequence, self._sequence.num_taken
        texts, ids = sequence.take()
        texts = texts or [""]
        ended = sequence.finish is not None
        if first == 0:
            texts[0] = self._echo + texts[0]
        if ended:
            texts[-1] += sequence.tail
        step = 1 if sequence.interval == 1 else len(texts)  # tokens of one event
        if step > 1 and not self._detailed:
            texts = ["".join(texts)]
        if not self._detailed:
            head, tail = self._frame
            last = self._event(texts.pop(), [], sequence.num_taken, ended=True) if ended else b""
            return b"".join([head + encode(text) + tail for text in texts]) + last
        events = []
        for start in range(0, len(texts), step):
            end = start + step
            text, own = "".join(texts[start:end]), ids[start:end]
            events.append(self._event(text, own, first + start, ended=ended and end >= len(texts)))
        return b"".join(events)

    def _event(self, text: str, ids: list[int], place: int, *, ended: bool) -> bytes:
        """`place`: of the first of these tokens."""
        lists, end = self._sequence.logprobs, place + len(ids)
        places = None
        if lists is not None:
            places = [*(lists.prompt if place == 0 else ()), *lists.output[place:end]]
        reply = replace(self._reply, choices=[self._choice(text, places, ids, first=place == 0, ended=ended)])
        if self._body.with_usage_each:
            reply = replace(reply, usage=replies.usage_so_far(self._sequence, end))
        return sse.event(reply)

    def _choice(
        self,
        text: str,
        places: list[Place] | None = None,
        ids: list[int] | None = None,
        *,
        first: bool = False,
        ended: bool = False,
    ) -> replies.CompletionChoice:
        """`first`: it has what the prompt's part of a choice is."""
        with_ids, of_prompt = self._body.return_token_ids, self._body.return_prompt_token_ids
        return replies.CompletionChoice(
            index=self._index,
            text=text,
            logprobs=self._listed(places) if places is not None else None,
            token_ids=ids or [] if with_ids else UNSET,
            prompt_token_ids=prompt_ids_of(self._sequence) if first and (with_ids or of_prompt) else UNSET,
            **(replies.ending(self._sequence) if ended else {}),
        )

    def _listed(self, places: list[Place]) -> replies.CompletionLogprobs:
        """The next places. `text_offset` counts characters from the start of the choice's text."""
        tokens, offsets = [place.token[2] or "" for place in places], list[int]()
        for place, token in zip(places, tokens, strict=True):
            held = max(0, place.length - len(token))  # characters of tokens before it, which only now are certain
            offsets.append(self._offset + held)
            self._offset += place.length
        values = [place.token[0] for place in places]
        top = [_by_text(place, _top(self._body)) for place in places]
        return replies.CompletionLogprobs(tokens, values, top, offsets)


def _by_text(place: Place, num_top: int | None) -> dict[str, float] | None:
    """So many best tokens and the place's own; of tokens with one text the likelier counts."""
    if place.top is None:
        return None
    found: dict[str, float] = {}
    for value, _, text in sorted((*place.top[:num_top], place.token), key=lambda triple: -(triple[0] or 0.0)):
        assert value is not None
        found.setdefault(text or "", value)
    return found
