"""Answers of services that are built otherwise than their APIs say: errors that name the service and what was wrong."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from ramet.frontend.errors import BackendError
from ramet.ipc.params import shown


@contextmanager
def reading(name: str, answer: Any) -> Iterator[None]:
    """Around code that reads an answer, which must be an object, and calls nothing else. Raises BackendError."""
    if not isinstance(answer, Mapping):
        raise BackendError(name, f"its answer is not an object: {shown(answer)}")
    try:
        yield
    except KeyError as error:
        raise BackendError(name, f"its answer has no {error}: {shown(answer)}") from error
    except (AttributeError, IndexError, TypeError, ValueError, msgspec.ValidationError) as error:
        raise BackendError(name, f"its answer is not as expected ({error}): {shown(answer)}") from error
