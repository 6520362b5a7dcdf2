"""A radix tree as text, one node a line, so that a test can show what it expects."""

import numpy as np

from ramet.runtime.cache.node import Node
from ramet.runtime.cache.radix import RadixTree


def ids(text: str) -> np.ndarray:
    """One token per character."""
    return np.array([ord(c) for c in text], dtype=np.int32)


def draw(tree: RadixTree) -> str:
    """Every edge's run as text, indented by depth, `*` where it is locked; siblings in alphabetical order."""
    tops = [node for node in tree.nodes() if node.parent is not None and node.parent.parent is None]
    lines: list[str] = []

    def visit(node: Node, depth: int) -> None:
        run = "".join(map(chr, node.run.tolist()))
        lines.append("  " * depth + run + (" *" if node.locks else ""))
        for child in sorted(node.children.values(), key=lambda n: n.run.tolist()):
            visit(child, depth + 1)

    for top in sorted(tops, key=lambda n: n.run.tolist()):
        visit(top, 0)
    return "\n".join(lines)


def drawing(text: str) -> str:
    """A drawing as written in a test: common indentation and outer blank lines removed."""
    lines = [line.rstrip() for line in text.strip("\n").splitlines()]
    margin = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return "\n".join(line[margin:] for line in lines if line.strip())
