"""Several solutions of one question, side by side and as a tree, and an answer from its skeleton.

Section 6.2.3 of the SGLang paper; skeletons: reference [37] there, among the workloads of its second version.
"""

from typing import Any

from ramet import function, gen
from ramet.bench.programs.traces import Chains, Outline, Tree


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


@function
def skeleton_of_thought(s: Any, outline: Outline, serial: bool) -> None:
    s += outline.head + outline.question + gen("skeleton", max_tokens=outline.skeleton_output)
    forks = s.fork(len(outline.points))
    for fork, point, output in zip(forks, outline.points, outline.outputs, strict=True):
        fork += outline.ask + point + gen("paragraph", max_tokens=output)
        if serial:
            fork.sync()
    forks.join()
    for paragraph in s["paragraph"]:
        s += paragraph
