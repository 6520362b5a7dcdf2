"""Prompts to ids, and every check that needs the vocabulary or the context length.

Decides which prompts the scheduler gets to see, and how long their outputs may be. Knows no queue and no cache.
"""

import hashlib
import math
import os
import time
from collections.abc import Callable, Sequence
from functools import partial

from msgspec.structs import replace

from ramet.ipc.media import PlacedMedia, Prepared
from ramet.ipc.messages import (
    CallRefused,
    Detokenize,
    Detokenized,
    Generate,
    GenerateAll,
    Limits,
    Rejected,
    Render,
    RenderReply,
    Tokenize,
    Tokenized,
    pack_ids,
    unpack_ids,
)
from ramet.ipc.params import MAX_NEW_TOKENS, SamplingParams, shown
from ramet.ipc.times import Span
from ramet.runtime.errors import ClientError
from ramet.runtime.log import LOGGER
from ramet.runtime.text.bounded_rendering import MAX_CHAT_BYTES, NotHere
from ramet.runtime.text.chats import Chats, ChatWriter
from ramet.runtime.text.checks import (
    check_asks_for_none,
    check_bias,
    check_hidden,
    check_logprobs,
    check_routes,
    check_stop_patterns,
)
from ramet.runtime.text.context import MAX_CALL_BYTES, MAX_CALL_IDS, TooManyBytes, longer_than_context, num_bytes
from ramet.runtime.text.dispatch import ChatText
from ramet.runtime.text.healing import take_tail
from ramet.runtime.text.parallel_contexts import check_contexts, end_of_contexts
from ramet.runtime.text.placing import end_of_media, expand_ids, expand_text, spans_of
from ramet.runtime.text.segments import SegmentEncoder
from ramet.runtime.text.template_files import TemplateSources
from ramet.runtime.text.tokenizer import Tokenizer, check_ids, require_unicode

BETWEEN_LINES_S = 60.0  # between two lines about the same habit of a client
TAIL_CHARS = 64  # of a rendered chat, for the server: whether the output starts inside a thought


class Encoder:
    """Turns requests into what the scheduler admits. Raises nothing for a client's mistake: it answers."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        limits: Limits,
        chats: ChatWriter | None = None,
        clock: Callable[[], float] = time.monotonic,
        chats_here: Chats | None = None,
    ) -> None:
        """`chats_here`: those that take little, and leave the others by NotHere to `chats`."""
        self._tokenizer, self._limits = tokenizer, limits
        self._chats = (chats or Chats(TemplateSources())).with_media(limits.media)
        self._chats_here = chats_here and chats_here.with_media(limits.media)
        self._clock, self._quiet_until = clock, -math.inf
        self._pid = os.getpid()
        self.segments = SegmentEncoder(tokenizer, limits, self._chats)

    def admit(self, request: Generate) -> Generate | Rejected:
        began_s = time.monotonic()
        content = request.content
        try:
            (ids, media), tail = self._prompt(request), b""
            placed = spans_of(ids, media, self._limits.media) if media else ()
            if content.contexts:
                check_contexts(request, len(ids))
            if request.spec.token_healing:
                ids, tail = self._take_tail(ids, request, placed)
            spec = replace(
                request.spec,
                params=self._fit(request.spec.params, len(ids)),
            )
            if content.embeds is not None:  # a prefix of embeddings is shared only with the very same ones
                own = f"embeds {hashlib.sha256(content.embeds).hexdigest()}"
                spec = replace(spec, namespace=(*spec.namespace, own))
            # what the client did not choose is not held against it: a reply that grows too large ends when it does
            new = 0 if request.spec.params.max_new_tokens == MAX_NEW_TOKENS else spec.params.max_new_tokens
            if spec.logprobs is not None:
                samples, has_ids = len(request.uids), content.embeds is None
                check_logprobs(spec.logprobs, len(ids), new, samples, self._limits.vocab_size, has_ids)
            asks_for_tokens = spec.params.max_new_tokens > 0 or spec.logprobs is not None
            if not self._limits.generates:
                check_asks_for_none(asks_for_tokens)
            if spec.hidden is not None:
                check_hidden(spec.hidden, len(ids) + new, self._limits.hidden_size)
            if spec.expert_routes is not None:
                check_routes(spec.expert_routes, len(ids), new, len(request.uids), self._limits.routes)
        except ClientError as error:
            return Rejected(request.uids, error.record)
        content = replace(content, text=None, ids=pack_ids(ids), media=())
        tokenized = Span(self._pid, began_s, time.monotonic())
        return replace(request, spec=spec, content=content, tail=tail, tokenized=tokenized, media=placed)

    def admit_all(self, batch: GenerateAll) -> tuple[list[Generate], list[Rejected]]:
        """All of them; or the refusal of the first bad prompt, as that of every other one too."""
        admitted: list[Generate] = []
        for item in batch.items:
            answer = self.admit(item)
            if isinstance(answer, Rejected):
                others = [Rejected(other.uids, answer.error) for other in batch.items if other is not item]
                return [], [answer, *others]
            admitted.append(answer)
        return admitted, []

    def tokenize(self, call: Tokenize) -> Tokenized | CallRefused:
        try:
            require_unicode(call.text)
            require_unicode(call.pair or "", "pair")
            _check_most("text", "bytes", len(f"{call.text}{call.pair or ''}".encode()), MAX_CALL_BYTES)
            ids = self._tokenizer.encode(call.text, call.add_special_tokens, call.pair)
        except ClientError as error:
            return CallRefused(call.call, error.record)
        return Tokenized(call.call, pack_ids(ids))

    def render(self, call: Render) -> RenderReply | CallRefused:
        """The ids of a chat."""
        written = self.write(call)
        return written if isinstance(written, CallRefused) else self.read(written)

    def write(self, call: Render) -> ChatText | CallRefused:
        return self._written(call, self._chats)

    def write_here(self, call: Render) -> ChatText | CallRefused | None:
        """As Desk.write_here."""
        if self._chats_here is None or len(call.chat) > MAX_CHAT_BYTES:
            return None
        try:
            return self._written(call, self._chats_here)
        except (NotHere, RecursionError):
            return None
        except Exception:  # noqa: BLE001 - logged, and tried again
            LOGGER.exception("the tokenizer failed on a chat, which a worker will render")
            return None

    def read(self, chat: ChatText) -> RenderReply | CallRefused:
        """The template writes special tokens itself."""
        try:
            ids = self._encode(chat.text, "messages", add_special_tokens=False, may_exceed=chat.may_exceed)
            if not ids:
                raise ClientError("messages", "has no tokens once rendered, must have at least 1")
            if len(ids) > self._limits.context_length and not chat.may_exceed:
                raise self._longer_than_context("messages", f"{len(ids)} tokens")
            check_ids("messages", ids, self._limits.vocab_size)
        except ClientError as error:
            return CallRefused(chat.call, error.record)
        return RenderReply(chat.call, pack_ids(ids), chat.text[-TAIL_CHARS:], chat.text if chat.has_media else "")

    def detokenize(self, call: Detokenize) -> Detokenized | CallRefused:
        ids = unpack_ids(call.ids)
        try:
            _check_most("tokens", "ids", len(ids), MAX_CALL_IDS)
            check_ids("tokens", ids, self._limits.vocab_size)
        except ClientError as error:
            return CallRefused(call.call, error.record)
        return Detokenized(call.call, self._tokenizer.decode(ids, call.skip_special_tokens))

    def _prompt(self, request: Generate) -> tuple[list[int], Sequence[Prepared]]:
        """The prompt's ids, all of them in the vocabulary, at least one and at most what the context has beside a
        token of the output, if it has any; and its media, of different kinds in the order of their placeholders.
        """
        content, cut = request.content, request.spec.truncate
        media: Sequence[Prepared] = content.media
        if content.embeds is not None:
            place = "input_embeds"
            ids = [0] * (len(content.embeds) // (4 * self._limits.hidden_size))
        elif content.text is not None:
            place, text = "text", content.text
            if media:
                text, media = expand_text(text, media, self._limits.media)
            ids = self._encode(text, add_special_tokens=not content.is_rendered, may_exceed=cut is not None)
            if not ids:
                raise ClientError(place, f"is {shown(content.text)}, which has no tokens; must have at least 1")
        else:
            assert content.ids is not None, f"request {request.uids} has neither text, ids nor embeddings"
            place, ids = "input_ids", unpack_ids(content.ids)
            if not ids:
                raise ClientError(place, "is empty, must have at least 1 token id")
            if media:
                ids, media = expand_ids(
                    ids, media, self._limits.media, partial(self._tokenizer.encode, add_special_tokens=False)
                )
        if request.spec.padding_id is not None:
            ids = without_padding(ids, request.spec.padding_id)
        if cut is not None:
            ids = cut.kept(ids)
        new = min(1, request.spec.params.max_new_tokens)
        if len(ids) > self._limits.context_length - new:
            raise self._longer_than_context(place, f"{len(ids)} tokens", new)
        check_ids(place, ids, self._limits.vocab_size)
        return ids, media

    def _take_tail(self, ids: list[int], request: Generate, placed: tuple[PlacedMedia, ...]) -> tuple[list[int], bytes]:
        """What stays of a prompt, and the bytes that are chosen again. Raises ClientError."""
        most = min(request.spec.params.max_new_tokens, self._limits.context_length - len(ids))
        first = 1 + max(end_of_contexts(request), end_of_media(placed))
        return take_tail(self._tokenizer, ids, self._limits.vocab_size, most, first)

    def _encode(
        self, text: str, place: str = "text", add_special_tokens: bool = True, may_exceed: bool = False
    ) -> list[int]:
        """`may_exceed`: the text may be longer than the context, because its ids will be cut."""
        require_unicode(text, place)
        if may_exceed:
            _check_most(place, "bytes", num_bytes(text), MAX_CALL_BYTES)
        elif self._tokenizer.too_long(text, self._limits.context_length):  # tokenising megabytes takes seconds
            raise self._longer_than_bytes(place)
        return self._tokenizer.encode(text, add_special_tokens)

    def _written(self, call: Render, chats: ChatWriter) -> ChatText | CallRefused:
        try:
            text = chats.render_json(call.chat, self._max_bytes(call))
        except TooManyBytes:
            return CallRefused(call.call, self._unwritten(call.may_exceed).record)
        except ClientError as error:
            return CallRefused(call.call, error.record)
        return ChatText(call.call, call.owner, text, call.may_exceed, call.has_media)

    def _max_bytes(self, call: Render) -> int | None:
        """A text of more bytes would be refused unread. None: there is no such bound, or the chat is short for one."""
        if len(call.chat) <= self._limits.context_length:
            return None
        return MAX_CALL_BYTES if call.may_exceed else self._tokenizer.max_bytes(self._limits.context_length)

    def _unwritten(self, may_exceed: bool) -> ClientError:
        """The refusal of a chat that was not written to its end."""
        place = "messages"
        if not may_exceed:
            return self._longer_than_bytes(place)
        return ClientError(place, f"has more than {MAX_CALL_BYTES} bytes, must have at most {MAX_CALL_BYTES}")

    def _longer_than_bytes(self, place: str) -> ClientError:
        """The refusal of a text whose tokens nobody has counted."""
        return self._longer_than_context(place, f"more than {self._limits.context_length} tokens")

    def _longer_than_context(self, place: str, length: str, new: int | None = None) -> ClientError:
        return longer_than_context(place, length, self._limits.context_length, new)

    def _fit(self, params: SamplingParams, prompt_tokens: int) -> SamplingParams:
        """`params` with the output cut to what the context leaves. Raises ClientError."""
        if params.stop_token_ids and max(params.stop_token_ids) >= self._limits.vocab_size:
            params = replace(params, stop_token_ids=self._known(params.stop_token_ids))
        if params.logit_bias:
            check_bias(params.logit_bias, self._limits.vocab_size)
        if params.stop_regex:
            check_stop_patterns(params.stop_regex)
        if params.max_new_tokens <= (room := self._limits.context_length - prompt_tokens):
            return params
        return replace(params, max_new_tokens=room, min_new_tokens=min(params.min_new_tokens, room))

    def _known(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        """Those that the model can draw. Clients send one list to models of several vocabularies."""
        known = tuple(token for token in ids if token < self._limits.vocab_size)
        if self._clock() >= self._quiet_until:
            self._quiet_until = self._clock() + BETWEEN_LINES_S
            left, size = len(ids) - len(known), self._limits.vocab_size
            LOGGER.warning("%d of a request's stop_token_ids are beyond the vocabulary of %d: ignored", left, size)
        return known


def without_padding(ids: list[int], padding_id: int) -> list[int]:
    """What ends in a token that is no padding; the first token alone where all are."""
    stop = len(ids)
    while stop > 1 and ids[stop - 1] == padding_id:
        stop -= 1
    return ids[: 1 if ids[stop - 1] == padding_id else stop]


def _check_most(place: str, unit: str, number: int, most: int) -> None:
    if number > most:
        raise ClientError(place, f"has {number} {unit}, must have at most {most}")
