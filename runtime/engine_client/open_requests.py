"""The requests whose handlers have not left."""

import asyncio

from ramet.runtime.access.owner import CURRENT as OWNER
from ramet.runtime.engine_client.submission import Submission


class OpenRequests:
    """`unsent`: requests whose prompts are being made. `num_streams`: how many are read token by token."""

    def __init__(self) -> None:
        self.all, self.unsent = set[Submission](), set[Submission]()
        self.num_streams = 0
        self.left = asyncio.Event()  # set whenever a request leaves
        self._none_left = asyncio.Event()
        self._none_left.set()

    def enter(self, submission: Submission) -> None:
        self.all.add(submission)
        self.unsent.add(submission)
        self.num_streams += submission.streaming
        self._none_left.clear()

    def sent(self, submission: Submission, num_sequences: int) -> None:
        """So many of its sequences more were sent."""
        submission.num_unsent -= num_sequences
        if not submission.num_unsent:
            self.unsent.discard(submission)

    def leave(self, submission: Submission) -> None:
        self.all.discard(submission)
        self.unsent.discard(submission)
        self.num_streams -= submission.streaming
        self.left.set()
        if not self.all:
            self._none_left.set()

    def any_before(self, arrival_s: float) -> bool:
        """Whether a request is open that arrived by then."""
        return any(each.origin.arrival_s <= arrival_s for each in self.all)

    async def none_left(self) -> None:
        """Returns when no handler waits for a sequence any more."""
        await self._none_left.wait()

    def unsent_of(self, rid: str) -> list[Submission]:
        """Unsent requests of this name that the one who asks may use."""
        may_use = OWNER.get().may_use
        return [each for each in self.unsent if each.origin.rid == rid and may_use(each.origin.owner.name)]
