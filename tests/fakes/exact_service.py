"""A service that always writes the same behind the same text, however that was cut into calls before."""

import hashlib
from typing import Any

from ramet.frontend.backends.base import Backend, Capabilities, Completion, GenCall, OnText
from ramet.frontend.backends.stops import first_stop
from ramet.frontend.prompt import Prompt, TurnBegin, TurnEnd


class Oracle(Backend):
    """Follows `script` as long as a text is its beginning, then writes letters by hash.

    Tokens have 1 to `longest` letters; the end of an output is one without, which counts and is told if `tells_end`.

    `continues` False: a chat API, which answers with whole turns. `calls`: (text that it read, call).
    """

    name = "Oracle"

    def __init__(
        self, script: str, end: str = "$", continues: bool = True, longest: int = 3, tells_end: bool = True
    ) -> None:
        self._tells_end = tells_end
        self._script, self._end, self._alphabet, self._longest = script, end, "ab\n:", longest
        self.capabilities = Capabilities(continues=continues, prefixes=False)
        self.calls: list[tuple[str, GenCall]] = []

    async def generate(self, prompt: Prompt, call: GenCall, on_text: OnText | None = None) -> list[Completion]:
        text = marked(prompt)
        self.calls.append((text, call))
        most, written, num_tokens, tokens = call.sampling["max_new_tokens"], "", 0, list[str]()
        reason: dict[str, Any] = {"type": "length", "length": most}
        while num_tokens < most:
            token = self._token(text + written)
            if not token and not self._tells_end:
                reason = {"type": "stop", "matched": None}
                break
            num_tokens += 1
            tokens.append(token)
            written += token
            found = first_stop(written, call.sampling.get("stop", ()))
            if found is not None:
                written, reason = written[: found[0]], {"type": "stop", "matched": found[1]}
                break
            if not token:
                reason = {"type": "stop", "matched": None}
                break
        if on_text is not None:
            on_text(written)
        meta = {"finish_reason": reason, "prompt_tokens": len(text), "completion_tokens": num_tokens}
        if call.options.get("return_logprob"):
            meta["output_token_logprobs"] = [(-1.0, None, token) for token in tokens]
        return [Completion(written, meta)]

    def _token(self, text: str) -> str:
        """Without letters: the output ends."""
        token = ""
        for _ in range(1 + _hash(text) % self._longest):
            char = self._next(text + token)
            if char == self._end:
                break
            token += char
        return token

    def _next(self, text: str) -> str:
        if self._script.startswith(text) and len(text) < len(self._script):
            return self._script[len(text)]
        number = _hash(text)
        return self._end if number % 29 == 0 else self._alphabet[number % len(self._alphabet)]


def marked(prompt: Prompt) -> str:
    """Its text with signs of turns."""
    parts = []
    for piece in prompt.pieces():
        match piece:
            case TurnBegin(role):
                parts.append(f"<{role}>")
            case TurnEnd(role):
                parts.append(f"</{role}>")
            case _:
                parts.append(str(piece))
    return "".join(parts)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little")
