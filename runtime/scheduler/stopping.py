"""When a sequence ends: stop token, stop text, length, in that order. The one place that decides it.

Knows tokens and text, not memory and not the batch. Text is decoded only for requests that have stop strings or
patterns, with the detokenizer's own decoder, so both see the same characters.
"""

from ramet.ipc.messages import Finish, FinishKind
from ramet.runtime.request import Request
from ramet.runtime.text.decode import TextDecoder
from ramet.runtime.text.stops import StopMatcher
from ramet.runtime.text.tokenizer import Tokenizer


class StopWatch:
    """Watches the text of one request for its stop strings and patterns."""

    def __init__(self, request: Request, tokenizer: Tokenizer) -> None:
        params = request.params
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
        self._watches: dict[int, StopWatch] = {}

    def decide(self, request: Request, token: int) -> Finish | None:
        """`token` is the newest of request.output. Call it once for every token."""
        params = request.params
        if token in params.stop_token_ids or (token in self.eos_ids and not params.ignore_eos):
            return Finish(FinishKind.STOP, matched=token)
        if params.stop or params.stop_regex:
            found = self._watch(request).push(token)
            if found is not None:
                return found
        if request.remaining == 0:
            return Finish(FinishKind.LENGTH, length=request.num_output)
        return None

    def forget(self, request: Request) -> None:
        self._watches.pop(request.uid, None)

    def _watch(self, request: Request) -> StopWatch:
        watch = self._watches.get(request.uid)
        if watch is None:
            assert self._tokenizer is not None, "a request with stop text needs a tokenizer"
            watch = self._watches[request.uid] = StopWatch(request, self._tokenizer)
        return watch
