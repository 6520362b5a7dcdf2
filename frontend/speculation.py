"""API speculative execution: one call of a service generates on, past where its program's call ends (SGLang paper, v2).

A service bills and delays each call, and programs often ask for several short texts with constants between them. So a
call is asked for `num_tokens` more and without its stop texts; what lies behind its end is kept, and if the program
then appends just those constants, the next call's text is taken from there. It is exact: text is used only where the
service would have been asked with the same parameters after the same words, and where the call's own end is known.

With temperature 0 that is a stop text or the end of the output, where there was surely room for it; otherwise the
service is asked again, and says the same. With a temperature, to ask again where an end is not seen would make short
texts likelier. There the service must tell the text of each token, so that the call's last token is known whatever
was drawn, and what is ahead is used only if it has as many tokens as the next call may have. A service that tells no
tokens is asked for each call by itself, unless it cannot go on inside a turn: there a turn of several calls can only be
made in one, and a call whose end is not seen is made again, at the price of that likelihood.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ramet.frontend.backends.base import NEUTRAL, Backend, Completion, GenCall, OnText
from ramet.frontend.backends.stops import first_stop
from ramet.frontend.errors import BackendError
from ramet.frontend.ir import Gen
from ramet.frontend.prompt import Prompt, TurnBegin, TurnEnd

ALONE = ("stop", "max_new_tokens")  # parameters that may differ between the call that drew a text and one that takes it
LOCAL = frozenset({  # those that say the same of a token wherever in an output it stands: no counts, no seeds
    *ALONE, "n", "temperature", "top_p", "top_k", "min_p", "typical_p", "logit_bias", "skip_special_tokens",
    "spaces_between_special_tokens", "stream_interval",
})  # fmt: skip
OPTIONS = frozenset({"priority", "cache_salt", "extra_key", "token_healing"})  # fields that change no text
TOLD: Mapping[str, Any] = {"return_logprob": True, "return_text_in_logprobs": True}  # fields that tell tokens
REFUSED = 400  # the status of a service that knows a parameter and has it not for its model
TRIES = 3  # of a service that cannot go on inside a turn, for one that begins with the turn's words


@dataclass
class SavedCalls:
    """What speculation did for one run: its state, and its forks."""

    calls: int = 0  # that the service was asked for
    saved_calls: int = 0  # that needed none
    saved_prompt_tokens: int = 0  # of prompts that were not sent, as the service counted that of the call before
    unused_chars: int = 0  # that were generated and did not fit


@dataclass
class OutputAhead:
    """An output of the service, which follows `prompt`. `used`: its characters that were taken, or matched."""

    prompt: Prompt
    text: str
    used: int
    sampling: Mapping[str, Any]  # that it was drawn with, without ALONE
    whole: bool  # the output ends with it
    prompt_tokens: int
    tokens: "OutputTokens | None"  # None: its tokens are not told


@dataclass(frozen=True)
class OutputTokens:
    """Of an output: `most` is how many it could have had, `ends` says where in a text each of them ends.

    An end inside a character is None. `start`: where the first one begins, 0 or before. `tells_end`: the last one is
    the end of the output and has no text; some services tell it, others do not.
    """

    ends: list[int | None]
    most: int
    start: int
    tells_end: bool

    @classmethod
    def of(cls, text: str, pieces: Sequence[str], most: int, head: int) -> "OutputTokens":
        """Of the text behind the first `head` characters. A piece that is no whole character is not in the text."""
        ends: list[int | None] = [None] * len(pieces)
        at, num = 0, 0
        while num < len(pieces) and text.startswith(pieces[num], at):
            at += len(pieces[num])
            ends[num] = at
            num += 1
        at = len(text)
        for i in reversed(range(num, len(pieces))):
            ends[i] = at
            if not text.endswith(pieces[i], 0, at):
                break
            at -= len(pieces[i])
        tells_end = bool(pieces) and not (pieces[-1] and text.endswith(pieces[-1]))
        return cls([None if end is None else end - head for end in ends], most, -head, tells_end)

    def before(self, at: int) -> int | None:
        """How many there are before `at`; None: one of them goes on behind it."""
        if at == self.start:
            return 0
        return self.ends.index(at) + 1 if at in self.ends else None

    def cut(self, text: str, start: int, call: GenCall, whole: bool) -> tuple[str, dict[str, Any]] | None:
        """What a call of its own would have from `start` on, and why it ended; None: that cannot be told."""
        first, most = self.before(start), call.sampling["max_new_tokens"]
        if first is None:
            return None
        num = len(self.ends) - first
        is_full = num > most or (num == most and not self.tells_end)
        limit = self.ends[first + most - 1] if num > most else len(text)
        if limit is None:
            return None
        found = first_stop(text[start:limit], call.sampling.get("stop", ()))
        if found is not None:
            return text[start : start + found[0]], _reason(found)
        if is_full or not whole:
            return text[start:limit], {"type": "length", "length": most}
        return text[start:], _reason(None)


class Speculation:
    """Of one prompt. `saved`: where its run counts."""

    def __init__(self, backend: Backend, num_tokens: int, saved: SavedCalls) -> None:
        self._backend, self._num_tokens = backend, num_tokens
        options = backend.capabilities.options
        self._tells_tokens = options is None or TOLD.keys() <= options
        self._ahead: OutputAhead | None = None
        self.saved = saved

    @classmethod
    def of(cls, backend: Backend, num_tokens: int | None, saved: SavedCalls) -> "Speculation | None":
        return cls(backend, num_tokens, saved) if num_tokens else None

    async def generate(self, prompt: Prompt, call: GenCall, on_text: OnText | None = None) -> list[Completion]:
        """As Backend.generate."""
        if not may_speculate(call, call.sampling) or not self._is_exact(call):
            self._drop()
            return await self._asked(prompt, call, on_text)
        output = self._taken(prompt, call)
        if output is None:
            output = await self._drawn(prompt, call)
        if on_text is not None:
            on_text(output.text)
        return [output]

    def _taken(self, prompt: Prompt, call: GenCall) -> Completion | None:
        """The call's text, if it is ahead."""
        ahead = self._ahead
        if ahead is None or _others(call) != ahead.sampling:
            return None
        since = _text_since(ahead.prompt, prompt)
        if since is None or not ahead.text.startswith(since):
            return None
        if ahead.tokens is not None:
            return self._cut(ahead, ahead.tokens, len(since), call)
        rest = ahead.text[len(since) :]
        cut = first_stop(rest, call.sampling.get("stop", ()))
        if cut is None and not ahead.whole:
            return None
        text = rest if cut is None else rest[: cut[0]]
        if _max_tokens(text, cut) > call.sampling["max_new_tokens"]:
            return None
        return self._take(ahead, len(since), text, _reason(cut))

    def _cut(self, ahead: OutputAhead, tokens: OutputTokens, start: int, call: GenCall) -> Completion | None:
        """The same by its tokens: whether there are enough does not depend on what they say."""
        num = tokens.before(start)
        if num is None or tokens.most - num < call.sampling["max_new_tokens"]:
            return None
        found = tokens.cut(ahead.text, start, call, ahead.whole)
        return None if found is None else self._take(ahead, start, *found)

    def _take(self, ahead: OutputAhead, start: int, text: str, reason: dict[str, Any]) -> Completion:
        self.saved.saved_calls += 1
        self.saved.saved_prompt_tokens += ahead.prompt_tokens
        ahead.used = start + len(text)
        return Completion(text, {"finish_reason": reason, "speculated": True})

    async def _drawn(self, prompt: Prompt, call: GenCall) -> Completion:
        """The call's text from a call that goes on behind it, or where that does not show it, from one of its own."""
        self._drop()
        head = "" if self._backend.capabilities.continues else _words_of_open_turn(prompt)
        asked = prompt if not head else _without_words(prompt)
        most = call.sampling["max_new_tokens"] + self._num_tokens + len(head.encode())
        longer = call._replace(sampling={**call.sampling, "max_new_tokens": most, "stop": ()})
        if not _is_greedy(call) and self._tells_tokens:
            longer = longer._replace(options={**call.options, **TOLD})
        for _ in range(TRIES if head else 1):
            try:
                (output,) = await self._asked(asked, longer, None)
            except BackendError as error:
                if error.status != REFUSED or not longer.options.get("return_logprob"):
                    raise
                self._tells_tokens = False  # it has none for this model: the call as if it had none for any
                return (await self.generate(prompt, call))[0]
            if output.text.startswith(head):
                break
            self.saved.unused_chars += len(output.text)
        else:
            fact = f"its answers did not begin with the words of the turn, {head!r}, in {TRIES} tries"
            raise BackendError(self._backend.name, f"{fact}, and it cannot go on inside a turn")
        found = self._divided(prompt, output, len(head), call, longer)
        if found is not None:
            return found
        if head:
            raise BackendError(
                self._backend.name, "its answer does not show where this call ends; give it stop texts or more tokens"
            )
        (output,) = await self._asked(prompt, call, None)
        return output

    def _divided(
        self, prompt: Prompt, output: Completion, head: int, call: GenCall, longer: GenCall
    ) -> Completion | None:
        """The call's own part of an output behind the first `head` characters; the rest is ahead.

        None: where the call ends cannot be told.
        """
        text, whole = output.text[head:], _kind(output.meta) == "stop"
        tokens = None
        if longer.options.get("return_logprob"):
            pieces = [told[2] for told in output.meta.get("output_token_logprobs", ()) if isinstance(told[2], str)]
            tokens = OutputTokens.of(output.text, pieces, longer.sampling["max_new_tokens"], head)
            found = tokens.cut(text, 0, call, whole) if pieces or not text else None
        else:
            found = _seen(text, call, whole, output.meta.get("completion_tokens"))
        if found is None:
            self.saved.unused_chars += len(text)
            return None
        own, reason = found
        prompt_tokens = int(output.meta.get("prompt_tokens") or 0)
        self._ahead = OutputAhead(prompt, text, len(own), _others(call), whole, prompt_tokens, tokens)
        meta = {name: value for name, value in output.meta.items() if not name.endswith("_logprobs")}
        return Completion(own, {**meta, "finish_reason": reason})

    def _is_exact(self, call: GenCall) -> bool:
        """Whether a text that is not used, or asked for again, says nothing about the texts that are."""
        return _is_greedy(call) or self._tells_tokens or not self._backend.capabilities.continues

    async def _asked(self, prompt: Prompt, call: GenCall, on_text: OnText | None) -> list[Completion]:
        self.saved.calls += 1
        return await self._backend.generate(prompt, call, on_text)

    def _drop(self) -> None:
        if self._ahead is not None:
            self.saved.unused_chars += len(self._ahead.text) - self._ahead.used
            self._ahead = None


def _seen(text: str, call: GenCall, whole: bool, num_tokens: int | None) -> tuple[str, dict[str, Any]] | None:
    """The call's own part of a text of `num_tokens` (None: unknown), if its end is there.

    An output that ends by itself needs room for one more token than its service may have counted.
    """
    most, cut = call.sampling["max_new_tokens"], first_stop(text, call.sampling.get("stop", ()))
    own = text if cut is None else text[: cut[0]]
    is_short = num_tokens is not None and num_tokens + (cut is None) <= most
    fits = is_short or _max_tokens(own, cut) <= most
    return (own, _reason(cut)) if fits and (cut is not None or whole) else None


def _is_greedy(call: GenCall) -> bool:
    return call.sampling.get("temperature", NEUTRAL.temperature) == 0 or call.sampling.get("top_k") == 1


def _others(call: GenCall) -> dict[str, Any]:
    return {name: value for name, value in call.sampling.items() if name not in ALONE}


def may_speculate(call: Gen | GenCall, sampling: Mapping[str, Any]) -> bool:
    """Whether a text that was drawn for an earlier call may be this one's. `sampling`: with the run's."""
    plain = call.held is None and call.kind is None and call.thoughts is None and sampling.get("n", 1) == 1
    local = all(name in LOCAL or value == getattr(NEUTRAL, name) for name, value in sampling.items())
    return plain and local and OPTIONS.issuperset(call.options)


def _max_tokens(text: str, cut: tuple[int, str] | None) -> int:
    """Of a text and what ends it, a stop text or one token: each token has a byte at least."""
    return len(text.encode()) + (len(cut[1].encode()) if cut is not None else 1)


def _reason(cut: tuple[int, str] | None) -> dict[str, Any]:
    return {"type": "stop", "matched": cut[1] if cut else None}


def _kind(meta: Mapping[str, Any]) -> str:
    reason = meta.get("finish_reason")
    return str(reason["type"] if isinstance(reason, dict) else reason)


def _text_since(before: Prompt, now: Prompt) -> str | None:
    """What was appended; None: something that is no text, or it is another prompt."""
    at: Prompt | None = now
    found = ""
    while at is not before:
        if at is None or not isinstance(at.piece, str):
            return None
        found, at = at.piece + found, at.before
    return found


def _words_of_open_turn(prompt: Prompt) -> str:
    """The text that the turn has already, where one is open."""
    turns = prompt.turns()
    return turns[-1].text if turns and turns[-1].open else ""


def _without_words(prompt: Prompt) -> Prompt:
    """As it was when its open turn began."""
    at: Prompt | None = prompt
    while at is not None and not isinstance(at.piece, TurnBegin | TurnEnd):
        at = at.before
    assert at is not None, "a prompt without a turn has no words of an open one"
    return at
