"""How many sequences one key may have in the queue, where clients have keys of their own."""

from collections.abc import Sequence as Many

from ramet.runtime.config import Args
from ramet.runtime.engine_client.submission import Prompt, num_sequences
from ramet.runtime.errors import ClientError
from ramet.runtime.shares import over, part

PER_ROW = 64  # places of a queue without a bound of its own, for each sequence that may run
WHAT = "sequences in the queue"


class QueueShare:
    """A request enters whole or not at all, as with --max-queued-requests for all keys together. Where its key has
    nothing else in the queue it may bring more: as many as the key's share of those that run.
    """

    def __init__(self, args: Args, max_running: int) -> None:
        whole = args.schedule.max_queued_requests or PER_ROW * max_running
        self.most = part(whole, args.share_per_key)
        self._at_once = part(max_running, args.share_per_key)

    def check(self, held: int) -> None:
        """Of a request that has just come. Raises ClientError."""
        if held >= self.most:
            raise over(WHAT, self.most, held)

    def check_sent(self, prompts: Many[Prompt], held: int) -> None:
        """Of one that is about to be sent; `held`: beside it. Raises ClientError."""
        asked = num_sequences(prompts)
        if asked > self.most + self._at_once:
            fact = f"asks for {asked} sequences (prompts times n), must be at most {self.most + self._at_once}"
            hint = "so many one key may have in the queue and running (--max-share-per-key); send fewer at once"
            raise ClientError(prompts[0].field, fact, hint)
        if held and held + asked > self.most:
            raise over(WHAT, self.most, held, f"this request asks for {asked}: try again when some have ended")
