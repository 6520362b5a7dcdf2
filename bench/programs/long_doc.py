"""Long documents: fields that are written one after the other, and questions about the segments of a paper.

Section 6.2.5 of the SGLang paper, whose segments do not attend to each other. Here they are read in sequence.
"""

from typing import Any

from ramet import function, gen
from ramet.bench.programs.traces import Page, Segments


@function
def fields(s: Any, page: Page, serial: bool) -> None:
    s += page.text
    for i, (name, output) in enumerate(zip(page.fields, page.outputs, strict=True)):
        s += name + gen(f"field {i}", max_tokens=output)
        s.sync()  # each is a call of its own, as the paper's four are


@function
def ask_segments(s: Any, asked: Segments, serial: bool) -> None:
    s += "".join(asked.segments) + asked.question + gen("answer", max_tokens=asked.output)
