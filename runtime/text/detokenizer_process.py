"""The detokenizer process: it adds the texts of the new tokens to every TokenStep.

Decides what text of a step may be shown: nothing that a stop may still cut. When to stop is the scheduler's decision;
it arrives as `closed`. Knows uids, no prompts and no clients. A sequence lives from its Opened to its Closed, and a
stop token arrives in the same step as the Closed that names it.
"""

import os
import time
from collections.abc import Callable
from functools import lru_cache

from msgspec.structs import replace

from ramet.ipc import paths
from ramet.ipc.channel import Receiver, Sender
from ramet.ipc.message import Uid
from ramet.ipc.messages import Closed, Logprobs, Opened, ToDetokenizer, TokenStep, pack_ids, unpack_ids
from ramet.ipc.paths import SocketFolder
from ramet.ipc.ring import MessageRing
from ramet.ipc.spec import DetokenizeOptions
from ramet.ipc.times import Span
from ramet.runtime.config import Args
from ramet.runtime.text.decode import TextDecoder
from ramet.runtime.text.stops import StopMatcher
from ramet.runtime.text.tokenizer import Tokenizer

CACHED_TEXTS = 1 << 18  # of single tokens: a vocabulary


class LogprobTexts:
    """What one sequence's log-probabilities need: what was sent of them, and how long its text is."""

    __slots__ = ("decoder", "sent")

    def __init__(self, decoder: TextDecoder) -> None:
        self.decoder = decoder
        self.sent = set[int]()  # tokens


class Detokenizer:
    """The text state of every open sequence."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._outputs: dict[int, TextDecoder | _Stoppable] = {}
        self._push: dict[int, Callable[[int], str]] = {}  # uid -> the push of its output: one look-up a token
        self._untrimmed = set[int]()  # uids whose stop tokens are shown
        self._logprob_texts: dict[int, LogprobTexts] = {}  # of uids whose log-probabilities come with texts
        self._token_text = lru_cache(CACHED_TEXTS)(self._decode_one)
        self._pid = os.getpid()

    @property
    def num_open(self) -> int:
        return len(self._outputs)

    def step(self, step: TokenStep) -> TokenStep:
        """The step with its texts."""
        began_s = time.monotonic() if step.closed else 0.0
        opened = [self._open(each) for each in step.opened]
        push, uids, tokens = self._push, step.uids, unpack_ids(step.tokens)
        if stopped := [closed.uid for closed in step.closed if isinstance(closed.finish.matched, int)]:
            hidden = self._hidden_rows(uids, stopped)
            texts = ["" if i in hidden else push[uid](tokens[i]) for i, uid in enumerate(uids)]
        else:
            texts = [push[uid](token) for uid, token in zip(uids, tokens, strict=True)]
        logprobs = [self._texts_of(each) if each.uid in self._logprob_texts else each for each in step.logprobs]
        tails = [self._close(closed) for closed in step.closed]
        span = Span(self._pid, began_s, time.monotonic()) if step.closed else None
        return replace(step, opened=opened, logprobs=logprobs, texts=texts, tails=tails, detokenized=span)

    def _open(self, opened: Opened) -> Opened:
        """Returns it with the texts of the tokens whose log-probability comes at every place, if asked for."""
        uid, shown = opened.uid, opened.shown
        decoder = TextDecoder(
            self._tokenizer, shown.skip_special_tokens, shown.spaces_between_special_tokens, opened.tail_bytes
        )
        self._outputs[uid] = output = _Stoppable(decoder, shown) if shown.stop or shown.stop_regex else decoder
        self._push[uid] = output.push
        if shown.no_stop_trim:
            self._untrimmed.add(uid)
        if shown.chosen is None:
            return opened
        self._logprob_texts[uid] = LogprobTexts(decoder.fork())
        return replace(opened, chosen_texts=tuple(map(self._token_text, shown.chosen)))

    def _texts_of(self, logprobs: Logprobs) -> Logprobs:
        """With the texts of tokens that come for the first time: of a step's thousands of tokens these are few."""
        own, known = unpack_ids(logprobs.ids), self._logprob_texts[logprobs.uid]
        new = {*own, *unpack_ids(logprobs.top_ids)} - known.sent
        known.sent |= new
        texts = {token: self._token_text(token) for token in new}
        halves = (token for token, text in texts.items() if "\ufffd" in text)
        raw = {token: spelled for token in halves if (spelled := self._tokenizer.token_bytes(token)) is not None}
        push = known.decoder.push
        return replace(logprobs, texts=texts, raw=raw, lengths=pack_ids([len(push(token)) for token in own]))

    def _decode_one(self, token_id: int) -> str:
        return self._tokenizer.decode([token_id], skip_special_tokens=False)

    def _hidden_rows(self, uids: list[Uid], stopped: list[Uid]) -> set[int]:
        """Rows of stop tokens: the last row of each sequence that one of them ended, unless it wants it shown."""
        last_row = {uid: row for row, uid in enumerate(uids)}
        return {last_row[uid] for uid in stopped if uid in last_row and uid not in self._untrimmed}

    def _close(self, closed: Closed) -> str:
        """What the end makes certain; "" for a sequence that ended before it was opened."""
        output = self._outputs.pop(closed.uid, None)
        if output is None:
            return ""
        del self._push[closed.uid]
        self._untrimmed.discard(closed.uid)
        self._logprob_texts.pop(closed.uid, None)
        if isinstance(output, _Stoppable):
            return output.close(closed.finish.cut)
        assert closed.finish.cut is None, f"cut at {closed.finish.cut} of an output without stop texts"
        return output.flush()


class _Stoppable:
    """An output that a stop text may cut.

    [0, shown)  sent   [shown, fed - held)  goes now   [fed - held, fed)  may be cut: waits in `parts`
    """

    __slots__ = ("_decoder", "_matcher", "_options", "_parts", "_shown", "_waiting")

    def __init__(self, decoder: TextDecoder, options: DetokenizeOptions) -> None:
        self._decoder, self._options = decoder, options
        self._matcher: StopMatcher | None = None  # until the text begins
        self._parts: list[str] = []
        self._waiting = 0  # characters in parts
        self._shown = 0

    def push(self, token_id: int) -> str:
        text = self._decoder.push(token_id)
        if not text:
            return ""
        if self._matcher is None:  # reading patterns takes milliseconds: those of many outputs not in one step
            self._matcher = StopMatcher(self._options.stop, self._options.stop_regex)
        self._matcher.feed(text)
        self._parts.append(text)
        self._waiting += len(text)
        certain = self._waiting - self._matcher.held
        return self._release(certain) if certain else ""

    def close(self, cut: int | None) -> str:
        """`cut`: characters of the output that are kept; None: all of them."""
        if cut is None:
            return "".join(self._parts) + self._decoder.flush()
        assert cut >= self._shown, f"cut at {cut} after {self._shown} characters were shown"
        return self._release(cut - self._shown)

    def _release(self, length: int) -> str:
        whole = "".join(self._parts)
        self._parts = [whole[length:]]
        self._waiting -= length
        self._shown += length
        return whole[:length]


def run(args: Args, sockets: SocketFolder, ready: Callable[[list[tuple[str, float]]], None]) -> None:
    """The whole life of the detokenizer process; it ends when it is killed."""
    started = time.perf_counter()
    ring = MessageRing(sockets.ring(paths.DETOKENIZER), ToDetokenizer, {TokenStep: "uids"})
    detokenizer = Detokenizer(Tokenizer.from_folder(args.tokenizer_folder))
    loaded = time.perf_counter()
    inbox: Receiver[ToDetokenizer] = Receiver(sockets.address(paths.DETOKENIZER), ToDetokenizer)
    server = Sender(sockets.address(paths.SERVER))
    ready([("load tokenizer", loaded - started), ("open sockets", time.perf_counter() - loaded)])
    ring.handle_all(inbox, lambda step: server.send(detokenizer.step(step)))
