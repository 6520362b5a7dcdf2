"""Nothing is lost: slots and rows are conserved, and what features keep is theirs. Read-only."""

from collections import Counter
from collections.abc import Iterable

import numpy as np

from ramet.runtime.cache.node import Node
from ramet.runtime.cache.prefix import Lease, PrefixCache
from ramet.runtime.cache.stateful import StatefulCache
from ramet.runtime.scheduler.features.composed import SchedulerFeatures
from ramet.runtime.scheduler.features.parts import Parts
from ramet.runtime.scheduler.features.prefix_leases import PrefixLeases
from ramet.runtime.scheduler.features.states import StatefulMemory
from ramet.runtime.scheduler.loop import Scheduler
from ramet.runtime.scheduler.request import Request
from ramet.runtime.scheduler.running import RunningSet


def check(scheduler: Scheduler, features: SchedulerFeatures, is_idle: bool) -> None:
    """Check what must hold after every turn, and where nothing runs, what must hold then."""
    check_counts(scheduler.cache, scheduler.running, features)
    if is_idle:
        check_idle(scheduler.cache, scheduler.kept)
        check_leases(features.leases)


def owned_tokens(running: RunningSet, parts: Parts) -> int:
    """Slots that belong to running requests, to parts of their prompts or to steps in flight, and not to the tree."""
    return running.owned_tokens + (parts.owned_tokens if parts.assemblies else 0)


def check_counts(cache: PrefixCache, running: RunningSet, features: SchedulerFeatures) -> None:
    """free + tree (locked or not) + owned by running requests and by steps in flight = total; the same of rows."""
    owned = owned_tokens(running, features.parts)
    slots = {"free": cache.free_tokens, "tree": cache.tree_tokens, "owned": owned}
    assert sum(slots.values()) == cache.total_tokens, f"slots are not conserved: {slots}, total {cache.total_tokens}"
    penalty_slots, left = features.penalties.slots, running.memory.deferred.rows
    taken = running.free_rows.num_taken + running.spare_rows.num_taken
    used = len(running) + len(features.parts.running) + len(left)
    assert taken == used, f"{taken} rows taken, {used} in use"
    if isinstance(cache, StatefulCache):
        check_states(cache, running)
    penalised = np.count_nonzero(features.penalties.columns.slots[left])
    for each in running:
        penalised += each.request.params.penalised
    assert penalty_slots.num_taken == penalised, f"{penalty_slots.num_taken} penalty slots taken, {penalised} in use"


def check_states(cache: StatefulCache, running: RunningSet) -> None:
    """free + on nodes + taken by rows and by steps in flight = all places of snapshots."""
    assert isinstance(running.memory, StatefulMemory)
    places = {"free": cache.num_free, "kept": cache.num_kept, "taken": cache.num_taken}
    assert sum(places.values()) == cache.num_snapshots, f"places are lost: {places}, total {cache.num_snapshots}"
    taken = running.memory.states.num_taken
    assert taken == cache.num_taken, f"{cache.num_taken} places taken, {taken} in use"


def check_snapshots(cache: StatefulCache) -> None:
    """No place has two owners, and each is where its node says. Slow: for tests."""
    places = [node.state for node in cache.tree.nodes() if node.state]
    kept = [node.state for node in cache.nodes_with_snapshots]
    assert sorted(places) == sorted(kept) and len(set(places)) == len(places), (places, kept)


def check_idle(cache: PrefixCache, kept: Iterable[Lease]) -> None:
    """When nothing runs, nothing is leased but what is kept for clients: their own leases, and follow-ups."""
    known = cache.tokens_of(kept)
    assert cache.tree.locked_tokens == known, f"{cache.tree.locked_tokens} tokens are leased, {known} are kept"


def check_leases(leases: PrefixLeases) -> None:
    """When nothing runs, what clients have claimed is what they hold."""
    held = leases.tokens_of_owners if leases.claimed else 0
    claimed = leases.ledger.tree.locked_tokens + leases.ledger.tree.evictable_tokens
    assert claimed == held, f"{claimed} tokens are claimed, clients hold {held}"
    assert not leases.open, f"{len(leases.open)} requests that have ended keep a claim"


def check_locks(cache: PrefixCache, running: RunningSet, parts: Parts, kept: Iterable[Lease]) -> None:
    """Every lock is that of a running request, of a step in flight or kept for a client. Slow: for tests."""
    locks: Counter[Node] = Counter()
    own = [each.lease for each in running]
    for lease in (*own, *parts.leases, *running.memory.deferred.leases, *kept):
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


def check_owners(cache: PrefixCache, running: RunningSet, parts: Parts) -> None:
    """No slot has two owners, and each request's leased slots are the tree's. Slow: for tests."""
    owners: Counter[int] = Counter()
    in_tree: set[int] = set()
    for node in cache.tree.nodes():
        owners.update(node.slots.tolist())
        in_tree.update(node.slots.tolist())
    parked = [slot for pages in parts.parked_pages for slot in pages.tolist()]
    owners.update(parked)
    for each in (*running, *parts.running.values()):
        owners.update(each.slots[each.leased :].tolist())
        leased = each.slots[: each.leased].tolist()
        assert in_tree.union(parked).issuperset(leased), f"request {each.uid} has slots that nobody keeps for it"
    for slots in running.memory.deferred.slots:
        owners.update(slots.tolist())
    twice = [slot for slot, count in owners.items() if count > 1]
    assert not twice, f"slots with two owners: {twice[:10]}"
    assert len(owners) == cache.total_tokens - cache.free_tokens, (len(owners), cache.total_tokens, cache.free_tokens)
