"""What requests are returned beside their tokens, as fields of the message of a step."""

from collections.abc import Iterable

from ramet.ipc.message import Uid
from ramet.ipc.messages import HiddenStates, Logprobs
from ramet.runtime.arrays import Floats
from ramet.runtime.scheduler.news import News


class BesideTokens:
    def __init__(self, news: News) -> None:
        self._news = news

    def add_token(self, uid: Uid, token: int, logprobs: Logprobs | None) -> None:
        """One more token of an output, and what is said of it."""
        self._news.add_token(uid, token)
        if logprobs is not None:
            self._news.add_beside("logprobs", logprobs)

    def add_logprobs(self, logprobs: Iterable[Logprobs]) -> None:
        for each in logprobs:
            self._news.add_beside("logprobs", each)

    def add_states(self, uid: Uid, states: Floats) -> None:
        """states [n, N]: hidden states, or what a head made of them."""
        self._news.add_beside("hidden", HiddenStates(uid, states.shape[1], states.tobytes()))
