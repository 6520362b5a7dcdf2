"""DSPy: Predict, ChainOfThought and ReAct with real tools, through the chat and the text endpoint.

The model is small and was trained on short system turns. `Brief` is a ChatAdapter, as users write them, that says in a
few lines what DSPy's own says at length. That one is answered in its form as well, but wrongly more often.
"""

from collections.abc import Iterator
from typing import Any, Literal

import dspy
import litellm
import pytest
from asked import MARIA, MODEL, TEXT, TOO_LONG
from dspy.utils.exceptions import ContextWindowExceededError
from live import Live

SUM = "What is 37 + 58?"
APPLES = "Sara has 12 apples. She buys 15 more. How many apples does she have?"
TOOLS = """(1) search: finds a text about a subject. It takes {"query": string}.
(2) calculate: works out an expression. It takes {"expression": string}.
(3) finish: ends the work when all is known. It takes {}."""


class Judged(dspy.Signature):
    text: str = dspy.InputField()
    mood: Literal["good", "bad"] = dspy.OutputField()
    sure: bool = dspy.OutputField()


def _listed(fields: dict[str, Any]) -> list[str]:
    kinds = {name: "dict" if name.endswith("_args") else "str" for name in fields}
    return [f"{index}. `{name}` ({kind})" for index, (name, kind) in enumerate(kinds.items(), 1)]


def _ticked(fields: dict[str, Any]) -> str:
    return ", ".join(f"`{name}`" for name in fields)


class Brief(dspy.ChatAdapter):
    """The same markers, and a system turn of a few lines."""

    def format_system_message(self, signature: Any) -> str:
        given, wanted = signature.input_fields, signature.output_fields
        lines = ["Input fields:", *_listed(given), "Output fields:", *_listed(wanted)]
        lines.append(f"Given {_ticked(given)}, write {_ticked(wanted)}.")
        return "\n".join([*lines, TOOLS] if "next_tool_name" in wanted else lines)

    def user_message_output_requirements(self, signature: Any) -> str:
        markers = ", ".join(f"`[[ ## {name} ## ]]`" for name in signature.output_fields)
        return f"Write {markers} and then `[[ ## completed ## ]]`."


def language_model(server: Live, **options: Any) -> dspy.LM:
    at = {"api_base": server.url + "/v1", "api_key": "none", "cache": False, "num_retries": 0}
    return dspy.LM("openai/" + MODEL, temperature=0, max_tokens=200, **at, **options)


@pytest.fixture
def lm(server: Live) -> Iterator[dspy.LM]:
    lm = language_model(server)
    with dspy.context(lm=lm, adapter=Brief(use_json_adapter_fallback=False)):
        yield lm


def test_predict_answers(lm: dspy.LM):
    assert dspy.Predict("question -> answer")(question=SUM).answer == "95"
    (call,) = lm.history
    assert call["usage"]["completion_tokens"] > 5 and call["response"].model == MODEL


def test_chain_of_thought_reasons_before_it_answers(lm: dspy.LM):
    made = dspy.ChainOfThought("question -> answer: int")(question=APPLES)
    assert "12 + 15" in made.reasoning and made.answer == 27


def test_dspy_s_own_adapter_is_answered_in_its_form(lm: dspy.LM):
    with dspy.context(adapter=dspy.ChatAdapter(use_json_adapter_fallback=False)):
        made = dspy.ChainOfThought("question -> answer")(question=SUM)
    assert (made.reasoning, made.answer) == ("37 + 58 = 95.", "95")


@pytest.fixture
def knowing(server: Live, monkeypatch: pytest.MonkeyPatch) -> Iterator[dspy.LM]:
    """LiteLLM is told what this model can do, as its users do for their own servers."""
    name = "openai/" + MODEL
    monkeypatch.setattr(litellm, "model_cost", dict(litellm.model_cost))
    litellm.register_model({name: {"litellm_provider": "openai", "mode": "chat", "supports_response_schema": True}})
    lm = language_model(server, engine="litellm")
    with dspy.context(lm=lm, adapter=dspy.JSONAdapter()):
        yield lm


def test_the_json_adapter_s_schema_is_kept_to(knowing: dspy.LM):
    assert knowing.supports_response_schema
    made = dspy.Predict("text -> name, city, age: int")(text=TEXT)
    assert {name: made[name] for name in MARIA} == MARIA
    assert dspy.Predict("question -> answer")(question=SUM).answer == "95"
    made = dspy.Predict(Judged)(text="The film was good.")
    assert made.mood in ("good", "bad") and type(made.sure) is bool
    assert all("json" in str(call["kwargs"]["response_format"]) for call in knowing.history)


class BriefJson(dspy.JSONAdapter):
    """The same response format, asked for in a few lines: after DSPy's own the model thinks without an end."""

    def format_system_message(self, signature: Any) -> str:
        return "\n".join(["Return JSON with these fields:", *(f"- {name}: string" for name in signature.output_fields)])

    def user_message_output_requirements(self, signature: Any) -> str:
        return f"Return JSON with {_ticked(signature.output_fields)}."


class Placed(dspy.Signature):
    text: str = dspy.InputField()
    name: str = dspy.OutputField()
    city: Literal["Oslo", "Paris"] = dspy.OutputField()
    grown: bool = dspy.OutputField()


def test_the_json_adapter_s_types_are_kept_to_where_the_model_would_not(knowing: dspy.LM):
    with dspy.context(adapter=BriefJson()):
        made = dspy.Predict(Judged)(text="The film was good.")
        assert made.mood in ("good", "bad") and type(made.sure) is bool
        made = dspy.Predict(Placed)(text=TEXT)
    assert made.name == MARIA["name"] and made.city in ("Oslo", "Paris") and type(made.grown) is bool
    assert len(knowing.history) == 2  # neither was asked for again in another form


def test_the_json_adapter_gets_an_object_where_a_schema_is_not_sent(server: Live):
    with dspy.context(lm=language_model(server, engine="litellm"), adapter=dspy.JSONAdapter()) as _:
        made = dspy.Predict("text -> name, city, age: int")(text=TEXT)
    assert {name: made[name] for name in MARIA} == MARIA


def test_react_runs_a_tool_and_answers_with_what_it_returned(lm: dspy.LM):
    ran: list[str] = []

    def search(query: str) -> str:
        raise AssertionError(f"searched for {query}")

    def calculate(expression: str) -> str:
        ran.append(expression)
        first, second = expression.split(" + ")
        return str(int(first) + int(second))

    made = dspy.ReAct("question -> answer", tools=[search, calculate], max_iters=4)(question=APPLES)
    assert ran == ["12 + 15"]
    assert made.trajectory["observation_0"] == "27" and made.trajectory["tool_name_1"] == "finish"
    assert made.answer == "27"


def test_the_text_endpoint_answers(server: Live):
    lm = language_model(server, model_type="text", stop=["\n"])
    assert lm(prompt="The capital of France is") == [" Paris is the capital of France."]
    assert lm.history[0]["response"].object == "text_completion"


def test_n_outputs_come_from_one_request(lm: dspy.LM):
    made = dspy.Predict("question -> answer", n=3, temperature=1.5)(question="Tell me a story.")
    assert len(made.completions.answer) == 3 and len(set(made.completions.answer)) > 1
    assert len(lm.history) == 1


def test_a_prompt_beyond_the_context_is_dspy_s_own_error(lm: dspy.LM):
    with pytest.raises(ContextWindowExceededError):
        dspy.Predict("question -> answer")(question=TOO_LONG)
