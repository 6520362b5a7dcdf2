"""The fields, beside those of specs.py, that bodies of OpenAI's and Anthropic's endpoints share where they draw tokens.

Decides under which of these APIs' names clients write sampling parameters; errors have the name they wrote.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from ramet.ipc.params import CHECKS, SamplingParams, about, parse, shown
from ramet.runtime.errors import ClientError
from ramet.runtime.intake import other_servers
from ramet.runtime.intake.fields import Rid, unbuilt
from ramet.runtime.intake.specs import Hidden, SpecFields, sampled

# ours -> what clients call it; of several the first that is set counts
NAMES: dict[str, tuple[str, ...]] = {
    "max_new_tokens": ("max_completion_tokens", "max_tokens", "max_output_tokens"),
    "min_new_tokens": ("min_tokens",),
    "sampling_seed": ("sampling_seed", "seed"),
    "stop": ("stop", "stop_sequences"),
    "no_stop_trim": ("no_stop_trim", "include_stop_str_in_output"),
}
OURS = {name: ours for ours in CHECKS for name in NAMES.get(ours, (ours,))}
AGREE = frozenset({"no_stop_trim"})  # of several names none counts more than the other

UnbuiltHidden = Annotated[Hidden | None, unbuilt("hidden states; completions return them", neutral=(False,))]


def read_params(fields: Mapping[str, Any], defaults: SamplingParams) -> SamplingParams:
    """`fields`: a body's. Raises ClientError under the name that the client used."""
    given: dict[str, Any] = {}
    names = {ours: next((name for name in theirs if name in fields), ours) for ours, theirs in NAMES.items()}
    for name, ours in OURS.items():
        value = fields.get(name)
        if value is not None and ours in given:
            valid = CHECKS[ours].read(name, value)  # a value that does not count must be valid as well
            if ours in AGREE and valid != given[ours]:
                fact = f"is {shown(value)}, but {names[ours]}, another name of it, is {shown(given[ours])}"
                raise ClientError(name, fact, "send one of them")
        elif value is not None:
            given[ours], names[ours] = value, name
    try:
        return parse(given, defaults, "", names)
    except ClientError as error:
        fact = error.fact.replace("max_new_tokens", names["max_new_tokens"])
        raise ClientError(error.place, fact, error.hint) from None


class SamplingFields(SpecFields, frozen=True, kw_only=True):
    """What every body of OpenAI's and Anthropic's endpoints has that draws tokens."""

    model: Annotated[str | None, about("the served model, `default`, nothing, an adapter, or `MODEL:ADAPTER`")] = None
    stream: Annotated[bool | None, about("server-sent events as tokens come")] = None
    min_tokens: Annotated[Any, sampled("min_new_tokens")] = None
    sampling_seed: Annotated[Any, sampled("sampling_seed", "counts where `seed` is sent as well")] = None
    seed: Annotated[Any, sampled("sampling_seed")] = None
    include_stop_str_in_output: Annotated[
        Any, sampled("no_stop_trim", "vLLM's name of `no_stop_trim`; both together must agree")
    ] = None
    custom_params: Annotated[Any, sampled("custom_params")] = None
    rid: Annotated[Rid | None, about("name of the request, for /abort_request; the reply's id if it is absent")] = None
    request_id: Annotated[Rid | None, about("vLLM's name of `rid`")] = None
    # Clients of other servers send these names; GenerateBody has them as well.
    bootstrap_host: other_servers.PrefillHost = None
    bootstrap_port: other_servers.PrefillNumber = None
    bootstrap_room: other_servers.PrefillNumber = None
    disagg_prefill_dp_rank: other_servers.PrefillRank = None
    kv_transfer_params: other_servers.OtherCache = None
    ec_transfer_params: other_servers.OtherCache = None
    routed_dp_rank: other_servers.OtherRank = None
    data_parallel_rank: other_servers.OtherRank = None
    session_params: Annotated[dict[str, Any] | None, unbuilt("a session", neutral=({},))] = None
    return_routed_experts: other_servers.ReturnRoutes = None
    routed_experts_start_len: other_servers.RoutesFrom = None
    routed_experts_prompt_start: other_servers.RoutesFrom = None
    max_thinking_tokens: other_servers.MaxThought = None
    thinking_token_budget: other_servers.ThoughtBudget = None
    vllm_xargs: other_servers.PluginArguments = None
    session_id: other_servers.GroupName = None
    conversation_id: other_servers.GroupName = None
    routing_key: other_servers.GroupName = None
    custom_labels: other_servers.MetricLabels = None
    mm_processor_kwargs: other_servers.MediaOptions = None
    media_io_kwargs: other_servers.MediaOptions = None
    ngram_corpus_id: other_servers.Corpus = None
