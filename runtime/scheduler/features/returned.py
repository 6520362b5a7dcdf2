"""How many tokens of a prompt one step computes where their log-probabilities or hidden states are returned.

Decides that such a step is hardly longer than one of prompts that return nothing, and that its result is small: others
wait for a step and for its message in every process. What is asked of a prompt of thousands of tokens comes in as many
steps as that takes.
"""

from ramet.runtime.scheduler.rows import RunningRequest

LOGPROB_TOKENS = (
    8  # prompt tokens that one with log-probabilities counts as: the whole vocabulary is multiplied and sorted
)
MAX_LOGPROBS = 1 << 15  # of prompts, in one step
MAX_HIDDEN = 1 << 18  # numbers of prompts' hidden states, in one step


class ReturnBudget:
    """What a step may still return of prompts."""

    def __init__(self, hidden_size: int) -> None:
        self._hidden_size = hidden_size
        self._logprobs, self._hidden = MAX_LOGPROBS, MAX_HIDDEN

    def limit(self, running: RunningRequest, num: int, tokens: int) -> int:
        """How many of its next `num` tokens fit, where a step may compute prompt tokens that count as `tokens`."""
        num = self._limit_logprobs(running, num, tokens)
        if running.request.returns_states:
            known = max(0, running.next_hidden - running.scheduled)  # tokens whose states were returned before
            num = min(num, known + self._hidden // max(1, self._hidden_size))
        return num

    def take(self, running: RunningRequest, num: int) -> int:
        """Its next `num` tokens are computed; returns what they count as."""
        places = _places(running, num)
        self._logprobs -= places * running.request.num_logprobs
        if running.request.returns_states:
            self._hidden -= max(0, running.scheduled + num - running.next_hidden) * self._hidden_size
        return num + (LOGPROB_TOKENS - 1) * places

    def _limit_logprobs(self, running: RunningRequest, num: int, tokens: int) -> int:
        places = _places(running, num)
        if not places:
            return num
        before = _before(running)
        fit = max(0, min((tokens - before) // LOGPROB_TOKENS, self._logprobs // running.request.num_logprobs))
        if fit < places:
            return min(before, tokens) + fit
        return min(num, tokens - (LOGPROB_TOKENS - 1) * places)


def _before(running: RunningRequest) -> int:
    """Tokens that are computed before the first one whose successor's log-probability is returned."""
    assert running.next_logprob is not None
    return running.next_logprob - 1 - running.scheduled


def _places(running: RunningRequest, num: int) -> int:
    """Of its next `num` tokens, those whose successor's log-probability is returned."""
    first = running.next_logprob
    return 0 if first is None else max(0, min(num - _before(running), running.request.prompt_len - first))
