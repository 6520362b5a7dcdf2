"""Nothing is lost: slots and rows are conserved. Read-only; knows the cache, the running set and nothing else."""

from collections import Counter
from collections.abc import Iterable

import numpy as np

from ramet.runtime.cache.node import Node
from ramet.runtime.cache.prefix import Lease, PrefixCache
from ramet.runtime.cache.stateful import StatefulCache
from ramet.runtime.scheduler.features.prefix_leases import PrefixLeases
from ramet.runtime.scheduler.request import Request
from ramet.runtime.scheduler.running import RunningSet


def check_counts(cache: PrefixCache, running: RunningSet) -> None:
    """free + tree (locked or not) + owned by running requests and by steps in flight = total; the same of rows."""
    parts = {"free": cache.free_tokens, "tree": cache.tree_tokens, "owned": running.owned_tokens}
    assert sum(parts.values()) == cache.total_tokens, f"slots are not conserved: {parts}, total {cache.total_tokens}"
    penalty_slots = running.features.penalties.slots
    taken = running.free_rows.num_taken + running.parts.rows.num_taken
    used = len(running) + len(running.parts.running) + len(running.left.rows)
    assert taken == used, f"{taken} rows taken, {used} in use"
    check_states(cache, running)
    penalised = sum(each.request.params.penalised for each in running) + np.count_nonzero(
        running.features.penalties.columns.slots[running.left.rows]
    )
    assert penalty_slots.num_taken == penalised, f"{penalty_slots.num_taken} penalty slots taken, {penalised} in use"


def check_states(cache: PrefixCache, running: RunningSet) -> None:
    """free + on nodes + taken by rows and by steps in flight = all places of snapshots."""
    states = running.memory.states
    if states is not None and isinstance(cache, StatefulCache):
        parts = {"free": cache.num_free, "kept": cache.num_kept, "taken": cache.num_taken}
        assert sum(parts.values()) == cache.num_snapshots, f"places are lost: {parts}, total {cache.num_snapshots}"
        assert states.num_taken == cache.num_taken, f"{cache.num_taken} places taken, {states.num_taken} in use"


def check_snapshots(cache: StatefulCache) -> None:
    """No place has two owners, and each is where its node says. Slow: for tests."""
    places = [node.state for node in cache.tree.nodes() if node.state]
    kept = [node.state for node in cache.nodes_with_snapshots]
    assert sorted(places) == sorted(kept) and len(set(places)) == len(places), (places, kept)


def check_idle(cache: PrefixCache, running: RunningSet, kept: Iterable[Lease]) -> None:
    """When nothing runs, nothing is leased but what is kept for clients: their own leases, and follow-ups."""
    check_counts(cache, running)
    known = cache.tokens_of(kept)
    assert cache.tree.locked_tokens == known, f"{cache.tree.locked_tokens} tokens are leased, {known} are kept"


def check_leases(leases: PrefixLeases) -> None:
    """When nothing runs, what clients have claimed is what they hold."""
    held = leases.tokens_of_owners if leases.claimed else 0
    claimed = leases.ledger.locked_tokens + leases.ledger.evictable_tokens
    assert claimed == held, f"{claimed} tokens are claimed, clients hold {held}"
    assert not leases.open, f"{len(leases.open)} requests that have ended keep a claim"


def check_locks(cache: PrefixCache, running: RunningSet, kept: Iterable[Lease]) -> None:
    """Every lock is that of a running request, of a step in flight or kept for a client. Slow: for tests."""
    locks: Counter[Node] = Counter()
    own = [each.lease for each in running]
    for lease in (*own, *running.parts.leases, *running.left.leases, *kept):
        node = lease.node
        while node is not None:
            locks[node] += 1
            node = node.parent
    for node in cache.tree.nodes():
        assert node.locks == locks[node], f"{len(node.run)} tokens have {node.locks} locks, {locks[node]} leases"


def check_wanted(cache: PrefixCache, waiting: Iterable[Request]) -> None:
    """What waiting requests would find is counted once for each of them. Slow: for tests."""
    wanted: Counter[Node] = Counter()
    for request in waiting:
        node = request.match.end
        while node is not None:
            wanted[node] += 1
            node = node.parent
    for node in cache.tree.nodes():
        assert node.wanted == wanted[node], f"{node.wanted} wait for {len(node.run)} tokens, not {wanted[node]}"


def check_owners(cache: PrefixCache, running: RunningSet) -> None:
    """No slot has two owners, and each request's leased slots are the tree's. Slow: for tests."""
    owners: Counter[int] = Counter()
    in_tree: set[int] = set()
    for node in cache.tree.nodes():
        owners.update(node.slots.tolist())
        in_tree.update(node.slots.tolist())
    parked = [slot for pages in running.parts.parked_pages for slot in pages.tolist()]
    owners.update(parked)
    for each in (*running, *running.parts.running.values()):
        owners.update(each.slots[each.leased :].tolist())
        leased = each.slots[: each.leased].tolist()
        assert in_tree.union(parked).issuperset(leased), f"request {each.uid} has slots that nobody keeps for it"
    for slots in running.left.slots:
        owners.update(slots.tolist())
    twice = [slot for slot, count in owners.items() if count > 1]
    assert not twice, f"slots with two owners: {twice[:10]}"
    assert len(owners) == cache.total_tokens - cache.free_tokens, (len(owners), cache.total_tokens, cache.free_tokens)
