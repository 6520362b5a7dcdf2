"""How many sequences one key may have in the queue, where clients have keys of their own."""

from ramet.runtime.access.shares import over, part
from ramet.runtime.config import Args
from ramet.runtime.errors import ClientError

PER_ROW = 64  # places in the queue for each sequence that may run, where the queue has no bound of its own
WHAT = "sequences in the queue"


class QueueShare:
    """A request enters the queue as a whole or not at all, as with --max-queued-requests for all keys together.
    Sequences that can run at once do not count: `free_rows` are those that no other key's sequences wait for. If its
    key has nothing else in the queue, a request may exceed the bound by the key's share of the running sequences.
    """

    def __init__(self, args: Args, max_running: int) -> None:
        whole = args.schedule.max_queued_requests or PER_ROW * max_running
        self.most = part(whole, args.share_per_key)
        self._max_running, self._at_once = max_running, part(max_running, args.share_per_key)

    def check(self, held: int, free_rows: int) -> None:
        """Check a request that has just arrived; its key has `held` sequences that wait. Raises ClientError."""
        if held >= self.most + free_rows:
            raise over(WHAT, self.most, held - free_rows)

    def check_asked(self, place: str, asked: int, held: int, free_rows: int) -> None:
        """Check the `asked` sequences of a request; its key has `held` others that wait. `place`: the field of its
        prompts. Raises ClientError.
        """
        if asked > self.most + self._max_running:
            fact = f"asks for {asked} sequences (prompts times n), must be at most {self.most + self._max_running}"
            hint = "one key may have that many in the queue and running (--max-share-per-key); send fewer at once"
            raise ClientError(place, fact, hint)
        if held + asked > self.most + (free_rows if held else max(free_rows, self._at_once)):
            hint = f"this request asks for {asked}: try again when some have ended"
            raise over(WHAT, self.most, max(0, held - free_rows), hint)
