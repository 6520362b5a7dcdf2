"""One asyncio stream per state: what a program appends is executed in order, while its Python code goes on.

Section 4.2 of the SGLang paper. Decides what each operation of a prompt does; operations.py executes them in order.
"""

import logging
from collections.abc import Callable
from itertools import chain
from typing import Any

from ramet.frontend.backends.base import CallFollowUp, Completion, GenCall, SelectCall
from ramet.frontend.errors import CallFailed, Cancelled
from ramet.frontend.hints import hold_for
from ramet.frontend.ir import ConstantText, Gen, Select, Where, as_expr
from ramet.frontend.operations import OperationQueue, StreamOperation
from ramet.frontend.prompt import EMPTY, Contexts, MediaPiece, Piece, Prompt, plain
from ramet.frontend.results import Feed, Result
from ramet.frontend.results import FeedPiece as Fed
from ramet.frontend.run import Run
from ramet.frontend.speculation import Speculation

LOGGER = logging.getLogger("ramet")


class PromptStream(OperationQueue):
    """A prompt under construction."""

    def __init__(self, run: Run, *, begun: bool = True) -> None:
        super().__init__(run, begun)
        self._number, self.forked_at = run.new_state(), EMPTY
        self.feed = Feed() if run.settings.streaming else None
        self._first_call: Callable[[], None] | None = None
        self._is_followed = False  # its last call, by another
        self._speculation = Speculation.of(run.backend, run.settings.spec_tokens, run.saved)

    def __del__(self) -> None:
        """A failure that nobody saw is logged, as asyncio does of its tasks; one for each run.

        It may be a fork to which nobody will append any more.
        """
        if (came := getattr(self, "_first_call", None)) is not None:
            self.run.backend.loop.soon(came)
        error = getattr(self, "error", None)
        if error is not None and not self.run.seen.yes and not isinstance(error, Cancelled):
            error.see()
            LOGGER.warning("a call failed, and nobody asked for its value: %s", error)

    # -- from any thread --------------------------------------------------------------------------------------------

    def append(self, piece: Piece) -> None:
        self._submit(StreamOperation(lambda: self._add(piece), _nobody))

    def append_value(self, name: str, value: Result) -> None:
        """The value is appended when it is there."""
        self._submit(StreamOperation(lambda: self._add_value(value), _nobody, f"appending {name!r}"))

    def close(self) -> None:
        """Nothing more is appended: who reads the text as it grows comes to its end, and what was held is let go."""
        if (feed := self.feed) is not None:
            self._submit(StreamOperation(feed.end, lambda _: None, is_close=True))
        if self.run.settings.hints and self.run.backend.capabilities.prefixes:
            self._submit(StreamOperation(self._came, lambda _: None, is_close=True))

    def gen(self, node: Gen, result: Result, thought: Result | None) -> None:
        """`thought` becomes the separated thoughts."""

        def refuse(error: CallFailed) -> None:
            result.fail(error)
            if thought is not None:
                thought.fail(error)

        act = lambda: self._gen(node, result, thought)  # noqa: E731
        self._submit(StreamOperation(act, refuse, _named("gen", node.name), node.where, is_call=True))

    def select(self, node: Select, result: Result) -> None:
        act = lambda: self._select(node, result)  # noqa: E731
        self._submit(StreamOperation(act, result.fail, _named("select", node.name), node.where, is_call=True))

    def fork(self, children: list["PromptStream"], where: Where) -> None:
        """They begin with the prompt as it will be here."""

        def refuse(error: CallFailed) -> None:
            for child in children:
                child._begin(self.prompt, error)

        self._submit(StreamOperation(lambda: self._fork(children), refuse, "fork", where))

    def join(self, children: list["PromptStream"], ends: list[Result], where: Where) -> None:
        """Append what the children's prompts have after the fork, as parallel contexts where the backend computes them.

        With media it is one behind the other. `ends`: what `end` of each child gave.
        """
        self._submit(StreamOperation(lambda: self._join(children, ends), _nobody, "join", where))

    def end(self) -> Result:
        """Becomes the prompt as it is after all that was submitted before."""
        result = Result()
        operation = StreamOperation(lambda: result.set(self.prompt), result.fail, "the text")
        is_idle = self._begun and not self._working and not self._operations
        if not (is_idle and self.run.backend.loop.is_current()):
            self._submit(operation)
        elif self.error is not None:
            self._refuse(operation)
        else:
            result.set(self.prompt)
        return result

    def when_first_called(self, came: Callable[[], None]) -> None:
        """`came` is called when its first call is done, or will not be made. Before anything is submitted."""
        self._first_call = came

    def begin_scope(self, mark: Result) -> None:
        self._submit(StreamOperation(lambda: mark.set(self.prompt), mark.fail))

    def end_scope(self, mark: Result, result: Result) -> None:
        """`result` becomes the text since `mark`."""
        self._submit(StreamOperation(lambda: result.set(self.prompt.text(mark.get())), result.fail))

    # -- on the event loop ------------------------------------------------------------------------------------------

    def _begin(self, prompt: Prompt, error: CallFailed | None, first_call: Callable[[], None] | None = None) -> None:
        """The fork that it comes from was reached. `first_call` is called when its first call is done, or none is."""
        self.prompt = self.forked_at = prompt
        self.error, self._begun, self._first_call = error, True, first_call
        if self.run.backend.loop.is_current():
            self._wake()
        elif error is not None:
            self._refuse_all(error)

    def _end(self, error: CallFailed) -> None:
        if self.feed is not None:
            self.feed.end(error)
        if self.run.backend.loop.is_current():
            self._came()

    def _add(self, piece: Piece) -> None:
        self.prompt = self.prompt.extended(piece)
        if self.feed is not None and isinstance(piece, str | Contexts):
            self.feed.add(Fed(plain(piece)))

    async def _add_value(self, value: Result) -> None:
        for leaf in as_expr(await value.needed()).leaves():
            assert isinstance(leaf, ConstantText), "a value is a text, or printed as one"
            self._add(leaf.text)

    async def _gen(self, node: Gen, result: Result, thought: Result | None) -> None:
        settings = self.run.settings
        call = GenCall(
            {**settings.sampling, **node.sampling},
            {**settings.options, **node.options},
            node.held,
            node.kind,
            node.thoughts,
            self._follow_up(),
        )
        on_text = FeedWriter(self.feed, node.name) if self.feed is not None else None
        outputs = await self._completed(call, on_text)
        first = outputs[0]
        values = [_value(node, each) for each in outputs]
        self.prompt = self.prompt.extended(first.text)
        metas = [each.meta for each in outputs]
        several = call.num_samples > 1
        result.set(values if several else values[0], metas if several else metas[0])
        if thought is not None:
            thoughts = [each.thought for each in outputs]
            thought.set(thoughts if several else thoughts[0], None)
        if on_text is not None:
            on_text.end(first.text, result.meta)
        self._came()

    async def _completed(self, call: GenCall, on_text: "FeedWriter | None") -> list[Completion]:
        await self._await_prefix()
        if self._speculation is not None:
            return await self._speculation.generate(self.prompt, call, on_text)
        return await self.run.backend.generate(self.prompt, call, on_text)

    async def _select(self, node: Select, result: Result) -> None:
        await self._await_prefix()
        options = self.run.settings.of_select(node)
        call = SelectCall(node.choices, node.method, node.temperature, options, self._follow_up())
        chosen = await self.run.backend.select(self.prompt, call)
        text = node.choices[chosen.index]
        self.prompt = self.prompt.extended(text)
        result.set(text, chosen.meta)
        if self.feed is not None:
            FeedWriter(self.feed, node.name).end(text, chosen.meta)
        self._came()

    def _follow_up(self) -> CallFollowUp | None:
        """The last call of several says so as well, for what was kept for it: the program's end is told soon enough."""
        has_more = bool(self._operations) and not self._operations[0].is_close
        follow_up = self.run.follow_up(self._number, has_more or self._is_followed)
        self._is_followed = follow_up is not None
        return follow_up

    async def _await_prefix(self) -> None:
        """Before the first call of a program of a batch: what it shares with others of them is computed once."""
        prefixes = self.run.settings.prefixes
        if prefixes is not None and not self.run.has_called:
            self.run.has_called = True
            await prefixes.before(self.prompt)

    def _came(self) -> None:
        """Its first call is done, or it has none."""
        if self._first_call is not None:
            self._first_call()
            self._first_call = None

    async def _fork(self, children: list["PromptStream"]) -> None:
        holds = self.run.settings.hints and self.run.ended_by is None
        came = await hold_for(self.run.backend, self.prompt, len(children)) if holds else None
        for child in children:
            child._begin(self.prompt, None, came)

    async def _join(self, children: list["PromptStream"], ends: list[Result]) -> None:
        each = [(await end.needed()).pieces(child.forked_at) for child, end in zip(children, ends, strict=True)]
        texts = [text for pieces in each if (text := "".join(map(plain, pieces)))]
        has_media = self.prompt.has_media or any(isinstance(piece, MediaPiece) for pieces in each for piece in pieces)
        if has_media:  # contexts are texts, of a prompt of texts
            for piece in chain.from_iterable(each):
                self._add(piece)
        elif self.run.backend.capabilities.contexts and len(texts) > 1:
            self._add(Contexts(tuple(texts)))
        else:
            self._add("".join(texts))


class FeedWriter:
    """Passes the text of a call on to whoever reads the stream."""

    def __init__(self, feed: Feed, name: str | None) -> None:
        self._feed, self._name, self._num = feed, name, 0

    def __call__(self, text: str) -> None:
        self._num += len(text)
        self._feed.add(Fed(text, self._name))

    def end(self, text: str, meta: Any) -> None:
        """`text`: the whole; a backend that streams nothing has told none of it."""
        self._feed.add(Fed(text[self._num :], self._name, last=True, meta=meta))


def _value(node: Gen, output: Completion) -> Any:
    """What the variable of a call becomes. Raises ValueError, which has the text, for it is lost otherwise."""
    if node.read is None:
        return output.text
    try:
        return node.read(output.text)
    except ValueError as error:
        reason = output.meta.get("finish_reason") or {}
        cut = ", cut at its max_tokens" if isinstance(reason, dict) and reason.get("type") == "length" else ""
        raise ValueError(f"the output {output.text!r}{cut} is not a value of its type: {error}") from error


def _named(what: str, name: str | None) -> str:
    return f"{what}({name!r})" if name else what


def _nobody(error: CallFailed) -> None:
    """Nobody waits for it."""
