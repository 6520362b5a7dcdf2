"""The engine as its callers see it: the server's handlers, `LLM`, and the language.

EngineClient is the handle of both transports. Between processes messages travel over ZeroMQ (zmq.py); within one
process the scheduler runs on a thread of its own and gets the same messages (runtime/inprocess.py). A handle belongs to
the event loop that it was made on.
"""

from collections.abc import Sequence as Many
from contextlib import AbstractContextManager
from typing import Protocol

from ramet.ipc.messages import ControlReply, Limits, RenderReply, TokenizeReply, Uid
from ramet.runtime.engine_client.submission import Prompt, Sequence, Submission
from ramet.runtime.errors import RametError


class EngineHandle(Protocol):
    """A submission is read whole (`await submission.finished()`) or as a stream (`await submission.next()`)."""

    limits: Limits  # of the model and the memory

    # submit, whole or as a stream
    def submit(
        self, prompts: Many[Prompt], streaming: bool, probe: bool = False, *, as_batch: bool = False
    ) -> AbstractContextManager[Submission]: ...
    def open(
        self, streaming: bool, probe: bool = False, *, as_batch: bool = False
    ) -> AbstractContextManager[Submission]: ...
    def send(self, prompts: Many[Prompt], submission: Submission) -> None: ...
    async def run_in_turn(self, prompts: Many[Prompt], submission: Submission) -> list[Sequence]: ...

    # abort
    def abort(self, rid: str | None, message: str) -> int: ...

    # control
    async def state(self) -> ControlReply: ...
    async def locate(self, uid: Uid) -> ControlReply: ...
    async def flush_cache(self, timeout_s: float) -> ControlReply: ...

    # tokenize and render
    async def tokenize(self, text: str, add_special_tokens: bool = True) -> TokenizeReply: ...
    async def detokenize(self, ids: bytes, skip_special_tokens: bool = True) -> str: ...
    async def render(self, chat: bytes) -> RenderReply: ...

    # what is known here without asking
    def uids_of(self, rid: str) -> list[Uid]: ...
    @property
    def is_draining(self) -> bool: ...
    @property
    def failure(self) -> RametError | None: ...
