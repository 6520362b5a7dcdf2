"""The experts of a sequence's tokens as clients get them: base64 of what the scheduler has packed.

Decides where they stand: a sequence that asked and has ended has a text, maybe an empty one. Knows no layout.
"""

import base64

from msgspec import UNSET, UnsetType

from ramet.runtime.engine_client.submission import Sequence


def routes_of(sequence: Sequence, *, compact: bool = False) -> str | UnsetType:
    """UNSET where this form was not asked for, and before the end."""
    asked = sequence.prompt.spec.expert_routes
    if asked is None or asked.compact is not compact or sequence.finish is None:
        return UNSET
    return base64.b64encode(sequence.routes).decode("ascii")
