"""What a request asks beside its sampling: log-probabilities, priority, whose cache it shares and for how long.

Decides how these fields are read and what is valid without a vocabulary. A list gives one value per prompt. Knows no
reply. Shared by /generate and the OpenAI endpoints.
"""

import math
from typing import Annotated, Any

from msgspec import Struct

from ramet.ipc.params import SamplingParams, about, shown
from ramet.ipc.spec import HiddenMode, LogprobSpec, Namespace, ProcessorName, RequestSpec
from ramet.runtime.errors import ClientError
from ramet.runtime.intake import prompts
from ramet.runtime.intake.limits import MOST_IDS, MOST_KEY_CHARS
from ramet.runtime.intake.schemas import HIDDEN_OR_LIST, IDS_OR_NULL, IN_INT32, INT32, KEY, each

MOST_TOP = 256  # best tokens at each place
MOST_CHAT_TOP = 20  # the same of chats, as OpenAI's: each place is an object with texts and bytes


class Asking(Struct, frozen=True, kw_only=True):
    """The fields of a body that are read here; a list gives one value per prompt."""

    return_logprob: Annotated[bool | list[bool | None] | None, about("log-probabilities of the output's tokens")] = None
    logprob_start_len: Annotated[
        int | list[int | None] | None,
        about("those of the prompt too, from this token on; -1: none", **each(minimum=-1, maximum=INT32 - 1)),
    ] = None
    top_logprobs_num: Annotated[
        int | list[int | None] | None,
        about("at each place those of this many best tokens", **each(minimum=0, maximum=MOST_TOP)),
    ] = None
    token_ids_logprob: Annotated[
        list[Any] | None,
        about("at each place those of these tokens; one list for all prompts, or one for each", items=IDS_OR_NULL),
    ] = None
    return_text_in_logprobs: Annotated[bool | None, about("each with its token's text")] = None
    priority: Annotated[
        int | list[int | None] | None,
        about("the larger goes before the smaller, whatever the queue's policy says", **each(**IN_INT32)),
    ] = None
    extra_key: Annotated[
        str | list[str | None] | None, about("prompts share cached prefixes with those of their key", **each(**KEY))
    ] = None
    cache_salt: Annotated[
        str | list[str | None] | None, about("the same, for a secret that keeps users apart", **each(**KEY))
    ] = None
    custom_logit_processor: Annotated[
        str | list[str | None] | None, about("name of a logit processor; needs `--enable-custom-logit-processor`")
    ] = None
    return_hidden_states: Annotated[
        Any, about('of every token that is read; "last": of the last one', anyOf=HIDDEN_OR_LIST)
    ] = None
    prefix_lease_s: Annotated[
        float | list[float | None] | None,
        about(
            "seconds for which the prompt's prefix stays cached, `--max-prefix-lease-s` at most; 0 ends such a lease",
            **each(minimum=0),
        ),
    ] = None


def read_specs(body: Asking, params: list[SamplingParams], batch: bool, processors_on: bool) -> list[RequestSpec]:
    """One for each prompt, whose sampling parameters are given. Raises ClientError.

    `processors_on`: --enable-custom-logit-processor.
    """
    count = len(params)

    def of_each(place: str, value: Any, neutral: Any) -> list[Any]:
        if not isinstance(value, list):
            return [neutral if value is None else value] * count
        prompts.check_length(place, len(value), count, batch)
        return [neutral if item is None else item for item in value]

    wanted = of_each("return_logprob", body.return_logprob, False)
    starts = of_each("logprob_start_len", body.logprob_start_len, -1)
    tops = of_each("top_logprobs_num", body.top_logprobs_num, 0)
    ids = _ids_of_each(body.token_ids_logprob, count, batch)
    priorities = of_each("priority", body.priority, 0)
    salts = of_each("cache_salt", body.cache_salt, "")
    keys = of_each("extra_key", body.extra_key, "")
    processors = of_each("custom_logit_processor", body.custom_logit_processor, "")
    hidden = of_each("return_hidden_states", body.return_hidden_states, False)
    leases = of_each("prefix_lease_s", body.prefix_lease_s, None)
    texts = bool(body.return_text_in_logprobs)
    asks = [_ask(starts[i], tops[i], ids[i], texts) for i in range(count)]  # checked whether they are wanted or not
    return [
        RequestSpec(
            params[i],
            asks[i] if wanted[i] else None,
            in_int32("priority", priorities[i]),
            namespace_of(salts[i], keys[i]),
            processor_name(processors[i], processors_on),
            hidden_mode(hidden[i]),
            lease_seconds(leases[i]),
        )
        for i in range(count)
    ]


def processor_name(name: str, is_on: bool) -> ProcessorName | None:
    """Whether there is such a processor the scheduler knows."""
    if name and not is_on:
        fact = f"is {shown(name)}, but this server takes no logit processors"
        raise ClientError("custom_logit_processor", fact, "--enable-custom-logit-processor")
    return ProcessorName(name) if name else None


def hidden_mode(value: Any) -> HiddenMode | None:
    """Of a `return_hidden_states`."""
    match value:
        case None | False:
            return None
        case True:
            return HiddenMode.ALL
        case "last":
            return HiddenMode.LAST
        case _:
            raise ClientError("return_hidden_states", f'is {shown(value)}, must be true, false or "last"')


def lease_seconds(value: float | None) -> float | None:
    """How long is too long the scheduler knows."""
    if value is not None and not 0 <= value < math.inf:
        raise ClientError("prefix_lease_s", f"is {shown(value)}, must be seconds >= 0")
    return value


def namespace_of(cache_salt: str, extra_key: str) -> Namespace:
    """Requests share cached prefixes only inside one namespace; () is everybody's. (adapter, salt, extra key)"""
    for place, value in (("cache_salt", cache_salt), ("extra_key", extra_key)):
        if len(value) > MOST_KEY_CHARS:
            raise ClientError(place, f"has {len(value)} characters, must have at most {MOST_KEY_CHARS}")
        if any("\ud800" <= char <= "\udfff" for char in value):
            raise ClientError(place, "has half a surrogate pair, must be valid Unicode")
    return ("", cache_salt, extra_key) if cache_salt or extra_key else ()


def in_int32(place: str, value: int) -> int:
    return _in_range(place, value, -INT32, INT32 - 1)


def _ask(start: int, num_top: int, ids: tuple[int, ...], texts: bool) -> LogprobSpec:
    if start < -1:
        raise ClientError("logprob_start_len", f"is {start}, must be -1 (none of the prompt) or >= 0")
    _in_range("logprob_start_len", start, -1, INT32 - 1)
    _in_range("top_logprobs_num", num_top, 0, MOST_TOP)
    return LogprobSpec(None if start == -1 else start, num_top, ids, texts)


def _in_range(place: str, value: int, low: int, high: int) -> int:
    if not low <= value <= high:
        raise ClientError(place, f"is {shown(value)}, must be in [{low}, {high}]")
    return value


def _ids_of_each(value: list[Any] | None, count: int, batch: bool) -> list[tuple[int, ...]]:
    """One flat list of ids for all prompts, or a list of them for each."""
    if not value:
        return [()] * count
    if any(isinstance(item, list) or item is None for item in value):
        prompts.check_length("token_ids_logprob", len(value), count, batch)
        return [_ids(f"token_ids_logprob[{i}]", item) for i, item in enumerate(value)]
    return [_ids("token_ids_logprob", value)] * count


def _ids(place: str, value: Any) -> tuple[int, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise ClientError(place, f"is {shown(value)}, must be a list of token ids")
    if len(value) > MOST_IDS:
        raise ClientError(place, f"has {len(value)} entries, must have at most {MOST_IDS}")
    for i, token in enumerate(value):
        if type(token) is not int or not 0 <= token < INT32:
            raise ClientError(f"{place}[{i}]", f"is {shown(token)}, must be a token id in the vocabulary")
    return tuple(value)
