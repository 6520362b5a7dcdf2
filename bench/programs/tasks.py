"""Few-shot tasks, as programs: one call behind a head that others share. Section 6.2.1 of the SGLang paper."""

from typing import Any

from ramet import function, gen, select
from ramet.bench.programs.traces import Shot


@function
def ask(s: Any, shot: Shot, serial: bool) -> None:
    s += shot.head + shot.question
    s += select("answer", shot.choices) if shot.choices else gen("answer", max_tokens=shot.output)
