"""What a program gives to `LLM.generate`: texts, token ids or arrays, and parameters -> prompts of the engine.

Decides what is one prompt and what is a list of them. Knows arrays of numpy and torch by what they can do, and imports
neither. Prompts and parameters are checked where those of bodies are checked.
"""

from collections.abc import Sequence as Many
from operator import index
from typing import Any, NamedTuple

from ramet.ipc.messages import pack_ids
from ramet.ipc.params import SamplingParams, shown
from ramet.ipc.spec import RequestSpec
from ramet.runtime.engine_client.submission import Prompt
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.body import convert
from ramet.runtime.intake.prompts import pack_embeds
from ramet.runtime.intake.specs import SpecLists, read_specs

TextOrIds = str | Many[int] | Any  # Any: an array of numpy or torch


class Defaults(NamedTuple):
    """What a call that names nothing gets, and what the engine takes."""

    params: SamplingParams
    hidden_size: int
    processors_on: bool


def read_prompts(prompts: Any, sampling_params: Any, extras: dict[str, Any], defaults: Defaults) -> list[Prompt]:
    """One for each prompt, in order. Raises ClientError."""
    single = _is_single(prompts)
    contents = [prompts] if single else list(prompts)
    specs = read_calls(len(contents), sampling_params, extras, defaults)
    each = isinstance(sampling_params, list | tuple)
    return [
        _prompt(content, specs[i], "" if single else f"[{i}]", f"[{i}]" if each else "", defaults.hidden_size)
        for i, content in enumerate(contents)
    ]


def read_calls(count: int, sampling_params: Any, extras: dict[str, Any], defaults: Defaults) -> list[RequestSpec]:
    """What is asked for each of so many prompts. Raises ClientError, and TypeError for an unknown argument."""
    known = [name for name in SpecLists.__struct_fields__ if name != "sampling_params"]
    unknown = set(extras) - set(known)
    if unknown:
        raise TypeError(f"unknown argument {sorted(unknown)[0]}; known are {', '.join(known)}")
    body = convert({**extras, "sampling_params": sampling_params}, SpecLists)
    return read_specs(body, count, True, defaults.params, defaults.processors_on)


def _prompt(content: Any, spec: RequestSpec, at: str, params_at: str, hidden_size: int) -> Prompt:
    """`at`: where it stands in a list of prompts, as "[2]"."""
    place, text, ids, embeds = "text", None, None, None
    if isinstance(content, str):
        text = content
    elif _is_embeds(content):
        place = "input_embeds"
        embeds = pack_embeds(place + at, _rows(content), hidden_size)
    else:
        place = "input_ids"
        ids = pack_any(place + at, content)
    return Prompt("", spec, text, ids, place + at, "sampling_params" + params_at, embeds)


def plain(value: Any) -> Any:
    """Arrays and tuples as lists, and their numbers as Python's, which is what bodies hold."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def _is_single(prompts: Any) -> bool:
    """One prompt is a text, a list of ids or an array of embeddings; several are a list of those."""
    return isinstance(prompts, str) or _is_embeds(prompts) or (len(prompts) > 0 and _is_id(prompts[0]))


def _is_id(item: Any) -> bool:
    """A number of whatever integer type, as opposed to an array of them."""
    return hasattr(item, "__index__") and getattr(item, "ndim", 0) == 0


def _is_embeds(prompt: Any) -> bool:
    """A floating array of two dimensions."""
    if getattr(prompt, "ndim", 0) != 2:
        return False
    return bool(prompt.is_floating_point()) if hasattr(prompt, "detach") else prompt.dtype.kind == "f"


def _rows(prompt: Any) -> list[list[float]]:
    rows: list[list[float]] = (prompt.detach().float().cpu() if hasattr(prompt, "detach") else prompt).tolist()
    return rows


def pack_any(place: str, ids: Any) -> bytes:
    """Ids of any integer type. Raises ClientError for what is no id at all; the vocabulary is checked elsewhere."""
    try:
        if isinstance(ids, bytes | bytearray):
            raise TypeError
        return pack_ids(map(index, ids))
    except (TypeError, OverflowError):
        raise ClientError(place, f"is {shown(ids)}, must be a list of token ids") from None
