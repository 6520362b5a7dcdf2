"""When a sequence ends: stop token, stop text, length, in that order. The one place that decides it.

Knows tokens and text, not memory and not the batch. Text is decoded only for requests that have stop strings or
patterns, with the detokenizer's own decoder, so both see the same characters.
"""

from ramet.ipc.messages import Finish, FinishKind, Uid
from ramet.ipc.params import SamplingParams
from ramet.runtime.scheduler.running import RunningRequest
from ramet.runtime.text.decode import TextDecoder
from ramet.runtime.text.stops import StopMatcher
from ramet.runtime.text.tokenizer import Tokenizer


class StopWatch:
    """Watches the text of one request for its stop strings and patterns."""

    def __init__(self, params: SamplingParams, tokenizer: Tokenizer) -> None:
        self._decoder = TextDecoder(tokenizer, params.skip_special_tokens, params.spaces_between_special_tokens)
        self._matcher = StopMatcher(params.stop, params.stop_regex)
        self._no_trim = params.no_stop_trim

    def push(self, token: int) -> Finish | None:
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
        """`token` is the newest one of its output. Call it once for every token of a request with stop texts."""
        params = running.request.params
        if token in params.stop_token_ids or (token in self.eos_ids and not params.ignore_eos):
            return Finish(FinishKind.STOP, matched=token)
        if params.stop or params.stop_regex:
            found = self._watch(running).push(token)
            if found is not None:
                return found
        if running.remaining == 0:
            return Finish(FinishKind.LENGTH, length=running.num_output)
        return None

    def forget(self, uid: Uid) -> None:
        self._watches.pop(uid, None)

    def _watch(self, running: RunningRequest) -> StopWatch:
        watch = self._watches.get(running.uid)
        if watch is None:
            assert self._tokenizer is not None, "a request with stop text needs a tokenizer"
            watch = self._watches[running.uid] = StopWatch(running.request.params, self._tokenizer)
        return watch
