"""What is new since the last message to the detokenizer: tokens, opened and closed requests, and what some are returned
beside tokens. One message says it for a whole step.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from ramet.ipc.message import Uid
from ramet.ipc.messages import ID_BYTES, Closed, Opened, TokenStep
from ramet.runtime.arrays import Ints


class News:
    """Collects what is new until `take`."""

    def __init__(self) -> None:
        self.generated_tokens = 0  # since the scheduler began
        self._clear()

    def add_tokens(self, uids: npt.NDArray[np.int64], tokens: Ints) -> None:
        """One token of each request. uids [D] int64, tokens [D] int32"""
        self.generated_tokens += len(uids)
        self._uids += uids.tolist()
        self._tokens += tokens.tobytes()

    def add_token(self, uid: Uid, token: int) -> None:
        self.generated_tokens += 1
        self._uids.append(uid)
        self._tokens += token.to_bytes(ID_BYTES, "little")

    def add_beside(self, field: str, value: object) -> None:
        """Return something beside tokens, in a list of this name (a field of TokenStep)."""
        self._beside.setdefault(field, []).append(value)

    def take(self) -> TokenStep | None:
        """The message; None: nothing is new."""
        if not (self._uids or self.opened or self.closed or self._beside):
            return None
        uids, tokens = self._uids, bytes(self._tokens)
        message = TokenStep(uids, tokens, self.opened, self.closed, **self._beside)
        self._clear()
        return message

    def _clear(self) -> None:
        self._uids: list[Uid] = []
        self._tokens = bytearray()
        self.opened: list[Opened] = []
        self.closed: list[Closed] = []
        self._beside: dict[str, Any] = {}
