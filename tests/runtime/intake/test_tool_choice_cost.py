"""Reading which tools may be called takes time in proportion to the body, whatever the client wrote in it."""

import pytest

from ramet.runtime.errors import ClientError
from ramet.runtime.intake.messages import AllowedTools, NamedChoice
from ramet.runtime.intake.tool_choice import read_choice
from tests.fakes.effort import Compared


def test_tools_are_not_searched_for_each_that_is_allowed() -> None:
    names = [Compared(f"f{i}") for i in range(300)]
    allowed = AllowedTools(mode="auto", tools=[{"type": "function", "name": str(name)} for name in names])
    Compared.num = 0
    calls = read_choice(NamedChoice(type="allowed_tools", allowed_tools=allowed), names)
    assert len(calls.names) == 300 and Compared.num <= 4 * 300


def test_an_error_names_few_of_many_tools() -> None:
    with pytest.raises(ClientError, match=r"f31, … \(9999 in all\)") as caught:
        read_choice(NamedChoice(type="function", name="g"), [f"f{i}" for i in range(9999)])
    assert len(caught.value.record.fact) < 400
