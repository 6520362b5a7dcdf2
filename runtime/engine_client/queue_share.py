"""How many sequences one key may have in the queue, where clients have keys of their own."""

from collections.abc import Sequence as Many

from ramet.runtime.config import Args
from ramet.runtime.engine_client.submission import Prompt, num_sequences
from ramet.runtime.errors import ClientError
from ramet.runtime.shares import over, part

PER_ROW = 64  # places in the queue for each sequence that may run, where the queue has no bound of its own
WHAT = "sequences in the queue"


class QueueShare:
    """A request enters the queue as a whole or not at all, as with --max-queued-requests for all keys together. If its
    key has nothing else in the queue, it may exceed the bound by the key's share of the running sequences.
    """

    def __init__(self, args: Args, max_running: int) -> None:
        whole = args.schedule.max_queued_requests or PER_ROW * max_running
        self.most = part(whole, args.share_per_key)
        self._at_once = part(max_running, args.share_per_key)

    def check(self, held: int) -> None:
        """Check a request that has just arrived; its key has `held` sequences queued. Raises ClientError."""
        if held >= self.most:
            raise over(WHAT, self.most, held)

    def check_sent(self, prompts: Many[Prompt], held: int) -> None:
        """Check a request that is about to be sent; its key has `held` other sequences queued. Raises ClientError."""
        asked = num_sequences(prompts)
        if asked > self.most + self._at_once:
            fact = f"asks for {asked} sequences (prompts times n), must be at most {self.most + self._at_once}"
            hint = "one key may have that many in the queue and running (--max-share-per-key); send fewer at once"
            raise ClientError(prompts[0].field, fact, hint)
        if held and held + asked > self.most:
            raise over(WHAT, self.most, held, f"this request asks for {asked}: try again when some have ended")
