"""The state of a prompt as a program sees it: what waits for values, in plain and in async programs.

s["x"] of a plain program blocks until its call is done; in an async program it can be awaited, or appended as it is.
Errors of calls are raised here, where a value is used.
"""

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from ramet.frontend.appending import BaseState
from ramet.frontend.errors import ProgramError
from ramet.frontend.ir import Variable
from ramet.frontend.prompt import Prompt
from ramet.frontend.results import Feed, Result
from ramet.frontend.run import Run
from ramet.ipc.waits import waited


class State(BaseState):
    """Of a plain program, and what every run gives."""

    @classmethod
    def known(cls, run: Run, prompt: Prompt, variables: Mapping[str, Result]) -> "State":
        """Of a program that was run before."""
        state = cls(run)
        state._stream.prompt = prompt
        state._variables.update(variables)
        return state

    @property
    def stream_prompt(self) -> Prompt:
        """As it is now, without a wait."""
        return self._stream.prompt

    def results(self) -> dict[str, Result]:
        """Its variables by their names."""
        return dict(self._variables)

    def __getitem__(self, name: str) -> Any:
        """The value, once its call is done. Raises CallFailed, and KeyError."""
        return self._wait(self.result(name))

    def get_var(self, name: str) -> Any:
        return self[name]

    def get_meta_info(self, name: str) -> Any:
        """What the backend says of the call: finish_reason, numbers of tokens, log-probabilities; a list for n > 1."""
        result = self.result(name)
        self._wait(result)
        return result.meta

    def text(self) -> str:
        """The whole prompt, as the model reads it where the backend shows that. Waits for what was appended."""
        prompt = self.prompt()
        self._check_wait()
        text: str = waited(self.run.backend.loop.start(self._rendered(prompt)))
        return text

    def __str__(self) -> str:
        """Its text, as SGLang's programs print it."""
        return f"ProgramState({self.text()})"

    async def text_async(self) -> str:
        """The text on any event loop."""
        await self._body_ended()
        text: str = await self._elsewhere(self._rendered(await self._stream.end().wait()))
        return text

    def messages(self) -> list[dict[str, Any]]:
        """Its turns as messages: role and content."""
        return self.prompt().messages()

    def sync(self) -> None:
        """Waits until every call of the run, or of this fork, is done, or has failed."""
        self._await_body()
        for end in self._ends():
            if not end.done:
                self._check_wait()
            end.settle()

    async def settled(self) -> None:
        """As `sync`, on any event loop."""
        await self._body_ended()
        await self._settle()

    def error(self) -> BaseException | None:
        """What its function raised, or its first failed call ended with, once all are done; None: all went well.

        Calls of forks count, unless the function was told of their failure and went on.
        """
        self.sync()
        return self._error()

    def fail(self, error: BaseException) -> None:
        """What `error` gives from now on: all calls are done, and what becomes of their values failed."""
        self._found_error = error

    def text_iter(self, var_name: str | None = None) -> Iterator[str]:
        """The text as it grows, or that of a variable; for run(stream=True).

        A variable that is not of a call, such as a scope's, comes whole, at the end. Raises ProgramError where the
        function itself would wait for its own end, and KeyError where it asks for what it has not made.
        """
        feed = self._feed(var_name)
        if var_name is not None and self.run.body.runs_here and var_name not in self._grows:
            yield str(self._wait(self.result(var_name)))
            return
        for piece in feed.pieces(self._check_wait):
            if var_name is None or piece.name == var_name:
                if piece.text:
                    yield piece.text
                if piece.last and var_name is not None:
                    return
        if var_name is not None:
            yield str(self._wait(self.result(var_name)))

    async def text_async_iter(self, var_name: str | None = None, return_meta_data: bool = False) -> AsyncIterator[Any]:
        """The same on any event loop. `return_meta_data`: pairs of text and, with a call's last one, its meta_info."""
        async for piece in self._feed(var_name).pieces_async():
            if var_name is None or piece.name == var_name:
                if piece.text or (return_meta_data and piece.last):
                    yield (piece.text, piece.meta) if return_meta_data else piece.text
                if piece.last and var_name is not None:
                    return
        if var_name is not None:
            text = str(await self.result(var_name).wait())
            yield (text, None) if return_meta_data else text

    def prompt(self) -> Prompt:
        """As it is after everything that was appended, by a function that still runs as well."""
        self._await_body()
        prompt: Prompt = self._wait(self._stream.end())
        return prompt

    def _await_body(self) -> None:
        if self._runs_elsewhere():
            self._check_wait()
            self.run.body.finished.settle()

    async def _body_ended(self) -> None:
        if self._runs_elsewhere():
            await self.run.body.finished.settled()

    def _feed(self, var_name: str | None) -> Feed:
        if self._stream.feed is None:
            raise ProgramError("texts are read as they grow only of run(stream=True)")
        if var_name is None and self.run.body.runs_here:
            raise ProgramError("the whole text ends with the function that reads it: give the name of a variable")
        return self._stream.feed

    def _wait(self, result: Result) -> Any:
        if not result.done:
            self._check_wait()
        return result.get()


class AsyncState(BaseState):
    """Of an `async def` program: await s["x"], or append it as it is: s += "Tip: " + f["x"]."""

    def __getitem__(self, name: str) -> Variable:
        return Variable(name, self.result(name))

    async def get_var(self, name: str) -> Any:
        return await self[name]

    async def get_meta_info(self, name: str) -> Any:
        result = self.result(name)
        await result.wait()
        return result.meta

    async def text(self) -> str:
        prompt: Prompt = await self._stream.end().wait()
        text: str = await self._elsewhere(self._rendered(prompt))
        return text

    async def messages(self) -> list[dict[str, Any]]:
        prompt: Prompt = await self._stream.end().wait()
        return prompt.messages()

    async def sync(self) -> None:
        await self._settle()

    async def error(self) -> BaseException | None:
        await self.sync()
        return self._error()

    def plain(self) -> State:
        """The same state, as plain programs see it: what the run gives to whoever asked for it."""
        state = State.__new__(State)
        state.__dict__ = self.__dict__  # all that either of them comes to know, the other does
        return state

    def _runs_elsewhere(self) -> bool:
        return False
