"""Several solutions of one question, side by side and as a tree. Section 6.2.3 of the SGLang paper."""

from typing import Any

from ramet import function, gen
from ramet.bench.programs.traces import Chains, Tree


@function
def multi_chain(s: Any, chains: Chains, serial: bool) -> None:
    s += chains.question
    forks = s.fork(len(chains.hints))
    for fork, hint, output in zip(forks, chains.hints, chains.outputs, strict=True):
        fork += hint + gen("solution", max_tokens=output, temperature=0.3)
        if serial:
            fork.sync()
    forks.join()
    for solution in s["solution"]:
        s += solution
    s += chains.merge + gen("answer", max_tokens=chains.answer_output)


@function
def tree_of_thought(s: Any, tree: Tree, serial: bool) -> None:
    s += tree.question
    leaves = [s]
    for ask, outputs in zip(tree.asks, tree.outputs, strict=True):
        leaves = [child for leaf in leaves for child in leaf.fork(tree.branch)]
        for leaf, output in zip(leaves, outputs, strict=True):
            leaf += ask + gen("thought", max_tokens=output, temperature=1.0)
            if serial:
                leaf.sync()
    for leaf in leaves:
        leaf.sync()
