"""`@function`: what a user's function becomes."""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, overload

from ramet.frontend.batch import Batch
from ramet.frontend.runnable import Runnable
from ramet.frontend.state import State


class Program(Runnable):
    """A program: run() for one run, run_batch() for many, bind() for one with some of its arguments."""

    def run_batch(
        self,
        batch_kwargs: Sequence[Any],
        *,
        num_threads: int | Literal["auto"] = "auto",
        progress_bar: bool = False,
        generator_style: bool = False,
        on_error: Literal["raise", "return"] = "raise",
        resume: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> list[State] | Iterator[State]:
        """One run for each dict or tuple of arguments; the states, in their order. `options`: as run() takes them.

        num_threads: programs that run at once. generator_style: an iterator, which yields each state when it and those
        before it are done. on_error: "raise": the first failure ends the others and is raised as BatchFailed; "return":
        a state that failed is returned as the others are, and tells why by state.error(). resume: a file to which each
        finished program is written; programs that it has already are not run again, and their values are what JSON
        makes of them. Raises TypeError and ValueError for arguments that do not fit.
        """
        if on_error not in ("raise", "return"):
            raise ValueError(f"on_error is {on_error!r}, must be 'raise' or 'return'")
        batch = Batch(self, batch_kwargs, num_threads, options, resume)
        states = batch.results(progress_bar, on_error == "raise")
        return states if generator_style else list(states)


@overload
def function(func: Callable[..., Any]) -> Program: ...


@overload
def function(func: None = None, num_api_spec_tokens: int | None = None) -> Callable[[Callable[..., Any]], Program]: ...


def function(func: Callable[..., Any] | None = None, num_api_spec_tokens: int | None = None) -> Any:
    """A program of a function, plain or async, whose first parameter is the state of a prompt, by any name.

    `num_api_spec_tokens`: each call of a service generates so many tokens on, for the calls that follow
    (frontend/speculation.py).
    """
    if func is not None:
        return Program(func, num_api_spec_tokens)
    return lambda func: Program(func, num_api_spec_tokens)
