"""An agent that thinks, searches and reads, as a program that replays its record. Section 6.2.2 of the SGLang paper."""

from typing import Any

from ramet import function, gen
from ramet.bench.programs.traces import Agent
from ramet.bench.programs.words import length


@function
def react(s: Any, agent: Agent, serial: bool) -> None:
    s += agent.head + agent.question
    for move in agent.moves:
        recorded = move.thought + move.action
        with s.copy() as written:  # what the model writes here is thrown away, as the record goes on
            written += gen("move", max_tokens=length(recorded))
        s["move"]  # the search needs it
        s += recorded + move.observation
    s += gen("answer", max_tokens=agent.answer_output)
