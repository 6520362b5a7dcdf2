"""POST /v1/completions. In a stream a token is one event, and the bytes around its text are made once per choice."""

import math
import time

from aiohttp import web
from msgspec.structs import replace

from ramet.ipc.params import MAX_SAMPLES
from ramet.ipc.spec import LogprobSpec, RequestSpec
from ramet.runtime.engine_client.submission import Prompt, Sequence
from ramet.runtime.errors import ClientError
from ramet.runtime.intake import prompts
from ramet.runtime.server.http import sse
from ramet.runtime.server.http.asked import read_asked, read_sampling
from ramet.runtime.server.http.exchange import encode, read_body, respond
from ramet.runtime.server.http.service import Service
from ramet.runtime.server.openai.logprobs import CompletionPlaces, read_logprobs
from ramet.runtime.server.openai.replies import CompletionChoice, CompletionLogprobs, CompletionReply, ending, usage_of
from ramet.runtime.server.openai.types import CompletionBody

DEFAULT_MAX_TOKENS = 16


async def completions(service: Service, request: web.Request) -> web.StreamResponse:
    """OpenAI's text completions, whole or as a stream with one event per token."""
    body = await read_body(request, CompletionBody)
    params = read_sampling(service, body, max_new_tokens=DEFAULT_MAX_TOKENS)
    n, best_of = params.n, _best_of(body, params.n)
    wanted = read_logprobs(body.logprobs, bool(body.echo))
    logprobs = wanted or (LogprobSpec() if best_of > n else None)
    sampled = replace(params, n=best_of)
    asked = read_asked(service, request, body, "cmpl-", sampled, logprobs, body.return_hidden_states)
    items = read_prompts(body, asked.rid, asked.spec, service.client.limits.vocab_size)
    echoes = [await _echo(service, item) for item in items] if body.echo else [""] * len(items)
    reply = CompletionReply(id=asked.rid, created=int(time.time()), model=asked.model, choices=[])
    with service.client.submit(items, streaming=bool(body.stream)) as submission:
        sequences = submission.sequences
        if body.stream:
            chunk = replace(reply, usage=None) if body.with_usage else reply
            return await sse.stream(
                request,
                submission,
                [Choice(s, chunk, echoes[s.index // n]).events for s in sequences],
                lambda: sse.event(replace(chunk, usage=usage_of(sequences))) if body.with_usage else b"",
            )
        done = await submission.finished()
    kept = likeliest(done, best_of, n) if best_of > n else done
    whole = [_whole(s, echoes[s.index // best_of], i, wanted is not None) for i, s in enumerate(kept)]
    return respond(replace(reply, choices=whole, usage=usage_of(done)))


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
    contents, _ = prompts.read_contents("prompt", body.prompt, vocab_size)
    items = [Prompt(rid, spec, place=place, **content) for place, content in contents]
    prompts.check_count("prompt", sum(item.params.n for item in items))
    return items


async def _echo(service: Service, item: Prompt) -> str:
    if item.text is not None:
        return item.text
    assert item.ids is not None
    return await service.client.detokenize(item.ids, item.params.skip_special_tokens)


def _whole(sequence: Sequence, echo: str, index: int, with_logprobs: bool) -> CompletionChoice:
    texts, _ = sequence.take()
    lists = sequence.logprobs if with_logprobs else None
    return CompletionChoice(
        index=index,
        text=echo + "".join(texts) + sequence.tail,
        logprobs=CompletionPlaces().take([*lists.prompt, *lists.output]) if lists is not None else None,
        **ending(sequence),
    )


class Choice:
    """The chunks of one sequence. Without log-probabilities they differ only in their text."""

    def __init__(self, sequence: Sequence, chunk: CompletionReply, echo: str) -> None:
        self._sequence, self._chunk, self._echo = sequence, chunk, echo
        self._places = CompletionPlaces()
        self._frame = sse.frame(self._made(sse.HOLE))

    def events(self) -> bytes:
        """One event per token; the last one shows how the sequence ended. The prompt's places come with the first."""
        sequence, first = self._sequence, self._sequence.num_taken
        texts, _ = sequence.take()
        if self._echo:
            texts[:1] = [self._echo + (texts[0] if texts else "")]
            self._echo = ""
        head, tail = self._frame
        ended, lists = sequence.finish is not None, sequence.logprobs
        if lists is None:
            last = self._made((texts.pop() if texts else "") + sequence.tail, ended=True) if ended else None
            events = b"".join([head + encode(text) + tail for text in texts])
            return events if last is None else events + sse.event(last)
        prompt = lists.prompt if first == 0 else []
        if not texts and (ended or prompt):
            texts = [""]
        if ended:
            texts[-1] += sequence.tail
        chunks = []
        for i, text in enumerate(texts):
            places = [*(prompt if i == 0 else ()), *lists.output[first + i : first + i + 1]]
            chunks.append(self._made(text, self._places.take(places), ended=ended and i == len(texts) - 1))
        return b"".join(map(sse.event, chunks))

    def _made(self, text: str, logprobs: CompletionLogprobs | None = None, ended: bool = False) -> CompletionReply:
        end = ending(self._sequence) if ended else {}
        choice = CompletionChoice(index=self._sequence.index, text=text, logprobs=logprobs, **end)
        return replace(self._chunk, choices=[choice])
