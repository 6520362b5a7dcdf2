"""By what a run is known again: its program, the arguments as its function gets them, and the run's parameters."""

import hashlib
import inspect
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ramet.frontend.canonical import body_form, canonical
from ramet.frontend.runnable import Runnable, RunOptions


class RunKeys:
    """Of a program's runs with `options`. Backends are no part of a key: a server may come back at another address."""

    def __init__(self, program: Runnable, body: Any, options: RunOptions) -> None:
        """`body`: what the program executes. Raises TypeError for one that closes over what has no canonical form."""
        self._signature, self._bound = inspect.signature(program.function), program.bound
        try:
            self._shared = [body_form(body), canonical(options.sampling), canonical(options.options)]
        except TypeError as error:
            raise TypeError(f"resume: {error}; globals are not compared") from None

    def of(self, place: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
        """None: the function does not take such arguments, and its run will say so. Raises TypeError."""
        try:
            given = self._signature.bind(None, *args, **{**self._bound, **kwargs})
        except TypeError:
            return None
        given.apply_defaults()
        forms = dict(list(given.arguments.items())[1:])  # without the state
        for name, value in forms.items():
            try:
                forms[name] = canonical(value)
            except TypeError as error:
                raise TypeError(f"resume: {place}, parameter {name!r}: {error}") from None
        return hashlib.sha256(json.dumps([self._shared, forms], sort_keys=True).encode()).hexdigest()
