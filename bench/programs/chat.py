"""Conversations of several turns, each of which is read again with the next."""

from typing import Any

from ramet import function, gen
from ramet.bench.programs.traces import Chat


@function
def converse(s: Any, chat: Chat, serial: bool) -> None:
    for i, turn in enumerate(chat):
        s += turn.said + gen(f"answer {i}", max_tokens=turn.output)
        s.sync()  # who asks the next question has read the answer
