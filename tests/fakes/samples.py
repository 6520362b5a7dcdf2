"""Not a fake: which part of a large check runs in `make test`. The whole of it runs in `make test-slow`.

A part is chosen by a seed, so a failure is there again in the next run. A grid gives some of its cases unmarked and the
others with the marker `slow`; a property has two numbers of examples and runs in both targets, with the same examples
each time in `make test` and with new ones in `make test-slow`.
"""

import random
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

WHOLE = "whole"  # the profile of hypothesis under which `make test-slow` runs

CALM: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}  # nothing fails by the clock
settings.register_profile("sample", derandomize=True, database=None, **CALM)
settings.register_profile(WHOLE, derandomize=False, **CALM)
settings.load_profile("sample")


def sampled(grid: Iterable[Any], number: int, seed: int = 0) -> list[Any]:
    """Every case of a grid for `parametrize`: `number` of them for `make test`, the others marked slow."""
    cases = list(grid)
    chosen = set(random.Random(seed).sample(range(len(cases)), min(number, len(cases))))
    return [case if index in chosen else slow(case) for index, case in enumerate(cases)]


def slow(case: Any) -> Any:
    """A case for `parametrize` that runs in `make test-slow` alone."""
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.slow)


def examples(sample: int, whole: int, **more: Any) -> settings:
    """How often a property is tried in `make test` and in `make test-slow`; `more` are settings of hypothesis."""
    number = whole if settings.get_current_profile_name() == WHOLE else sample
    return settings(max_examples=number, **more)
