"""Which requests may enter the queue: how many sequences may wait, in all and of one key.

A request enters whole or not at all. It is refused while too many wait, not counting sequences for which rows are free.
"""

import asyncio
from collections.abc import Sequence

from ramet.runtime.access.owner import CURRENT as OWNER
from ramet.runtime.config import Args
from ramet.runtime.engine_client.open_requests import OpenRequests
from ramet.runtime.engine_client.prompt import Prompt, Weight, check_bytes
from ramet.runtime.engine_client.queue_share import QueueShare
from ramet.runtime.engine_client.sequences import SequenceTable
from ramet.runtime.engine_client.submission import Submission
from ramet.runtime.errors import ClientError, ServerError

QUEUE_FULL = "The request queue is full."


class QueueBounds:
    """`max_numbers`: what one reply may hold, see Submission; None: neither it nor the prompts' bytes are bounded.

    `halted` is set while generation is paused or memory is released: then no row is free.
    """

    def __init__(
        self,
        args: Args,
        max_running: int,
        max_numbers: int | None,
        sequences: SequenceTable,
        requests: OpenRequests,
        halted: asyncio.Event,
    ) -> None:
        self.max_queued, self._share = args.schedule.max_queued_requests, QueueShare(args, max_running)
        self._max_running, self.max_numbers = max_running, max_numbers
        self._sequences, self._requests, self._halted = sequences, requests, halted

    @property
    def num_waiting(self) -> int:
        """Sequences that are neither opened nor ended, and requests whose prompts are being made."""
        return self._sequences.num_waiting + sum(each.num_unsent for each in self._requests.unsent)

    @property
    def _num_free_rows(self) -> int:
        """How many of the waiting sequences can run at once: they wait for no other one to end, nor for an operator."""
        if self._halted.is_set():
            return 0
        num_opened = len(self._sequences.by_uid) - self._sequences.num_waiting
        return max(0, self._max_running - num_opened)

    def _num_waiting_of(self, name: str) -> int:
        """The number of waiting sequences that belong to the owner of this name."""
        unsent = sum(each.num_unsent for each in self._requests.unsent if each.origin.owner.name == name)
        return self._sequences.waiting_of[name] + unsent

    def _num_free_rows_for(self, name: str) -> int:
        """The free rows that waiting sequences of other owners leave."""
        return max(0, self._num_free_rows - (self.num_waiting - self._num_waiting_of(name)))

    def check_arrival(self) -> None:
        """Check a request that has just arrived. Raises ClientError and ServerError."""
        if self.max_queued is not None and self.num_waiting >= self.max_queued + self._num_free_rows:
            raise ServerError(QUEUE_FULL, 503)
        if name := OWNER.get().bounded:
            self._share.check(self._num_waiting_of(name), self._num_free_rows_for(name))

    def take_room(self, prompts: Sequence[Prompt], weight: Weight, submission: Submission) -> None:
        """Enter the next prompts that are sent. Raises ClientError and ServerError where a request that has sent
        nothing yet is more than may be sent.
        """
        if prompts and submission in self._requests.unsent and not submission.probe:
            place = prompts[0].places.all_prompts
            if self.max_numbers is not None:
                check_bytes(place, weight.num_bytes, "lower n, or send fewer prompts")
            self.check_count(place, weight.num_sequences, submission)
        submission.num_unsent = weight.num_sequences

    def check_count(self, place: str, asked: int, submission: Submission | None = None) -> None:
        """Check how many sequences a request has. Call it as soon as that is known, because reading them takes longer.

        `place`: the field of its prompts. `submission`: the request, once it is open. Raises ClientError and
        ServerError.
        """
        own = submission is not None  # counted while its prompts are being made
        if name := (submission.origin.owner if submission is not None else OWNER.get()).bounded:
            held, free_rows = self._num_waiting_of(name) - own, self._num_free_rows_for(name)
            self._share.check_asked(place, asked, held, free_rows)
        if self.max_queued is not None:
            self._check_room(place, asked, self.num_waiting - own, self.max_queued)

    def _check_room(self, place: str, asked: int, waiting: int, most: int) -> None:
        """Raises where the `asked` sequences of a request do not all fit into the queue beside the `waiting` ones,
        `most` together, not counting those that can run at once because rows are free.

        While nothing else waits, a request may bring as many sequences more as run at once: they leave the queue with
        the next steps.
        """
        if asked > most + self._max_running:
            fact = f"asks for {asked} sequences (prompts times n), must be at most {most + self._max_running}"
            hint = f"{most} wait (--max-queued-requests) while {self._max_running} run; send fewer at once"
            raise ClientError(place, fact, hint)
        if waiting and waiting + asked > most + self._num_free_rows:
            raise ServerError(QUEUE_FULL, 503)
