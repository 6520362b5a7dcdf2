"""What one decode step of eight plain rows enters: `python tests/rules/traced_step.py` prints the functions by name.

An `LLM` generates for eight prompts at once. A turn of the scheduler in which all eight decode is taken as one step:
from the messages that it reads to the message that says what was drawn. It is all work of one thread.
"""

import os
import threading
from collections import Counter
from types import FrameType

from traced_request import OPTIONS, ROOT

from ramet.runtime.llm import LLM

ROWS, TOKENS = 8, 48
TURN, COMPUTES = "Scheduler.turn_plain", "ModelRunner.launch"


def traced_step() -> Counter[str]:
    """How often the step enters each function, as "file:qualified name". The last of the turns that are as most are."""
    turns, real = list[Counter[str]](), dict[str, str]()

    def note(frame: FrameType, event: str, value: object) -> None:
        if event != "call":
            return
        name = frame.f_code.co_filename
        path = real.get(name)
        if path is None:
            is_others = name.startswith("<") or "site-packages" in name
            path = real[name] = "" if is_others else os.path.realpath(name)
        if not path.startswith(ROOT) or threading.current_thread() is not scheduler.get(None):
            if frame.f_code.co_qualname != TURN:
                return
            scheduler[None] = threading.current_thread()
        if frame.f_code.co_qualname == TURN:
            turns.append(Counter())
        if turns:
            turns[-1][f"{path.removeprefix(ROOT)}:{frame.f_code.co_qualname}"] += 1

    scheduler: dict[None, threading.Thread] = {}
    threading.setprofile(note)
    try:
        with LLM(**OPTIONS) as llm:
            params = {"temperature": 0, "max_new_tokens": TOKENS, "ignore_eos": True}
            llm.generate([[311 + row, 412, 513] for row in range(ROWS)], params)
    finally:
        threading.setprofile(None)
    steps = [turn for turn in turns if any(name.endswith(":" + COMPUTES) for name in turn)]
    usual, _ = Counter(len(turn) for turn in steps).most_common(1)[0]
    return [turn for turn in steps if len(turn) == usual][-1]


if __name__ == "__main__":
    found = traced_step()
    print(*(f"{found[name]:3} {name}" for name in sorted(found)), sep="\n")
    print(f"\n{len(found)} functions, {found.total()} calls")
