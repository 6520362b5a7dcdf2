"""Fields of a call beside its sampling parameters (ipc/params.py), and what each may be.

A server's own limits are its own: here is refused what no backend could take.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ramet.ipc.errors import ClientError
from ramet.ipc.params import MAX_INT32, flag, integer, shown


def _text(where: str, value: Any) -> Any:
    if not isinstance(value, str):
        raise ClientError(where, f"is {shown(value)}, must be a text")
    return value


def _token_ids(where: str, value: Any) -> list[int]:
    if not isinstance(value, list | tuple) or not all(type(token) is int and token >= 0 for token in value):
        raise ClientError(where, f"is {shown(value)}, must be a list of token ids, >= 0")
    return list(value)


def _hidden_states(where: str, value: Any) -> Any:
    if not isinstance(value, bool) and value != "last":
        raise ClientError(where, f"is {shown(value)}, must be true, false or 'last'")
    return value


OPTION_CHECKS: Mapping[str, Callable[[str, Any], Any]] = {
    "return_logprob": flag.read,
    "logprob_start_len": integer(-1, MAX_INT32, "-1 (none of the prompt) or >= 0").read,
    "top_logprobs_num": integer(0, MAX_INT32, ">= 0").read,
    "token_ids_logprob": _token_ids,
    "return_text_in_logprobs": flag.read,
    "priority": integer(-MAX_INT32 - 1, MAX_INT32, "in [-2^31, 2^31)").read,
    "cache_salt": _text,
    "extra_key": _text,
    "custom_logit_processor": _text,
    "return_hidden_states": _hidden_states,
    "grammar_backend": _text,
    "token_healing": flag.read,
}


def checked_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Raises ClientError."""
    return {name: OPTION_CHECKS[name](name, value) for name, value in given.items()}
