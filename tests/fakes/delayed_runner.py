"""A device that computes a step only when its result is waited for, as late as it can be.

Between launch and result the scheduler plans, applies, admits, ends and frees: whatever of that reaches a step that was
launched before shows here. Nothing in the step may have changed, and nobody may have been given a slot that it uses.
"""

import dataclasses
import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
from hash_runner import HashRunner

from ramet.runtime.engine.batch import Batch, StepResult


def fingerprint(value: Any) -> str:
    """Of a frozen dataclass of numbers, arrays, tuples and dicts, to any depth."""
    digest = hashlib.sha256()
    _feed(digest.update, value)
    return digest.hexdigest()


def _feed(update: Callable[[bytes], None], value: Any) -> None:
    match value:
        case np.ndarray():
            update(f"{value.dtype}{value.shape}".encode() + value.tobytes())
        case tuple() | list():
            for each in value:
                _feed(update, each)
        case dict():
            _feed(update, sorted(value.items()))
        case None | bool() | int() | float() | str() | np.generic():
            update(repr(value).encode())
        case _ if dataclasses.is_dataclass(value):
            _feed(update, [getattr(value, each.name) for each in dataclasses.fields(value)])
        case _:
            raise AssertionError(f"a step holds {type(value).__name__}, which is no value")


class _Late:
    runs = True

    def __init__(self, runner: "DelayedRunner", batch: Batch) -> None:
        self.batch, self.print, self._runner = batch, fingerprint(batch), runner
        self.done: StepResult | None = None
        self.allowed: np.ndarray | None = None

    def draw(self, allowed: np.ndarray) -> None:
        self.allowed = allowed

    def result(self) -> StepResult:
        self._runner.run_until(self)
        assert self.done is not None
        return self.done


class DelayedRunner(HashRunner):
    """`in_flight` holds the steps that were launched and not computed, in order."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.in_flight: list[_Late] = []
        self.most_in_flight = 0

    def launch(self, batch: Batch) -> Any:
        self.in_flight.append(_Late(self, batch))
        self.most_in_flight = max(self.most_in_flight, len(self.in_flight))
        return self.in_flight[-1]

    def run_until(self, wanted: _Late) -> None:
        while wanted.done is None:
            late = self.in_flight.pop(0)
            assert fingerprint(late.batch) == late.print, "a step changed after it was planned"
            self.compute(late.batch)
            late.done = self.finish(late.batch, late.allowed)
