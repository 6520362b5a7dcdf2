"""From a prompt to one vector: what the engine is asked for, and the arithmetic on what it tells.

Decides mean or last token, how many numbers are kept, and length 1. Knows no endpoint. A vector is float32: both
spellings of a reply show the same numbers.
"""

import math
import sys
from array import array
from base64 import b64encode
from operator import mul
from typing import NamedTuple, TypeAlias

from ramet.ipc.params import SamplingParams
from ramet.ipc.spec import HiddenMode, RequestSpec
from ramet.runtime.engine_client.submission import Prompt, Sequence
from ramet.runtime.errors import ServerError
from ramet.runtime.text.pooling import Kind

PREFILL_ONLY = SamplingParams(max_new_tokens=0)
Vector: TypeAlias = "array[float]"


class Recipe(NamedTuple):
    """`dimensions`: the first numbers alone; None: all."""

    kind: Kind
    normalize: bool
    dimensions: int | None = None


def prompt_to_embed(rid: str, place: str, kind: Kind, content: str | bytes) -> Prompt:
    """content: a text, or packed token ids."""
    text, ids = (content, None) if isinstance(content, str) else (None, content)
    return Prompt(rid, RequestSpec(PREFILL_ONLY, hidden=HiddenMode(kind)), text=text, ids=ids, place=place)


def vector_of(sequence: Sequence, recipe: Recipe) -> Vector:
    assert sequence.hidden is not None, f"{sequence.uid} told no hidden states"
    kept = sequence.hidden.pooled[: recipe.dimensions]
    length = math.sqrt(math.fsum(map(mul, kept, kept)))
    if not math.isfinite(length):
        raise ServerError("The model produced hidden states that are not finite.")
    divisor = length if recipe.normalize and length > 0 else 1.0
    return array("f", [value / divisor for value in kept])


def cosine(one: Vector, other: Vector) -> float:
    """Of vectors of length 1."""
    return math.fsum(map(mul, one, other))


def in_base64(vector: Vector) -> str:
    """Little-endian float32, whatever this machine's order."""
    if sys.byteorder == "big":
        vector = array("f", vector)
        vector.byteswap()
    return b64encode(vector.tobytes()).decode()
