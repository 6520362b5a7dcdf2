"""Sampling parameters: their names, defaults and valid ranges, checked in one place.

Decides what a client may ask for and how a wrong value is reported. Knows no model: checks against a
vocabulary or a context length live where those are known (runtime/text/encoder.py).
docs/sampling.md shows them.
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple, get_type_hints

import msgspec

from ramet.ipc.errors import ClientError

SHOWN = 80  # characters of a value in an error message
MAX_STOPS = 32
MAX_STOP_BYTES = 1024
MAX_REGEX_BYTES = 256
MAX_STOP_IDS = 1024
MAX_BIASES = 1024
MAX_SAMPLES = 128
MAX_NEW_TOKENS = 1 << 30
GREEDY_BELOW = 1e-6  # a temperature under this is greedy decoding


def about(text: str, **schema: Any) -> msgspec.Meta:
    """A field's line in the documentation, and what its JSON schema says beside its type."""
    return msgspec.Meta(description=text, extra_json_schema=schema or None)


class Check(NamedTuple):
    """`read(place, value)` gives the value as it is kept, or raises ClientError; `valid` says what it takes.

    `schema`: the same as JSON schema.
    """

    valid: str
    read: Callable[[str, Any], Any]
    schema: dict[str, Any]


def shown(value: Any) -> str:
    """A client's value, quoted for an error message and cut to a sane length."""
    text = _start(value, SHOWN)
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def quoted(text: str) -> str:
    """The repr of the text, but with each backslash once, as in the text: JSON and logs may double it again."""
    return repr(text).replace("\\\\", "\\")


def _start(value: Any, room: int) -> str:
    """More than the first `room` characters of it, quoted, or all. Of millions of entries, and of a list that contains
    itself, only a few are looked at.
    """
    if room < 0:
        return ""
    if type(value) is str:
        return quoted(value if len(value) <= room else value[: room + 1])
    if type(value) is list or type(value) is dict:
        text = "[" if type(value) is list else "{"
        for item in value:
            left = room - len(text)
            key = f"{_start(item, left)}: " if type(value) is dict else ""
            entry = key + _start(value[item] if key else item, left - len(key))
            text += entry if len(text) == 1 else f", {entry}"
            if len(text) > room:
                return text
        return text + ("]" if type(value) is list else "}")
    if isinstance(value, int) and value.bit_length() > 256:
        return f"an integer of {value.bit_length()} bits"  # Python refuses to print the very longest
    return repr(value)


def _real(low: float, high: float, low_open: bool = False) -> Check:
    valid = f"in {'(' if low_open else '['}{low:g}, {high:g}]" if math.isfinite(high) else f"finite and >= {low:g}"
    finite = f"finite, {valid}" if math.isfinite(high) else valid

    def check(where: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ClientError(where, f"is {shown(value)}, must be a number, {valid}")
        if isinstance(value, int) and value.bit_length() > 1000:
            raise ClientError(where, f"is {shown(value)}, must be {finite}")
        if not math.isfinite(value):
            raise ClientError(where, f"is {value}, must be {finite}")
        if value > high or value < low or (low_open and value == low):
            raise ClientError(where, f"is {shown(value)}, must be {valid}")
        return float(value)

    schema: dict[str, Any] = {"type": "number", "exclusiveMinimum" if low_open else "minimum": low}
    return Check(valid, check, schema | ({"maximum": high} if math.isfinite(high) else {}))


def integer(low: int, high: int, valid: str = "", also: tuple[int, ...] = ()) -> Check:
    valid = valid or f"in [{low}, {high}]"

    def check(where: str, value: Any) -> int:
        if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ClientError(where, f"is {shown(value)}, must be an integer, {valid}")
        if not (low <= value <= high or value in also):
            raise ClientError(where, f"is {shown(value)}, must be {valid}")
        return value

    schema: dict[str, Any] = {"type": "integer", "minimum": low, "maximum": high}
    return Check(valid, check, {"anyOf": [schema, {"enum": list(also)}]} if also else schema)


_bias = _real(-100, 100)
_DIGITS = re.compile("[0-9]{1,10}")
_NUMBER = re.compile(r"^[+-]?[0-9]{1,20}(\.[0-9]{0,20})?([eE][+-]?[0-9]{1,3})?$")
MAX_INT32 = (1 << 31) - 1


def _read_flag(where: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ClientError(where, f"is {shown(value)}, must be true or false")
    return value


flag = Check("true or false", _read_flag, {"type": "boolean"})
_token_id = {"type": "integer", "minimum": 0}


def _strings(most: int, max_bytes: int) -> Check:
    def check(where: str, value: Any) -> tuple[str, ...]:
        items = [value] if isinstance(value, str) else value
        if isinstance(items, list | tuple) and len(items) > most:
            raise ClientError(where, f"has {len(items)} entries, must have at most {most}")
        if not isinstance(items, list | tuple) or not all(isinstance(s, str) for s in items):
            raise ClientError(where, f"is {shown(value)}, must be a string or a list of strings")
        for i, s in enumerate(items):
            try:
                size = len(s.encode())
            except UnicodeEncodeError:
                raise ClientError(f"{where}[{i}]", "has half a surrogate pair, must be valid Unicode") from None
            if size > max_bytes:
                raise ClientError(f"{where}[{i}]", f"has {size} bytes, must have at most {max_bytes}")
        return tuple(dict.fromkeys(s for s in items if s))

    text = {"type": "string", "maxLength": max_bytes}
    schema = {"anyOf": [text, {"type": "array", "items": text, "maxItems": most}]}
    return Check(f"a string or at most {most}, of {max_bytes} bytes each", check, schema)


def _token_ids(where: str, value: Any) -> tuple[int, ...]:
    items = [value] if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(items, list | tuple):
        raise ClientError(where, f"is {shown(value)}, must be a list of token ids")
    if len(items) > MAX_STOP_IDS:
        raise ClientError(where, f"has {len(items)} entries, must have at most {MAX_STOP_IDS}")
    unique = dict.fromkeys(items) if set(map(type, items)) <= {int} else None
    if unique is None or (unique and min(unique) < 0):
        at = next(i for i, token in enumerate(items) if type(token) is not int or token < 0)
        raise ClientError(f"{where}[{at}]", f"is {shown(items[at])}, must be a token id of the vocabulary, >= 0")
    if unique and max(unique) > MAX_INT32:
        # those beyond every vocabulary, which the tokenizer process leaves out, become one that a message can hold
        unique = dict.fromkeys(min(token, MAX_INT32) for token in unique)
    return tuple(unique)


def _logit_bias(where: str, value: Any) -> tuple[tuple[int, float], ...]:
    if not isinstance(value, dict):
        raise ClientError(where, f"is {shown(value)}, must be an object from token id to a number in [-100, 100]")
    if len(value) > MAX_BIASES:
        raise ClientError(where, f"has {len(value)} entries, must have at most {MAX_BIASES}")
    biases: dict[int, float] = {}
    for key, bias in value.items():
        if not _DIGITS.fullmatch(key if isinstance(key, str) else shown(key)) or int(key) >= 1 << 31:
            raise ClientError(where, f"has the key {shown(key)}, must be a token id of the vocabulary, >= 0")
        if int(key) in biases:
            raise ClientError(where, f"has the token id {int(key)} twice, must have it once")
        place = f"{where}[{key}]"
        biases[int(key)] = _bias.read(place, _from_text(bias))
    return tuple(biases.items())


def _from_text(value: Any) -> Any:
    """A number that a client wrote as a string, as OpenAI's clients may; anything else as it is."""
    return float(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else value


def _object(where: str, value: Any) -> Any:
    if not isinstance(value, dict):
        raise ClientError(where, f"is {shown(value)}, must be an object")
    return value


_BIAS_TEXT = {"type": "string", "pattern": _NUMBER.pattern}
_OBJECT = Check("an object", _object, {"type": "object"})
_STOP_IDS = Check(
    f"at most {MAX_STOP_IDS} ids >= 0; those beyond the vocabulary are ignored",
    _token_ids,
    {"anyOf": [_token_id, {"type": "array", "items": _token_id, "maxItems": MAX_STOP_IDS}]},
)
_BIASES = Check(
    f"at most {MAX_BIASES} token ids, each with a number in [-100, 100], which may be a string",
    _logit_bias,
    {
        "type": "object",
        "maxProperties": MAX_BIASES,
        "patternProperties": {"^[0-9]{1,10}$": {"anyOf": [_bias.schema, _BIAS_TEXT]}},
        "additionalProperties": False,
    },
)


def sampling(text: str, check: Check, filters: bool = False) -> msgspec.Meta:
    """A sampling parameter: its line in the documentation, and the values that it takes.

    `filters`: it leaves out tokens of the rows that ask for it, as runtime/sampling/filters.py says; its default does
    nothing.
    """
    return msgspec.Meta(description=text, extra={"check": check, "filters": filters})


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What one request asks of sampling and stopping. Build it with `parse`, which checks every field."""

    max_new_tokens: Annotated[
        int, sampling("tokens to draw at most, cut to what the context leaves; 0: none", integer(0, MAX_NEW_TOKENS))
    ] = 128
    stop: Annotated[
        tuple[str, ...],
        sampling("the output ends before the first of these texts", _strings(MAX_STOPS, MAX_STOP_BYTES)),
    ] = ()
    stop_token_ids: Annotated[
        tuple[int, ...], sampling("the output ends with one of these, also under ignore_eos", _STOP_IDS)
    ] = ()
    stop_regex: Annotated[
        tuple[str, ...],
        sampling("the output ends before the first match of one of these", _strings(MAX_STOPS, MAX_REGEX_BYTES)),
    ] = ()
    temperature: Annotated[
        float, sampling("divides the logits; below 1e-6 the best token is taken", _real(0, math.inf))
    ] = 1.0
    top_p: Annotated[
        float,
        sampling(
            "draw from the fewest best tokens that have this share of the probability", _real(0, 1, low_open=True)
        ),
    ] = 1.0
    top_k: Annotated[
        int,
        sampling(
            "draw from this many best tokens; -1: from all",
            integer(1, MAX_NEW_TOKENS, f"-1 (off) or in [1, {MAX_NEW_TOKENS}]", also=(-1,)),
        ),
    ] = -1
    min_p: Annotated[
        float, sampling("draw from tokens with at least this share of the best one's probability", _real(0, 1))
    ] = 0.0
    typical_p: Annotated[
        float,
        sampling(
            "draw from the fewest tokens of average surprise that have this share of the probability",
            _real(0, 1, low_open=True),
            filters=True,
        ),
    ] = 1.0
    frequency_penalty: Annotated[
        float, sampling("subtracted from a token's logit for each time it was drawn", _real(-2, 2))
    ] = 0.0
    presence_penalty: Annotated[
        float, sampling("subtracted once from the logit of a token that was drawn", _real(-2, 2))
    ] = 0.0
    repetition_penalty: Annotated[
        float,
        sampling(
            "divides the logit of a token that was drawn, multiplies it where it is negative; 0 counts as 1e-6",
            _real(0, 2),
        ),
    ] = 1.0
    logit_bias: Annotated[
        tuple[tuple[int, float], ...], sampling("token id -> what is added to its logit", _BIASES)
    ] = ()
    min_new_tokens: Annotated[
        int,
        sampling(
            "tokens before which none that would stop the output is drawn: end of sequence, stop_token_ids",
            integer(0, MAX_NEW_TOKENS, "in [0, max_new_tokens]"),
        ),
    ] = 0
    sampling_seed: Annotated[
        int | None,
        sampling(
            "the same seed draws the same tokens, whatever else runs; null: another one each time",
            integer(-(1 << 63), (1 << 63) - 1, "in [-2^63, 2^63)"),
        ),
    ] = None
    n: Annotated[int, sampling("independent outputs of one prompt", integer(1, MAX_SAMPLES))] = 1
    ignore_eos: Annotated[bool, sampling("the model's end-of-sequence tokens do not stop the output", flag)] = False
    skip_special_tokens: Annotated[bool, sampling("special tokens do not show in the text", flag)] = True
    spaces_between_special_tokens: Annotated[bool, sampling("a space between special tokens that show", flag)] = True
    no_stop_trim: Annotated[bool, sampling("the text keeps what stopped it", flag)] = False
    custom_params: Annotated[
        dict[str, Any] | None, sampling("what the request's custom_logit_processor reads", _OBJECT)
    ] = None
    stream_interval: Annotated[
        int,
        sampling("new tokens between two events of a stream; the first one comes at once", integer(1, MAX_NEW_TOKENS)),
    ] = 1

    @property
    def greedy(self) -> bool:
        return self.temperature < GREEDY_BELOW

    @property
    def filters(self) -> dict[str, float]:
        """The filters that its draws need, with their values. The best token is taken without any."""
        if self.greedy:
            return {}
        return {name: value for name, default in FILTER_DEFAULTS.items() if (value := getattr(self, name)) != default}

    @property
    def penalised(self) -> bool:
        """Its logits depend on the tokens it has drawn."""
        return self.frequency_penalty != 0 or self.presence_penalty != 0 or self.repetition_penalty != 1


_HINTS = get_type_hints(SamplingParams, include_extras=True)
ABOUT: dict[str, str] = {name: hint.__metadata__[0].description for name, hint in _HINTS.items()}
CHECKS: dict[str, Check] = {name: hint.__metadata__[0].extra["check"] for name, hint in _HINTS.items()}
FILTER_DEFAULTS: dict[str, float] = {
    field.name: field.default
    for field in msgspec.structs.fields(SamplingParams)
    if _HINTS[field.name].__metadata__[0].extra["filters"]
}


def parse(
    raw: Mapping[str, Any],
    defaults: SamplingParams | None = None,
    place: str = "sampling_params.",
    names: Mapping[str, str] | None = None,
) -> SamplingParams:
    """Check a client's dict and complete it from `defaults`. None means "the default"; unknown keys are ignored.

    `names`: what the client calls parameters that have another name there. Raises ClientError naming the parameter, its
    value and the valid range.
    """
    fields, names = {}, names or {}
    for name, check in CHECKS.items():
        if (value := raw.get(name)) is not None:
            fields[name] = check.read(place + names.get(name, name), value)
    params = msgspec.structs.replace(defaults or SamplingParams(), **fields)
    check_lengths(place + names.get("min_new_tokens", "min_new_tokens"), params.min_new_tokens, params.max_new_tokens)
    return params


def check_lengths(where: str, least: int, most: int) -> None:
    """Raises ClientError."""
    if least > most:
        raise ClientError(where, f"is {least}, must be in [0, max_new_tokens] = [0, {most}]")
