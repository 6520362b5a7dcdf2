"""Bodies that are accepted and whose work is that of many requests, each made to a size and within every bound.

The control of such a body is not a text of as many bytes, which is refused unread, but the same work asked for by many
ordinary requests. What is measured is what asking for it all at once costs the others.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import orjson

from ramet.bench.abuse.bodies import WORDS, AbusiveBody, filled, required
from ramet.bench.abuse.shapes import CONSTRAINT

NUM_PROMPTS = 16_000
NUM_PARAMS = 14_000  # each with four keys, of which a body may have 65,536
NUM_CHOICES = 4000
NUM_INPUTS = 2048  # of one request for embeddings
CONTEXT = 14_000  # bytes of a text that nearly fills the bundled model's context
SAMPLES = 64  # of the prompt with a long constant
ONE = {"max_new_tokens": 1}
FREE = {"n": SAMPLES, "max_new_tokens": 128, "ignore_eos": True}


class Heavy(NamedTuple):
    """`parts`: what a body of this size asks for, each of which is an ordinary request by itself."""

    path: str
    parts: Callable[[int], list[Any]]
    together: Callable[[list[Any]], dict[str, Any]]
    alone: Callable[[Any], dict[str, Any]]
    alone_path: str = ""  # empty: the same

    def body(self, size: int) -> AbusiveBody:
        """Blanks fill up a body whose parts may not be longer."""
        return AbusiveBody(self.path, orjson.dumps(self.together(self.parts(size))).ljust(size))

    def control(self, size: int) -> list[AbusiveBody]:
        return [AbusiveBody(self.alone_path or self.path, orjson.dumps(self.alone(part))) for part in self.parts(size)]


@cache
def _texts(size: int, num: int) -> list[str]:
    """So many texts, all different, which come to nearly `size` bytes with the quotes and commas of a list."""
    words = filled(WORDS, CONTEXT).decode()
    return [f"{i} {words}"[: max(1, min(CONTEXT, size // num - 4))] for i in range(num)]


def _prompts(size: int) -> list[str]:
    return _texts(size, NUM_PROMPTS)


def _sampled(size: int) -> list[tuple[str, dict[str, Any]]]:
    num = min(NUM_PARAMS, size // 74)
    texts = _texts(size - 60 * num, num)
    return [(text, {**ONE, "temperature": 0.5, "top_k": i + 1}) for i, text in enumerate(texts)]


def _choices(size: int) -> list[str]:
    """More tokens than those of short choices are refused."""
    return _texts(min(size, NUM_CHOICES * 64), NUM_CHOICES)


def _contexts(size: int) -> list[str]:
    return _texts(size, max(1, size // CONTEXT))


def _schemas(size: int) -> list[dict[str, Any]]:
    num = max(1, round(size / CONSTRAINT))
    schema = orjson.loads(required(size // num - 96))
    return [{"title": str(i), **schema} for i in range(num)]


def _constants(size: int) -> list[str]:
    num = max(1, round(size / CONSTRAINT))
    each = size // num - 128
    return [f"{i} {filled(WORDS, each).decode()}"[:each] for i in range(num)]


HEAVY: dict[str, Heavy] = {
    "many prompts": Heavy(
        "/generate", _prompts, lambda texts: {"text": texts, "sampling_params": ONE},
        lambda text: {"text": text, "sampling_params": ONE},
    ),
    "sampling parameters of each prompt": Heavy(
        "/generate", _sampled, lambda parts: {"text": [t for t, _ in parts], "sampling_params": [p for _, p in parts]},
        lambda part: {"text": part[0], "sampling_params": part[1]},
    ),
    "many choices": Heavy(
        "/language/select", _choices, lambda texts: {"prompt": ["x"], "choices": texts},
        lambda text: {"text": f"x{text}", "sampling_params": {"max_new_tokens": 0}, "return_logprob": True,
                      "logprob_start_len": 0}, "/generate",
    ),
    "texts to embed together": Heavy(
        "/v1/embeddings", lambda size: _texts(size, NUM_INPUTS), lambda texts: {"input": texts},
        lambda text: {"input": text},
    ),
    "prompts of many contexts": Heavy(
        "/v1/completions", _contexts, lambda texts: {"prompt": texts, "max_tokens": 1},
        lambda text: {"prompt": text, "max_tokens": 1},
    ),
    "required properties": Heavy(
        "/generate", _schemas, lambda schemas: {"text": ["x"] * len(schemas), "sampling_params": [
            {**ONE, "json_schema": schema} for schema in schemas]},
        lambda schema: {"text": "x", "sampling_params": ONE},
    ),
    "long constants": Heavy(
        "/generate", _constants, lambda texts: {"text": ["x"] * len(texts), "sampling_params": [
            {**FREE, "json_schema": {"const": text}} for text in texts]},
        lambda text: {"text": "x", "sampling_params": FREE},
    ),
}  # fmt: skip
