"""The smallest automaton of a language, and without the states that lead nowhere. Hopcroft's algorithm."""

from collections import defaultdict, deque
from collections.abc import Iterable

from ramet.runtime.grammar.character_dfa import CharacterDfa


def minimise(dfa: CharacterDfa) -> CharacterDfa | None:
    """State 0 stays the start, and every state leads to one that accepts. None: no text does."""
    into = _sources(dfa)
    alive = _alive(dfa, into)
    if 0 not in alive:
        return None
    block_of = _blocks(dfa, into, alive)
    return _merged(dfa, alive, block_of)


def _sources(dfa: CharacterDfa) -> list[dict[int, list[int]]]:
    """Of each state: class -> the states that it leads there from."""
    into: list[dict[int, list[int]]] = [defaultdict(list) for _ in dfa.steps]
    for state, steps in enumerate(dfa.steps):
        for kind, target in steps.items():
            into[target][kind].append(state)
    return into


def _alive(dfa: CharacterDfa, into: list[dict[int, list[int]]]) -> set[int]:
    stack = [state for state, accepts in enumerate(dfa.accepts) if accepts]
    alive = set(stack)
    while stack:
        new = {source for sources in into[stack.pop()].values() for source in sources} - alive
        alive |= new
        stack.extend(new)
    return alive


def _blocks(dfa: CharacterDfa, into: list[dict[int, list[int]]], alive: set[int]) -> dict[int, int]:
    """The block of each state; the states of one block accept the same."""
    accepting = {state for state in alive if dfa.accepts[state]}
    blocks = [block for block in (accepting, alive - accepting) if block]
    block_of = {state: number for number, block in enumerate(blocks) for state in block}
    waiting = deque(range(len(blocks)))
    while waiting:
        for sources in _by_class(blocks[waiting.popleft()], into):
            for number, inside in _by_block(sources, block_of).items():
                if len(inside) == len(blocks[number]):
                    continue
                # of a block that has been used to split, the smaller half is enough to split further
                smaller = inside if 2 * len(inside) <= len(blocks[number]) else blocks[number] - inside
                blocks[number] -= smaller
                block_of.update(dict.fromkeys(smaller, len(blocks)))
                waiting.append(len(blocks))
                blocks.append(smaller)
    return block_of


def _by_class(block: Iterable[int], into: list[dict[int, list[int]]]) -> list[list[int]]:
    """The states that lead into the block, for each class."""
    found: dict[int, list[int]] = defaultdict(list)
    for state in block:
        for kind, sources in into[state].items():
            found[kind] += sources
    return list(found.values())


def _by_block(states: Iterable[int], block_of: dict[int, int]) -> dict[int, set[int]]:
    found: dict[int, set[int]] = defaultdict(set)
    for state in states:
        if state in block_of:  # it is alive
            found[block_of[state]].add(state)
    return found


def _merged(dfa: CharacterDfa, alive: set[int], block_of: dict[int, int]) -> CharacterDfa:
    """One state for each block, in the order of their first state."""
    first: dict[int, int] = {}
    for state in sorted(alive):
        first.setdefault(block_of[state], state)
    ids = {block: number for number, block in enumerate(first)}
    steps = [
        {kind: ids[block_of[target]] for kind, target in dfa.steps[state].items() if target in alive}
        for state in first.values()
    ]
    return CharacterDfa(steps, [dfa.accepts[state] for state in first.values()])
