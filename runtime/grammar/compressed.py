"""Where one output is in a compressed finite state machine, token by token, and back."""

from ramet.runtime.grammar.byte_fsm import ByteFsm


class FsmPath:
    """The states after each token of an output. One that leaves the machine knows nothing until it is taken back."""

    def __init__(self, fsm: ByteFsm) -> None:
        self._fsm = fsm
        self._states: list[int | None] = [fsm.start]

    def push(self, text: bytes) -> None:
        """The output goes on with a token that spells `text`."""
        state = self._states[-1]
        self._states.append(None if state is None else self._fsm.walk(state, text))

    def pop(self, num_tokens: int) -> None:
        assert num_tokens < len(self._states), (num_tokens, len(self._states))
        del self._states[len(self._states) - num_tokens :]

    def forced(self) -> bytes:
        """The bytes that must come next."""
        state = self._states[-1]
        return b"" if state is None else self._fsm.forced(state)
