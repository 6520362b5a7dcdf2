"""What OpenAI's completions ask beside sampling: priority, whose cache they share, a logit processor, hidden states.

Decides nothing of its own: what is valid server/extras.py says.
"""

from ramet.ipc.messages import LogprobAsk
from ramet.runtime.server.extras import Extras, checked_processor, in_int32, namespace_of, which_hidden
from ramet.runtime.server.openai.types import SamplingBody


def read_extras(body: SamplingBody, logprobs: LogprobAsk | None, processors_on: bool) -> Extras:
    """What is asked beside sampling; the same of every prompt."""
    return Extras(
        logprobs,
        in_int32("priority", body.priority or 0),
        namespace_of(body.cache_salt or "", body.extra_key or ""),
        checked_processor(body.custom_logit_processor or "", processors_on),
        which_hidden(body.return_hidden_states),
    )
