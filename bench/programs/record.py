"""An LLM that keeps what programs sent to it: token ids in and out, in the order in which calls began and ended."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from ramet.bench.programs.best_cache import SentRequest
from ramet.runtime.llm import LLM

Body = dict[str, Any]


class RecordedCalls:
    """The language's calls of an LLM. To give a lease back computes nothing, and is not kept."""

    def __init__(self, calls: Any, encode: Any, record: "CallRecord") -> None:
        self._calls, self._encode, self._record = calls, encode, record

    async def generate(self, fields: Body, *given: Any) -> Any:
        with self._record.call() as began:
            outputs = await self._calls.generate({**fields, "return_prompt_token_ids": True}, *given)
            ended = perf_counter()
            for each in outputs:
                if fields.get("prefix_lease_s") != 0:
                    sent = SentRequest(list(each.prompt_ids), list(each.output_ids), began, ended)
                    self._record.sent.append(sent)
        return outputs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._calls, name)

    async def select(self, body: Body) -> Any:
        with self._record.call() as began:
            reply = await self._calls.select(body)
            ended = perf_counter()
            prompt = self._encode("".join(body["prompt"]), False)
            for choice in reply["meta_info"]["choices"]:
                ids = [token for _, token, _ in choice["token_logprobs"]]
                self._record.sent.append(SentRequest([*prompt, *ids], [], began, ended))
        return reply


class CallRecord:
    """`sent`: every request of a program."""

    def __init__(self) -> None:
        self.sent: list[SentRequest] = []
        self._open, self._changed = 0, threading.Condition()

    @contextmanager
    def call(self) -> Iterator[float]:
        """When it began."""
        with self._changed:
            self._open += 1
        try:
            yield perf_counter()
        finally:
            with self._changed:
                self._open -= 1
                self._changed.notify_all()

    def settle(self) -> None:
        """Waits until every call that has begun is written down; programs do not wait for what ends their leases."""
        with self._changed:
            self._changed.wait_for(lambda: not self._open)


class RecordingLLM(LLM):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.record = CallRecord()

    @property
    def engine_calls(self) -> Any:
        return RecordedCalls(super().engine_calls, self.tokenizer.encode, self.record)
