"""Values of a graph's nodes while it runs: what is made of arguments and of values of calls, when they are there."""

import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ramet.frontend.errors import CallFailed, SeenFailures
from ramet.frontend.ir import ConstantText, Printed
from ramet.frontend.nodes import Argument, Formatted, Text, VariableOf
from ramet.frontend.prompt import EMPTY
from ramet.frontend.results import IN_TURN, Result
from ramet.frontend.state import State


def worked_out(value: Any, arguments: Mapping[str, Any], found: Mapping[VariableOf, Any]) -> Any:
    """The value of a SetVariable or of a Formatted. Raises what formatting does, and TypeError."""
    made = partial(worked_out, arguments=arguments, found=found)
    match value:
        case Argument(name):
            return arguments[name]
        case VariableOf():
            return found[value]
        case Formatted(inner):
            return value.of(made(inner))
        case Text(parts):
            return "".join(_added(made(part)) for part in parts)
        case ConstantText(text):
            return text
        case tuple() if hasattr(value, "_make"):  # a named tuple
            return value._make(map(made, value))
        case list() | tuple():
            return type(value)(map(made, value))
        case dict():
            return {key: made(each) for key, each in value.items()}
        case set():
            return set(value)
    return value


def _added(value: Any) -> str:
    """A part of a text."""
    if not isinstance(value, str | Printed):
        raise TypeError(f"{type(value).__name__} is added to a text")
    return str(value)


def mapped(result: Result, function: Callable[[Any], Any], fail: Callable[[BaseException], BaseException]) -> Result:
    """What a function makes of a value when it is there. It fails as the value does, or with what `fail` makes of the
    function's error. It has no meta information, as what a program stores has none.
    """
    made = Result()

    def settle() -> None:
        try:
            value = result.future.result()
        except BaseException as error:  # noqa: BLE001 - given to whoever uses the value
            made.fail(error)
            return
        try:
            value = function(value)
        except BaseException as error:  # noqa: BLE001 - the same
            made.fail(fail(error))
            return
        made.set(value)

    result.future.add_done_callback(lambda _: IN_TURN.call(settle))
    return made


class Failing:
    """Tells the run of a state that a value could not be made; whoever uses the value gets the error.

    `what`: of the error. The state has the values, and does not live until the last of them is let go.
    """

    def __init__(self, state: State, what: str) -> None:
        self._what, self._run, self._state = what, state.run, weakref.ref(state)

    def __call__(self, reason: BaseException) -> BaseException:
        if isinstance(reason, CallFailed) or not isinstance(reason, Exception):
            return reason
        state, run = self._state(), self._run
        error = CallFailed(self._what, None, reason, state.stream_prompt if state is not None else EMPTY)
        error.seen = SeenFailures(run.seen)
        if run.backend.loop.is_current():
            run.failed(error)
        else:
            run.backend.loop.soon(lambda: run.failed(error))
        return error
