"""When a sequence ends: stop token, stop text, length, in that order. The one place that decides it.

Text is decoded only for requests that have stop strings or patterns, with the detokenizer's own decoder, so both see
the same characters.
"""

import logging
from collections import deque

from ramet.ipc.message import Uid
from ramet.ipc.messages import Finish, FinishKind
from ramet.ipc.params import SamplingParams
from ramet.runtime.grammar.jump import RETOKENIZE_WINDOW
from ramet.runtime.scheduler.rows import RunningRequest
from ramet.runtime.text.decode import TextDecoder
from ramet.runtime.text.stops import StopMatcher
from ramet.runtime.text.tokenizer import Tokenizer

log = logging.getLogger("ramet")
MAX_REWOUND = 4 * RETOKENIZE_WINDOW  # a jump takes back as many tokens as a window has, and may do so again


class StopWatch:
    """Watches the text of one request for its stop strings and patterns.

    `rewinds`: some of the last tokens may be taken back, so it keeps its state before each of them.
    """

    def __init__(self, params: SamplingParams, tokenizer: Tokenizer, tail_bytes: int, rewinds: bool = False) -> None:
        spaced = params.spaces_between_special_tokens
        self._decoder = TextDecoder(tokenizer, params.skip_special_tokens, spaced, tail_bytes)
        self._matcher = StopMatcher(params.stop, params.stop_regex)
        self._no_trim = params.no_stop_trim
        self._num_seen = 0
        self._before: deque[tuple[TextDecoder, StopMatcher]] = deque(maxlen=MAX_REWOUND if rewinds else 0)

    def rewind(self, num_seen: int) -> bool:
        """Take back tokens until `num_seen` are left. False: it does not know what it had seen then."""
        if self._num_seen - num_seen > len(self._before):
            return False
        while self._num_seen > num_seen:
            self._decoder, self._matcher = self._before.pop()
            self._num_seen -= 1
        return True

    def push(self, token: int) -> Finish | None:
        self._num_seen += 1
        if self._before.maxlen:
            self._before.append((self._decoder.fork(), self._matcher.fork()))
        match = self._matcher.feed(self._decoder.push(token))
        if match is None:
            return None
        return Finish(FinishKind.STOP, matched=match.pattern, cut=match.end if self._no_trim else match.start)


class Stopping:
    """Decides, token by token. `forget` a request when it has ended."""

    def __init__(self, tokenizer: Tokenizer | None, eos_ids: frozenset[int]) -> None:
        self._tokenizer, self.eos_ids = tokenizer, eos_ids
        self._watches: dict[Uid, StopWatch] = {}

    def decide(self, running: RunningRequest, token: int) -> Finish | None:
        """`token` is the newest one of its output. Call it once for every token of a request with stop texts, from the
        first one that has text.
        """
        params = running.request.params
        is_text = running.num_output > running.request.start.num_tokens
        if (token in params.stop_token_ids and is_text) or (token in self.eos_ids and not params.ignore_eos):
            return Finish(FinishKind.STOP, matched=token)
        if params.stop or params.stop_regex:
            found = self._in_text(running, token)
            if found is not None:
                return found
        if running.remaining == 0:
            return Finish(FinishKind.LENGTH, length=running.num_output)
        return None

    def _in_text(self, running: RunningRequest, token: int) -> Finish | None:
        try:
            return self._watch(running, running.num_output - 1).push(token)
        except Exception as error:
            log.exception("request %d failed while looking for its stop text", running.uid)
            return Finish.abort("", f"internal error: {type(error).__name__}", status=500)

    def forget(self, uid: Uid) -> None:
        self._watches.pop(uid, None)

    def rewound(self, running: RunningRequest) -> None:
        """The last tokens of its output were taken back."""
        watch = self._watches.get(running.uid)
        if watch is not None and not watch.rewind(running.num_output):
            del self._watches[running.uid]  # look at all that is left again
            self._watch(running, running.num_output)

    def _watch(self, running: RunningRequest, num_seen: int) -> StopWatch:
        """It has seen the first tokens of the output."""
        watch, request = self._watches.get(running.uid), running.request
        if watch is None:
            assert self._tokenizer is not None, "a request with stop text needs a tokenizer"
            rewinds = any(each.rewinds for each in request.own.values())
            watch = StopWatch(request.params, self._tokenizer, request.start.num_bytes, rewinds)
            self._watches[running.uid] = watch
            for token in running.output[:num_seen].tolist():
                watch.push(token)
        return watch
