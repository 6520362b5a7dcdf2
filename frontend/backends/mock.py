"""A backend without a model: the same prompt gives the same text, for tests of programs and for a first look."""

import hashlib
import random
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ramet.frontend.backends.base import Backend, Capabilities, Completion, GenCall, OnText, SelectCall, SelectedChoice
from ramet.frontend.backends.stops import first_match, first_stop
from ramet.frontend.errors import BackendError
from ramet.frontend.prompt import Prompt

WORDS = (
    "the", "a", "of", "one", "two", "three", "red", "green", "blue", "stone", "river", "light", "word", "answer",
    "first", "last", "small", "great", "day", "night",
)  # fmt: skip


class Mock(Backend):
    """`replies`: what calls get, one after the other, or a function of the prompt's text and the call.

    `picks`: the same for the choices of select. Without them a call gets words, and a select one of its choices, by the
    hash of the prompt.

    Stop texts, stop patterns and max_new_tokens (a word is a token) cut what is given. Its words and choices are
    certain: their log-probabilities, where a call asks for them, are 0, and the probability of what it picks is 1.
    `calls` has every call, with its prompt's text. Raises TypeError.
    """

    name = "Mock"
    reads_files = False
    capabilities = Capabilities(
        held=frozenset({"regex", "json_schema", "ebnf", "structural_tag"}), media=frozenset({"image", "video", "audio"})
    )

    def __init__(
        self,
        replies: Iterable[str] | Callable[[str, GenCall], str] | None = None,
        picks: Iterable[str] | Callable[[str, SelectCall], str] | None = None,
    ) -> None:
        self._pick = picks if callable(picks) else None
        self._picks = None if picks is None or callable(picks) else _texts("picks", picks)
        self._function = replies if callable(replies) else None
        self._replies = None if replies is None or callable(replies) else _texts("replies", replies)
        self.calls: list[tuple[str, GenCall | SelectCall]] = []

    async def generate(self, prompt: Prompt, call: GenCall, on_text: OnText | None = None) -> list[Completion]:
        text = prompt.shown()
        self.calls.append((text, call))
        outputs = [self._completion(text, call, sample) for sample in range(call.num_samples)]
        if on_text is not None:
            for word in _words(outputs[0].text):
                on_text(word)
        return outputs

    async def select(self, prompt: Prompt, call: SelectCall) -> SelectedChoice:
        text = prompt.shown()
        self.calls.append((text, call))
        index = self._index(text, call)
        probabilities = [float(i == index) for i in range(len(call.choices))]
        return SelectedChoice(index, {"finish_reason": None, "probabilities": probabilities})

    def _index(self, prompt: str, call: SelectCall) -> int:
        if self._pick is None and self._picks is None:
            return _seed(prompt, 0) % len(call.choices)
        if self._picks == []:
            raise BackendError(self.name, "has no choice left for this select")
        pick = self._pick(prompt, call) if self._pick is not None else (self._picks or [""]).pop(0)
        if pick not in call.choices:
            raise BackendError(self.name, f"picks {pick!r}, which is not one of {list(call.choices)}")
        return call.choices.index(pick)

    def _completion(self, prompt: str, call: GenCall, sample: int) -> Completion:
        whole = self._text(prompt, call, sample)
        begin, end, stop = self._stop(whole, call) or (len(whole), len(whole), None)
        words = _words(whole[: end if call.sampling.get("no_stop_trim") else begin])
        most = call.sampling.get("max_new_tokens", len(words))
        cut = len(words) > most
        reason: dict[str, Any] = {"type": "length", "length": most} if cut else {"type": "stop", "matched": stop}
        meta: dict[str, Any] = {
            "finish_reason": reason,
            "prompt_tokens": len(_words(prompt)),
            "completion_tokens": min(most, len(words)),
        }
        if call.options.get("return_logprob"):
            meta["output_token_logprobs"] = [(0.0, None, word) for word in words[:most]]
        return Completion("".join(words[:most]), {**meta, "cached_tokens": 0})

    def _stop(self, text: str, call: GenCall) -> tuple[int, int, str] | None:
        """Where what ends the text begins and ends, and what it is."""
        found = first_stop(text, call.sampling.get("stop", ()))
        begun = None if found is None else (found[0], found[0] + len(found[1]), found[1])
        patterns = call.sampling.get("stop_regex", ())
        try:
            matched = first_match(text if begun is None else text[: begun[1] - 1], patterns)
        except re.error as error:
            raise BackendError(self.name, f"stop_regex is {list(patterns)}, must be valid patterns: {error}") from None
        return begun if matched is None else matched

    def _text(self, prompt: str, call: GenCall, sample: int) -> str:
        if self._function is not None:
            text = self._function(prompt, call)
            if not isinstance(text, str):
                raise BackendError(self.name, f"the function of its replies gave {text!r}, must be a text")
            return text
        if self._replies is not None:
            if not self._replies:
                raise BackendError(self.name, "has no reply left for this call")
            return self._replies.pop(0)
        source = random.Random(_seed(prompt, sample))
        if call.kind is not None:
            return _OF_KIND[call.kind](source)
        if call.held is not None:
            raise BackendError(self.name, f"makes no text for a {call.held.kind}; give it replies")
        return "".join(f" {source.choice(WORDS)}" for _ in range(source.randint(3, 12)))


_OF_KIND: Mapping[type, Callable[[random.Random], str]] = {
    int: lambda source: str(source.randint(0, 99)),
    float: lambda source: str(source.randint(0, 99) / 10),
    bool: lambda source: str(source.random() < 0.5),
    str: lambda source: f'"{source.choice(WORDS)}"',
}


def _texts(name: str, given: Any) -> list[str]:
    """Raises TypeError."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        hint = f": [{given!r}] is the one text" if isinstance(given, str) else ""
        raise TypeError(f"{name} is {given!r}, must be a list of texts, or a function{hint}")
    texts = list(given)
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"{name}[{i}] is {text!r}, must be a text")
    return texts


def _words(text: str) -> list[str]:
    """Each with the white space before it; together they are the text."""
    parts: list[str] = []
    for char in text:
        if parts and not (char.isspace() and not parts[-1][-1].isspace()):
            parts[-1] += char
        else:
            parts.append(char)
    return parts


def _seed(text: str, sample: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{sample} {text}".encode()).digest()[:8], "little")
