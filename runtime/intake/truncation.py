"""vLLM's `truncate_prompt_tokens` and `truncation_side`: how much of a prompt is kept, and which end of it."""

from typing import Any

from ramet.ipc.params import MAX_NEW_TOKENS
from ramet.ipc.spec import Truncation
from ramet.runtime.errors import ClientError

PLACE = "truncate_prompt_tokens"


def read_truncation(tokens: int | None, side: str | None, context_length: int, new_tokens: int) -> Truncation | None:
    """-1 keeps what the context has beside `new_tokens`, the output that is asked for. Raises ClientError."""
    if tokens is None:
        return None
    new = 1 if new_tokens == MAX_NEW_TOKENS else new_tokens  # the client said nothing of its length
    room = context_length - new
    if room < 1:
        fact = f"is {tokens}, but the output's {new} tokens leave nothing of the context of {context_length}"
        raise ClientError(PLACE, fact)
    if tokens == 0 or tokens > room:
        raise ClientError(PLACE, f"is {tokens}, must be -1 or in [1, {room}], what the output leaves of the context")
    return Truncation(room if tokens == -1 else tokens, side == "right")


def cut_ids(prompt: Any, truncation: Truncation | None) -> Any:
    """A prompt as a client writes it, or a list of them: lists of ids are cut here, texts where they become ids."""
    if truncation is None or not isinstance(prompt, list):
        return prompt
    if isinstance(prompt[0], int):
        return truncation.kept(prompt)
    return [truncation.kept(each) if isinstance(each, list) else each for each in prompt]
