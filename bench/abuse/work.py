"""Small requests that cost the engine much: grammars, schemas and patterns. Each has a control.

Every request differs from the one before in a number, so that no cache of compiled constraints answers it. The control
generates as many tokens of plain text and has as many bytes.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import orjson

from ramet.bench.abuse.bodies import AbusiveBody

TOKENS = 60
LEVELS = 40  # levels of the union, whose size doubles with each


class Work(NamedTuple):
    params: Callable[[int], dict[str, Any]]  # sampling parameters of the request of this number

    def body(self, number: int) -> AbusiveBody:
        return _body(number, self.params(number))

    def control(self, number: int) -> AbusiveBody:
        plain = _body(number, {})
        missing = len(self.body(number).data) - len(plain.data)
        return _body(number, {}, text="x " * (max(0, missing) // 2))


def _body(number: int, params: dict[str, Any], text: str = "") -> AbusiveBody:
    common = {"temperature": 0.8, "sampling_seed": number, "max_new_tokens": TOKENS, "ignore_eos": not params}
    return AbusiveBody("/generate", orjson.dumps({"text": f"{number} {text}", "sampling_params": {**common, **params}}))


def ambiguous(number: int) -> dict[str, Any]:
    """A text of letters that can be parsed in more ways with each letter."""
    return {"ebnf": f'root ::= s\ns ::= s s s | s s | [a-z ] | "{number}"'}


def union(number: int) -> dict[str, Any]:
    """Each level is one of two references to the next."""
    levels = {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(LEVELS)}
    schema = {"$ref": "#/$defs/d0", "$defs": {**levels, f"d{LEVELS}": {"const": number}}}
    return {"json_schema": schema}


def counts(number: int) -> dict[str, Any]:
    return {"regex": f"(([a-z]{{1,200}} ){{1,200}}){{1,{100 + number % 100}}}"}


def nested(number: int) -> dict[str, Any]:
    return {"regex": f"(((a|a)*|(a|b)*)*|{number})*c"}


def stopping(number: int) -> dict[str, Any]:
    return {"stop_regex": [f"(.*a){{12}}{number}"], "ignore_eos": True}


WORK: dict[str, Work] = {
    "an ambiguous grammar": Work(ambiguous),
    "a doubling union": Work(union),
    "counts of counts": Work(counts),
    "nested repetitions": Work(nested),
    "a stop pattern": Work(stopping),
}
