"""What the bound on waiting costs in a backlog, by simulated time: the same figures on every machine."""

from functools import cache
from typing import Any

import pytest
from samples import slow

from ramet.bench.programs.backlog import NEVER_S, BacklogOutcome, play
from ramet.runtime.config import make_args

MAX_WAIT_S = make_args().schedule.max_wait_s
# tokens in the KV pool, rows, seconds in which the backlog arrives; a group of prompts shares 1,000 tokens
OTHERS = [(6000, 4, 20.0), (8000, 4, 30.0), (12_000, 8, 0.0), (12_000, 8, 40.0)]
MACHINES = [(6000, 4, 0.0), *(slow((machine,)) for machine in OTHERS)]


@cache
def played(policy: str, max_wait_s: float, *machine: Any) -> BacklogOutcome:
    pool, rows, spread_s = machine
    return play(policy, max_wait_s, pool=pool, rows=rows, spread_s=spread_s)


@pytest.mark.parametrize("machine", MACHINES)
def test_a_bound_on_waiting_costs_at_most_a_tenth_of_the_tokens(machine: tuple[int, int, float]) -> None:
    bounded, free = (played("lpm", max_wait_s, *machine) for max_wait_s in (MAX_WAIT_S, NEVER_S))
    assert free.longest_wait_s > 2 * MAX_WAIT_S  # everybody is overdue
    assert bounded.computed_tokens <= 1.1 * free.computed_tokens


@pytest.mark.parametrize("policy", ["lpm", slow("dfs-weight"), slow("lof"), slow("random")])
@pytest.mark.parametrize("machine", MACHINES)
def test_nobody_waits_twice_as_long_as_in_the_order_of_arrival(policy: str, machine: tuple[int, int, float]) -> None:
    longest = played("fcfs", NEVER_S, *machine).longest_wait_s
    assert played(policy, MAX_WAIT_S, *machine).longest_wait_s <= 2 * longest


@pytest.mark.parametrize("policy", ["lpm", slow("dfs-weight"), slow("fcfs"), slow("lof"), slow("random")])
@pytest.mark.parametrize("machine", MACHINES)
def test_a_newcomer_of_high_priority_waits_for_a_running_request_only(
    policy: str, machine: tuple[int, int, float]
) -> None:
    """Some 200 are waiting. An output and a prompt take 1.1 s, and one request may go first because of its age."""
    outcome = played(policy, MAX_WAIT_S, *machine)
    assert outcome.newcomer_wait_s < 2.5 < outcome.longest_wait_s / 8
