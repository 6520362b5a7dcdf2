"""A Python function whose first parameter is the state of a prompt, as something that may be run.

Decides which arguments are the function's and which the run's, which backend a run gets, and on which thread the
function runs: that of `run`'s caller, another one where its text is read as it grows, an event loop for `async def`.
"""

import asyncio
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, NamedTuple, Self

from ramet.frontend.api import OPTIONS, SHORT, split
from ramet.frontend.backends.base import Backend
from ramet.frontend.backends.chosen import backend_of
from ramet.frontend.hints import SharedPrefixes
from ramet.frontend.ir import Variable
from ramet.frontend.loop import check_wait, on_thread
from ramet.frontend.run import Run, RunSettings
from ramet.frontend.state import AsyncState, State
from ramet.ipc.params import CHECKS
from ramet.ipc.waits import waited


class Current(NamedTuple):
    """The run whose function is executed."""

    run: Run
    is_async: bool


CURRENT: ContextVar[Current | None] = ContextVar("ramet_run", default=None)
MAX_KIND = 128  # characters of a function's name that a backend is told; the last ones tell functions apart
OF_RUNS = ("backend", "stream", "timeout_s", "hints")
SAMPLED = frozenset({*CHECKS, *OPTIONS, *SHORT})
DEFAULT_SAMPLING: Mapping[str, Any] = {"max_new_tokens": 128}


class RunOptions(NamedTuple):
    """Arguments of a run that are not its function's."""

    sampling: Mapping[str, Any]
    options: Mapping[str, Any]
    backend: Any = None
    stream: bool = False
    timeout_s: float | None = None
    hints: bool = True


NO_OPTIONS = RunOptions({}, {})


class Runnable:
    """A function with what its runs share. Calling it is `run`, also inside another program, whose backend it uses."""

    def __init__(
        self, function: Callable[..., Any], num_api_spec_tokens: int | None = None, bound: Mapping[str, Any] = {}
    ) -> None:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"{_name_of(function)} has a yield, and a program's function returns when it is called")
        parameters = list(inspect.signature(function).parameters.values())
        if not parameters or parameters[0].kind not in (
            inspect.Parameter.POSITIONAL_ONLY,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
        ):
            raise TypeError(f"{_name_of(function)} must take the state of its prompt as its first argument")
        if num_api_spec_tokens is not None and (isinstance(num_api_spec_tokens, bool) or num_api_spec_tokens < 1):
            raise ValueError(f"num_api_spec_tokens is {num_api_spec_tokens!r}, must be an integer >= 1")
        self.function, self.num_api_spec_tokens = function, num_api_spec_tokens
        self.bound = dict(bound)
        self.is_async = any(map(inspect.iscoroutinefunction, (function, type(function).__call__)))
        self.own_names = frozenset(parameter.name for parameter in parameters[1:])
        name = _name_of(function)
        self.__name__, self.__doc__ = name.rpartition(".")[2], function.__doc__
        self.__wrapped__ = function
        self._kind = f"{function.__module__}.{name}"[-MAX_KIND:]

    @property
    def kind(self) -> str:
        """Its name, as a backend is told it."""
        return self._kind

    @property
    def is_awaited(self) -> bool:
        """Whether a call of it inside an async program is a task."""
        return self.is_async

    def bind(self, **arguments: Any) -> Self:
        """The program with these arguments given."""
        self.check_names(arguments)
        return type(self)(self.function, self.num_api_spec_tokens, {**self.bound, **arguments})

    def check_names(self, arguments: Iterable[str]) -> None:
        """Raises TypeError for one that is none of its parameters."""
        unknown = [name for name in arguments if name not in self.own_names]
        if unknown and not self._takes_any:
            raise TypeError(f"{self.__name__} has no parameter {unknown[0]!r}")

    def run(self, *args: Any, **kwargs: Any) -> State:
        """Execute the function. It returns when the function does; calls that nobody waited for still run.

        Beside the function's arguments: sampling parameters for calls that do not say otherwise (temperature=0,
        max_new_tokens=64, stop=..., as gen() takes them), `backend`, `stream` (its text is read by `text_iter` while
        the function runs on a thread of its own), `timeout_s` (of the whole run), `hints` (False: forks do not have
        their prefix computed first), and `sampling_params`, a dict of the same for functions that have parameters of
        these names themselves. Raises what the function raises, and ClientError.
        """
        if (tracer := current_tracer()) is not None:
            traced: State = tracer.call(self, args, kwargs)
            return traced
        own, options = self.divided(kwargs)
        run = self.new_run(options)
        if self.is_async:
            return self._run_async(AsyncState(run), args, own, wait=not options.stream)
        state = State(run)
        if options.stream:
            state.run_elsewhere()
            on_thread(self._thread_name, lambda: self._run_beside(state, args, own))
            return state
        self.execute(state, args, own)
        return state

    async def arun(self, *args: Any, **kwargs: Any) -> State:
        """The same on any event loop; it returns when all calls are done. A plain function runs on a thread."""
        if (tracer := current_tracer()) is not None:
            traced: State = await tracer.call_async(self, args, kwargs)
            return traced
        own, options = self.divided(kwargs)
        run = self.new_run(options)
        if self.is_async:
            unfinished = AsyncState(run)
            await self.execute_async(unfinished, args, own)
            return unfinished.plain()
        state = State(run)
        try:
            await asyncio.wrap_future(on_thread(self._thread_name, lambda: self._execute_awaited(state, args, own)))
            await state.settled()
        except asyncio.CancelledError:
            run.cancel()
            raise
        return state

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """`run`; an async program inside another one is a task, to be awaited."""
        outer = CURRENT.get()
        if self.is_awaited and outer is not None and outer.is_async:
            return asyncio.get_running_loop().create_task(self.arun(*args, **kwargs))
        return self.run(*args, **kwargs)

    def execute(self, state: State, args: Sequence[Any], own: Mapping[str, Any]) -> None:
        """The plain function on this thread. What it raises ends its calls."""
        try:
            with _current(state.run, is_async=False):
                state.ret_value = self.function(state, *args, **{**self.bound, **own})
        except BaseException as error:
            state.finish(error)  # before its calls end: whoever reads gets this error
            state.cancel()
            raise
        state.finish()

    def _execute_awaited(self, state: State, args: Sequence[Any], own: Mapping[str, Any]) -> None:
        """asyncio takes no StopIteration: it becomes what Python makes of one in an async def."""
        try:
            self.execute(state, args, own)
        except StopIteration as error:
            raise RuntimeError(f"{self.__name__} raised StopIteration") from error

    def _run_beside(self, state: State, args: Sequence[Any], own: Mapping[str, Any]) -> None:
        state.run_here()
        with suppress(Exception):  # whoever reads the state gets it
            self.execute(state, args, own)

    async def execute_async(self, state: AsyncState, args: Sequence[Any], own: Mapping[str, Any]) -> None:
        """The async function on this event loop, until all of its calls are done."""
        try:
            with _current(state.run, is_async=True):
                returned = await self.function(state, *args, **{**self.bound, **own})
            state.run.end_body()
            await state.sync()
            state.ret_value = await _awaited(returned)
        except BaseException as error:
            state.finish(error)
            state.cancel()
            raise
        state.finish()

    def _run_async(self, state: AsyncState, args: Sequence[Any], own: Mapping[str, Any], wait: bool) -> State:
        """On the backend's event loop. `wait`: until it is done."""
        loop = state.run.backend.loop
        if wait:
            check_wait(loop)
        state.run_elsewhere()
        running = loop.start(self.execute_async(state, args, own))
        try:
            if wait:
                waited(running)
        except BaseException:
            running.cancel()
            raise
        return state.plain()

    def new_run(self, options: RunOptions, prefixes: SharedPrefixes | None = None) -> Run:
        """`prefixes`: of the batch that it is one of."""
        settings = self.settings(options, prefixes)
        return Run(self.backend_for(options), settings, _outer(), options.timeout_s, self.kind)

    def backend_for(self, options: RunOptions) -> Backend:
        """Of a run. Raises ProgramError where there is none, and TypeError for what is none."""
        outer = _outer()
        return backend_of(options.backend, outer.backend if outer is not None else None)

    def settings(self, options: RunOptions = NO_OPTIONS, prefixes: SharedPrefixes | None = None) -> RunSettings:
        """What the calls of a run share."""
        sampling = {**DEFAULT_SAMPLING, **options.sampling}
        return RunSettings(sampling, options.options, options.stream, self.num_api_spec_tokens, options.hints, prefixes)

    @property
    def _thread_name(self) -> str:
        return f"ramet-{self.__name__}"

    @property
    def _takes_any(self) -> bool:
        kinds = [parameter.kind for parameter in inspect.signature(self.function).parameters.values()]
        return inspect.Parameter.VAR_KEYWORD in kinds

    def divided(self, kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], RunOptions]:
        """The function's arguments, and the run's. A name that both have is the function's. Raises TypeError."""
        own = {name: value for name, value in kwargs.items() if name in self.own_names}
        rest = {name: value for name, value in kwargs.items() if name not in self.own_names}
        given = _sampling_params(rest.pop("sampling_params", None))
        given |= {name: rest.pop(name) for name in list(rest) if name in SAMPLED or name in OF_RUNS}
        runs = {name: given.pop(name) for name in OF_RUNS if name in given}
        sampling, options = split(given)
        rest.pop("use_thread", None)  # of SGLang's programs: ours need no thread for their calls
        if rest and not self._takes_any:
            raise TypeError(f"{self.__name__} has no parameter {next(iter(rest))!r}, and run() has none of that name")
        timeout_s = runs.get("timeout_s")
        if timeout_s is not None and (not isinstance(timeout_s, int | float) or not timeout_s > 0):
            raise ValueError(f"timeout_s is {timeout_s!r}, must be a number of seconds > 0")
        return {**own, **rest}, RunOptions(sampling, options, **runs)


def _outer() -> Run | None:
    """Of the program that calls this."""
    current = CURRENT.get()
    return current.run if current is not None else None


def current_tracer() -> Any:
    """Of the trace whose function calls this, or None."""
    outer = _outer()
    return outer.tracer if outer is not None else None


def _sampling_params(given: Any) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(f"sampling_params is {given!r}, must be a dict")
    unknown = [name for name in given if name not in SAMPLED and name not in OF_RUNS]
    if unknown:
        raise TypeError(f"sampling_params has {unknown[0]!r}, which is not a parameter of calls, nor of a run")
    return dict(given)


def _name_of(function: Callable[..., Any]) -> str:
    """Of a function, or of an object that is called as one."""
    return str(getattr(function, "__qualname__", type(function).__qualname__))


async def _awaited(value: Any) -> Any:
    """What an async program returns, with the values that were still to come."""
    if isinstance(value, Variable):
        return await value
    if type(value) in (list, tuple):
        return type(value)([await _awaited(each) for each in value])
    if type(value) is dict:
        return {key: await _awaited(each) for key, each in value.items()}
    return value


@contextmanager
def _current(run: Run, is_async: bool) -> Iterator[None]:
    token = CURRENT.set(Current(run, is_async))
    try:
        yield
    finally:
        CURRENT.reset(token)
