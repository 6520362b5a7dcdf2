"""Long documents: fields that are written one after the other, and questions about the segments of a paper.

Section 6.2.5 of the SGLang paper. The segments do not attend to each other; without parallelism they are read in turn.
"""

from typing import Any

from ramet import function, gen
from ramet.bench.programs.traces import Documents, TracePage


@function
def fields(s: Any, page: TracePage, serial: bool) -> None:
    s += page.text
    for i, (name, output) in enumerate(zip(page.fields, page.outputs, strict=True)):
        s += name + gen(f"field {i}", max_tokens=output)
        s.sync()  # each is a call of its own, as the paper's four are


@function
def ask_documents(s: Any, asked: Documents, serial: bool) -> None:
    if serial:
        s += "".join(asked.segments)
    else:
        forks = s.fork(len(asked.segments))
        forks += list(asked.segments)
        forks.join("concate_and_append")
    s += asked.question + gen("answer", max_tokens=asked.output)
