"""The same properties, for minutes: `make test-slow`."""

import hypothesis
import pytest
from test_cache_model import CacheMachine, CacheMachine16
from test_scheduler_model import SCENARIO, check_scenario

LONG = hypothesis.settings(max_examples=1500, stateful_step_count=150, deadline=None)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("machine", [CacheMachine, CacheMachine16])
def test_the_cache_keeps_its_promises_for_long(machine: type[CacheMachine]):
    hypothesis.stateful.run_state_machine_as_test(machine, settings=LONG)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_scheduler_keeps_its_promises_for_long():
    hypothesis.settings(max_examples=3000, deadline=None)(hypothesis.given(**SCENARIO)(check_scenario))()
