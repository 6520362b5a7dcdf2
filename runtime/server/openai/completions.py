"""POST /v1/completions. In a stream a token is one event, and the bytes around its text are made once per choice."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from itertools import chain
from typing import Any, NamedTuple

from aiohttp import web
from msgspec import UNSET
from msgspec.structs import replace

from ramet.ipc.content import Content
from ramet.ipc.messages import pack_ids, unpack_ids
from ramet.ipc.params import MAX_SAMPLES, SamplingParams
from ramet.ipc.spec import LogprobSpec, RequestSpec, Truncation
from ramet.runtime.engine_client.places import FieldPlaces
from ramet.runtime.engine_client.prompt import Prompt
from ramet.runtime.engine_client.submission import GeneratedSequence
from ramet.runtime.errors import ClientError
from ramet.runtime.intake import prompts
from ramet.runtime.intake.reply import prompt_ids_of
from ramet.runtime.intake.specs import Returned, with_adapter
from ramet.runtime.intake.truncation import cut_ids
from ramet.runtime.replies.logprobs import Places, Triple
from ramet.runtime.replies.long_list import MAX_PART, LongList, in_parts, in_pieces, listed
from ramet.runtime.server.http import sse
from ramet.runtime.server.http.asked import read_asked, read_sampling
from ramet.runtime.server.http.exchange import encode, read_body, respond_in_turn
from ramet.runtime.server.http.request_id import id_of
from ramet.runtime.server.http.service import Served, Service, read_model
from ramet.runtime.server.openai import replies
from ramet.runtime.server.openai.prompt_logprobs import prompt_places
from ramet.runtime.server.openai.types import CompletionBody
from ramet.runtime.workers.offload import offloaded

DEFAULT_MAX_TOKENS = 16
COMPARED_AT_ONCE = 512  # outputs: 2 ms, where they are short
NUMBERS_OF_A_CHOICE = MAX_PART // 64  # as many numbers a choice counts as, without its own long lists
Span = tuple[Places, int, int]  # of these the places [start, stop)


async def completions(service: Service, request: web.Request) -> web.StreamResponse:
    """OpenAI's text completions, whole or as a stream with one event per token."""
    body = await read_body(request, CompletionBody)
    served = service.served
    params = read_sampling(served, body, max_new_tokens=DEFAULT_MAX_TOKENS)
    n, best_of = params.n, _best_of(body, params.n)
    await offloaded(partial(prompts.check_prompts, "prompt", body.prompt), prompts.num_prompts(body.prompt))
    asked_for = best_of * (len(body.prompt) if prompts.is_batch(body.prompt) else 1)
    prompts.check_count("prompt", asked_for)
    service.client.queue.check_count("prompt", asked_for)
    sampled = replace(params, n=best_of)
    details = _details(served, body, params, best_of)
    asked = read_asked(served, id_of(request), body, "cmpl-", sampled, *details)
    items = await offloaded(
        partial(read_prompts, service, body, asked.rid, asked.spec), prompts.num_prompts(body.prompt)
    )
    if body.echo and asked.spec.truncate is not None:
        items = [await _cut(service, item) for item in items]
    echoes = [await _echo(service, item) for item in items] if body.echo else [""] * len(items)
    reply = replies.CompletionReply(id=asked.rid, created=int(time.time()), model=asked.model, choices=[])
    with service.client.open(streaming=bool(body.stream)) as submission:
        await service.client.send_in_pieces(items, submission)
        if body.stream:
            chunk = replace(reply, usage=None) if body.with_usage else reply
            sequences = submission.sequences
            last = partial(replies.last_chunk, chunk, sequences)
            writers = sse.Writers(
                lambda index: CompletionSequence(sequences[index], index, echoes[index // n], chunk, body).events
            )
            return await sse.stream(request, submission, writers, last)
        done = await submission.finished()
    kept = await likeliest(done, best_of, n) if best_of > n else done

    def whole(start: int, stop: int) -> list[replies.CompletionChoice]:
        return [CompletionSequence(kept[i], i, echoes[i // n], reply, body).whole() for i in range(start, stop)]

    listing: Any = listed(whole, 0, len(kept), NUMBERS_OF_A_CHOICE)
    reply = replace(reply, choices=listing, usage=replies.usage_of(done), sglext=replies.extension_of(kept))
    return await respond_in_turn(request, reply)


def _details(
    served: Served, body: CompletionBody, params: SamplingParams, best_of: int
) -> tuple[Returned, Truncation | None]:
    """What body.details says; several outputs are compared by their log-probabilities."""
    context, start = served.limits.context_length, 0 if body.echo else None
    returned, truncate = body.details(context, params.max_new_tokens, _top(body), start)
    if best_of > params.n and returned.logprobs is None:
        returned = returned._replace(logprobs=LogprobSpec())
    return returned, truncate


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


async def likeliest(sequences: list[GeneratedSequence], best_of: int, n: int) -> list[GeneratedSequence]:
    """Of each prompt's outputs the n whose tokens have the highest mean log-probability, the best first."""
    means = await in_pieces(_mean_logprob, sequences, COMPARED_AT_ONCE)
    groups = (range(i, i + best_of) for i in range(0, len(sequences), best_of))
    return [sequences[i] for group in groups for i in sorted(group, key=means.__getitem__, reverse=True)[:n]]


def _mean_logprob(sequence: GeneratedSequence) -> float:
    """Of its tokens; an output without any comes last."""
    places = sequence.logprobs.output if sequence.logprobs is not None else None
    if not places:
        return -math.inf
    return sum(value or 0.0 for value, _, _ in places.tokens(0, len(places))) / len(places)


def read_prompts(service: Service, body: CompletionBody, rid: str, spec: RequestSpec) -> list[Prompt]:
    contents, _ = prompts.read_contents("prompt", cut_ids(body.prompt, spec.truncate), service.client.limits)
    specs = _specs_of(service, body, spec, len(contents))
    return [
        Prompt(rid, own, content, places=FieldPlaces(place, place.removeprefix("prompt")))
        for own, (place, content) in zip(specs, contents, strict=True)
    ]


def _specs_of(service: Service, body: CompletionBody, spec: RequestSpec, count: int) -> list[RequestSpec]:
    """Of each prompt: `lora_path` may have an adapter for each."""
    if not isinstance(body.lora_path, list):
        return [spec] * count
    prompts.check_length("lora_path", len(body.lora_path), count, prompts.is_batch(body.prompt))
    if read_model(service.served.names, body.model).adapter is not None:  # which counts
        return [spec] * count
    return [with_adapter(spec, name) for name in body.lora_path]


async def _echo(service: Service, item: Prompt) -> str:
    if item.content.text is not None:
        return item.content.text
    assert item.content.ids is not None
    return await service.client.text.detokenize(item.content.ids, item.spec.params.skip_special_tokens)


async def _cut(service: Service, item: Prompt) -> Prompt:
    """A text as those of its token ids that are kept: what is left out is not echoed."""
    if item.content.text is None or item.spec.truncate is None:
        return item
    try:
        ids = (await service.client.text.tokenize(item.content.text)).ids
    except ClientError as error:
        raise error.at(item.places.prompt) from None
    return item._replace(content=Content(ids=pack_ids(item.spec.truncate.kept(unpack_ids(ids)))))


def shown_length(echo: str, at: int, text: str, length: int) -> int:
    """How many characters of the prompt, from `at` on, are those of its token. `text`: of the token by itself.

    `length`: what it adds to a decoded text, in which special tokens show or do not. In the prompt they show where the
    client wrote them, and those that the tokenizer puts before it do not.
    """
    if "\ufffd" in text:  # a part of a character
        return length
    if text and echo.startswith(text, at):
        return len(text)
    return 0 if length == len(text) else length


class Spelling(NamedTuple):
    """How tokens are named."""

    as_ids: bool
    raw: Mapping[int, bytes]  # token id -> its bytes, where they are no whole characters

    def names(self, triple: Triple) -> Iterator[str]:
        """The token's name, and what else it is called where another token has that name. The last one is its own."""
        yield replies.token_name(triple, self.as_ids)
        if triple[1] in self.raw:
            yield "bytes:" + "".join(f"\\x{byte:02x}" for byte in self.raw[triple[1]])
        yield replies.token_name(triple, as_ids=True)


class CompletionSequence:
    """One sequence, whole or as chunks. Without log-probabilities the chunks differ only in their text."""

    def __init__(
        self, sequence: GeneratedSequence, index: int, echo: str, reply: replies.CompletionReply, body: CompletionBody
    ) -> None:
        """`reply`: what all chunks have in common."""
        self._sequence, self._index, self._echo, self._reply, self._body = sequence, index, echo, reply, body
        self._detailed = bool(_top(body) is not None or body.return_token_ids or body.with_usage_each)
        self._offset = 0  # characters of the text whose places were read

    @cached_property
    def _frame(self) -> sse.Frame:
        """The bytes around the text of a chunk."""
        return sse.frame(replace(self._reply, choices=[self._choice(sse.HOLE)]))

    def whole(self) -> replies.CompletionChoice:
        body, lists = self._body, self._sequence.logprobs
        texts, ids = self._sequence.take()
        spans = None
        if lists is not None and _top(body) is not None:
            spans = [(p, 0, len(p)) for p in ((lists.prompt, lists.output) if body.echo else (lists.output,))]
        choice = self._choice(self._echo + "".join(texts) + self._sequence.tail, spans, ids, first=True, ended=True)
        if body.prompt_logprobs is None or lists is None:
            return choice
        return replace(choice, prompt_logprobs=prompt_places(lists, body.prompt_logprobs))

    def events(self) -> sse.Events:
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
        if self._detailed:
            return self._details(texts, ids, first, step, ended)
        if step > 1:
            texts = ["".join(texts)]
        head, tail = self._frame
        events = b"".join([head + encode(text) + tail for text in (texts[:-1] if ended else texts)])
        if not ended:
            return events
        last = self._chunk(texts[-1], [], sequence.num_taken, ended=True)
        return chain([events], sse.long_event(last)) if sequence.returns_numbers else events + sse.event(last)

    def _details(self, texts: list[str], ids: list[int], first: int, step: int, ended: bool) -> Iterator[bytes]:
        """`texts` are those of the tokens from `first` on; `step` of them are one event."""
        for start in range(0, len(texts), step):
            end, place = start + step, first + start
            is_end = ended and end >= len(texts)
            chunk = self._chunk("".join(texts[start:end]), ids[start:end], place, ended=is_end)
            yield from sse.long_event(chunk) if place == 0 or is_end or step > 1 else [sse.event(chunk)]

    def _chunk(self, text: str, ids: list[int], place: int, *, ended: bool) -> replies.CompletionReply:
        """`place`: of the first of these tokens."""
        lists, end, spans = self._sequence.logprobs, place + len(ids), None
        if lists is not None and _top(self._body) is not None:
            prompt = [(lists.prompt, 0, len(lists.prompt))] if place == 0 else []
            spans = [*prompt, (lists.output, place, min(end, len(lists.output)))]
        reply = replace(self._reply, choices=[self._choice(text, spans, ids, first=place == 0, ended=ended)])
        return replace(reply, usage=replies.usage_so_far(self._sequence, end)) if self._body.with_usage_each else reply

    def _choice(
        self,
        text: str,
        spans: list[Span] | None = None,
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
            logprobs=self._listed(spans) if spans is not None else None,
            token_ids=ids or [] if with_ids else UNSET,
            prompt_token_ids=prompt_ids_of(self._sequence) if first and (with_ids or of_prompt) else UNSET,
            **(replies.ending(self._sequence) if ended else {}),
        )

    def _listed(self, spans: list[Span]) -> replies.CompletionLogprobs:
        """The next places. `text_offset` counts characters from the start of the choice's text."""
        as_ids = bool(self._body.return_tokens_as_token_ids)
        lists = self._sequence.logprobs
        spelling = Spelling(as_ids, lists.raw if lists is not None else {})
        by_name = partial(_by_name, spelling, _top(self._body))
        columns: Any = (partial(_names, as_ids), _values, by_name, self._offsets)
        (places, start, stop), *more = spans
        if more or stop - start > 1:
            return replies.CompletionLogprobs(*(_long_column(column, spans) for column in columns))
        tokens = places.tokens(start, stop)
        return replies.CompletionLogprobs(*(column(places, start, stop, tokens) for column in columns))

    def _offsets(self, places: Places, start: int, stop: int, tokens: list[Triple]) -> list[int]:
        """Of places that follow those that were read before."""
        offsets = list[int]()
        lists, echo = self._sequence.logprobs, self._echo
        in_prompt = lists is not None and places is lists.prompt
        if start == 0 and not in_prompt:
            self._offset = len(echo)
        for length, (_, _, text) in zip(places.lengths(start, stop), tokens, strict=True):
            length = shown_length(echo, self._offset, text or "", length) if in_prompt else length
            held = max(0, length - len(text or ""))  # characters of tokens before it, which only now are certain
            offsets.append(self._offset + held)
            self._offset += length
        return offsets


def _long_column(column: Callable[[Places, int, int, list[Triple]], list[Any]], spans: list[Span]) -> Any:
    def read(places: Places, start: int, stop: int) -> list[Any]:
        return column(places, start, stop, places.tokens(start, stop))

    parts = (in_parts(partial(read, places), start, stop, 1 + places.num_top) for places, start, stop in spans)
    return LongList(chain.from_iterable(parts))


def _names(as_ids: bool, places: Places, start: int, stop: int, tokens: list[Triple]) -> list[str]:
    return [replies.token_name(token, as_ids) for token in tokens]


def _values(places: Places, start: int, stop: int, tokens: list[Triple]) -> list[float | None]:
    return [value for value, _, _ in tokens]


def _by_name(
    spelling: Spelling, num_top: int | None, places: Places, start: int, stop: int, tokens: list[Triple]
) -> list[dict[str, float] | None]:
    """So many best tokens and the place's own."""
    found = zip(tokens, places.tops(start, stop), strict=True)
    return [None if top is None else named(top[:num_top], token, spelling) for token, top in found]


def named(top: list[Triple], own: Triple, spelling: Spelling) -> dict[str, float]:
    """Each token's log-probability. Of tokens with one text, the place's own has it as its name, or the likeliest.

    The others have OpenAI's form of their bytes where those are no whole characters, and vLLM's form of their ids
    otherwise.
    """
    found = {replies.token_name(own, spelling.as_ids): own[0] or 0.0}
    for triple in sorted(top, key=lambda triple: -(triple[0] or 0.0)):
        if triple[1] != own[1]:
            name = next((each for each in spelling.names(triple) if each not in found), None)
            if name is not None:  # else the same token stands there twice
                found[name] = triple[0] or 0.0
    return dict(sorted(found.items(), key=lambda item: -item[1]))
