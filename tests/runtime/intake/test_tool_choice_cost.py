"""Reading which tools may be called takes time in proportion to the body, whatever the client wrote in it."""

from typing import Any

import pytest

from ramet.ipc.messages import Chat
from ramet.ipc.params import SamplingParams
from ramet.ipc.spec import RequestSpec
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.chat import Style, chosen_chat, hold_calls
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


class Walked(dict[str, Any]):
    """Counts how often its entries are looked through."""

    num = 0

    def items(self) -> Any:
        Walked.num += 1
        return super().items()


def test_a_schema_is_not_searched_for_other_schemas() -> None:
    """The constraint of calls says where each tool's schema stands in it, whose values may be thousands."""
    schema = {"type": "object", "properties": {f"k{i}": Walked(type="string") for i in range(100)}}
    tools = [{"type": "function", "function": {"name": f"f{i}", "parameters": schema}} for i in range(2)]
    chat, calls = chosen_chat({"messages": [], "tools": tools}, "required", Style("hermes"), (), True)
    assert isinstance(chat, Chat)
    Walked.num = 0
    spec, held = hold_calls(RequestSpec(SamplingParams()), chat, calls, Style("hermes"))
    assert spec.constraint is not None and held.leading
    assert sorted(held.parts.values()) == ["tools[0].function.parameters", "tools[1].function.parameters"]
    assert Walked.num <= 2 * 100  # for their JSON
