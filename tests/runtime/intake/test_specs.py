"""Bodies to specs: a list gives each prompt its own, one value all of them, and an error names the client's field."""

from typing import Any

import pytest

from ramet.ipc.params import CHECKS, SamplingParams
from ramet.ipc.spec import HiddenMode, LogprobSpec, RequestSpec
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.body import convert
from ramet.runtime.intake.sampling_fields import SamplingFields, read_params
from ramet.runtime.intake.specs import GivenParams, SpecLists, read_spec, read_specs

DEFAULTS = SamplingParams(temperature=0.5)


def specs(count: int, **body: Any) -> list[RequestSpec]:
    return read_specs(convert(body, SpecLists), count, count > 1, DEFAULTS, processors_on=True)


def refusal(count: int, **body: Any) -> ClientError:
    with pytest.raises(ClientError) as caught:
        specs(count, **body)
    return caught.value


def test_nothing_asked_is_the_defaults() -> None:
    assert specs(2) == [RequestSpec(DEFAULTS)] * 2


def test_one_value_is_for_all_prompts_and_a_list_for_each() -> None:
    first, second = specs(
        2,
        sampling_params=[{"top_k": 3}, None],
        priority=[1, None],
        cache_salt="s",
        custom_logit_processor=["p", ""],
        return_hidden_states=[True, "last"],
        return_logprob=[False, True],
        logprob_start_len=[0, -1],
        top_logprobs_num=2,
        token_ids_logprob=[[7], None],
        return_text_in_logprobs=True,
    )
    assert first.params == SamplingParams(temperature=0.5, top_k=3) and second.params == DEFAULTS
    assert (first.priority, second.priority) == (1, 0) and first.namespace == second.namespace == ("", "s", "")
    assert (first.processor, second.processor) == ("p", None)
    assert (first.hidden, second.hidden) == (HiddenMode.ALL, HiddenMode.LAST)
    assert first.logprobs is None and second.logprobs == LogprobSpec(None, 2, (), texts=True)


def test_a_flat_list_of_ids_is_for_all_prompts() -> None:
    both = specs(2, return_logprob=True, token_ids_logprob=[1, 2])
    assert [spec.logprobs for spec in both] == [LogprobSpec(ids=(1, 2))] * 2


@pytest.mark.parametrize(
    ("count", "body", "place", "piece"),
    [
        (1, {"priority": [1]}, "priority", "one value for one prompt"),
        (2, {"extra_key": ["a"]}, "extra_key", "one for each of the 2 prompts"),
        (2, {"sampling_params": [{}, {"top_p": 2}]}, "sampling_params[1].top_p", "(0, 1]"),
        (2, {"token_ids_logprob": [[1], 2]}, "token_ids_logprob[1]", "a list of token ids, as others are"),
        (1, {"token_ids_logprob": list(range(1025))}, "token_ids_logprob", "1024"),
        (1, {"cache_salt": "\ud800"}, "cache_salt", "Unicode"),
        (
            1,
            {"sampling_params": {"regex": "a", "ebnf": "b"}},
            "sampling_params",
            "Only one of json_schema, regex, ebnf",
        ),
    ],
)
def test_what_is_wrong_is_named(count: int, body: dict[str, Any], place: str, piece: str) -> None:
    error = refusal(count, **body)
    assert error.place == place and piece in error.fact


def test_every_sampling_parameter_is_a_field_of_generate_and_of_openai_s_bodies() -> None:
    assert set(GivenParams.__struct_fields__) >= CHECKS.keys()
    own = {"max_new_tokens", "stop", "n", "stream_interval"}  # under other names, or not on every endpoint
    renamed = {"min_new_tokens": "min_tokens"}
    assert set(SamplingFields.__struct_fields__) >= {renamed.get(name, name) for name in CHECKS.keys() - own}


def test_of_several_names_the_first_counts_and_the_others_are_checked() -> None:
    assert read_params({"sampling_seed": 1, "seed": 2}, DEFAULTS).sampling_seed == 1
    with pytest.raises(ClientError, match=r"^seed is 'x'"):
        read_params({"sampling_seed": 1, "seed": "x"}, DEFAULTS)


def test_an_error_has_the_name_that_the_client_wrote() -> None:
    with pytest.raises(ClientError, match=r"^min_tokens is 9, must be in \[0, max_tokens\] = \[0, 5\]"):
        read_params({"max_tokens": 5, "min_tokens": 9}, DEFAULTS)


def test_a_processor_needs_its_option() -> None:
    body = convert({"custom_logit_processor": "p"}, SamplingFields)
    assert read_spec(body, DEFAULTS, processors_on=True).processor == "p"
    with pytest.raises(ClientError, match="takes no logit processors"):
        read_spec(body, DEFAULTS, processors_on=False)
