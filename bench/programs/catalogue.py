"""The workloads of section 6 of the SGLang paper by name: program, trace, how many, and what the paper says of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ramet.bench.programs import traces
from ramet.bench.programs.agents import react
from ramet.bench.programs.chat import converse
from ramet.bench.programs.forms import describe, fill_in
from ramet.bench.programs.long_doc import ask_documents, fields
from ramet.bench.programs.reasoning import multi_chain, skeleton_of_thought, tree_of_thought
from ramet.bench.programs.tasks import ask
from ramet.bench.programs.writing import judge, tips

AT_ONCE = 64  # programs


@dataclass(frozen=True)
class Workload:
    """`many`: programs of the paper's size; `few`: enough to share as much of a prompt as many would, or nearly."""

    name: str
    program: Any
    argument: str  # of the program, which gets one entry of the trace
    trace: Callable[[int], Sequence[Any]]
    many: int
    few: int
    paper: float | None = None  # its throughput over that of vLLM 0.2.2, which had no prefix cache
    paper_latency: float | None = None  # its latency over that of vLLM 0.2.2
    at_once: int = AT_ONCE
    compiles: bool = False  # constraints, which happens once and is not what is measured

    def arguments(self, num: int, serial: bool) -> list[dict[str, Any]]:
        return [{self.argument: entry, "serial": serial} for entry in self.trace(num)]


def _sweep(shared: int, own: int) -> Workload:
    """Figure 12, left."""
    made = partial(traces.shared_and_own, shared=shared, own=own)
    return Workload(f"shared-{shared}-own-{own}", ask, "shot", made, 128, 16)


def _articles(number: int, questions: int) -> Workload:
    """Figure 12, right."""
    made = lambda num: traces.articles(max(1, num // questions), questions=questions)  # noqa: E731
    return Workload(f"articles-{number}x{questions}", ask, "shot", made, number * questions, number * questions)


WORKLOADS = (
    Workload("mmlu", ask, "shot", traces.mmlu, 1369, 120, 4.4),
    Workload("hellaswag", ask, "shot", traces.hellaswag, 200, 8, 2.0),
    Workload("gsm8k", ask, "shot", traces.gsm8k, 200, 48, 4.5),
    Workload("react", react, "agent", traces.react, 100, 8, 5.6, 0.13),
    Workload("generative-agents", ask, "shot", traces.generative_agents, 1000, 100, 1.3, 1 / 1.3, at_once=1),
    Workload("multi-chain", multi_chain, "chains", traces.multi_chain, 64, 4),
    Workload("tree-of-thought", tree_of_thought, "tree", traces.tree_of_thought, 32, 2),
    Workload("skeleton-of-thought", skeleton_of_thought, "outline", traces.skeleton_of_thought, 50, 6),
    Workload("tips", tips, "topic", traces.tips, 50, 6),
    Workload("judge", judge, "article", traces.judge, 20, 3),
    Workload("documents", ask_documents, "asked", traces.documents, 10, 3, 1.2, 1 / 1.2),
    Workload("long-json", fields, "page", traces.long_json, 10, 1, 2.9, 1 / 2.9),
    Workload("json-fields", fill_in, "page", traces.pages, 20, 4, compiles=True),
    Workload("json-character", describe, "name", traces.names, 50, 8, compiles=True),
    Workload("chat-short", converse, "chat", traces.chats, 20, 6),
    Workload("chat-long", converse, "chat", partial(traces.chats, long=True), 20, 4),
    Workload("retrieval", ask, "shot", traces.retrieval, 150, 12),
    Workload("in-batch", ask, "shot", traces.in_batch, 320, 32),
    Workload("unshared", ask, "shot", traces.unshared, 128, 8, 1.0),
    *(_sweep(shared, 256) for shared in (256, 512, 1024)),
    *(_sweep(256, own) for own in (512, 1024)),
    *(_articles(*size) for size in ((5, 2), (10, 2), (5, 4), (5, 8))),
)
BY_NAME = {workload.name: workload for workload in WORKLOADS}
