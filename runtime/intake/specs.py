"""The fields of requests, sampling parameters among them, under our names, and the specs that they become.

In the bodies of /generate and LLM a list gives one value per prompt.
"""

import math
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta
from msgspec.structs import asdict, replace

from ramet.ipc.params import ABOUT, CHECKS, SamplingParams, about, parse, shown
from ramet.ipc.spec import (
    AdapterRef,
    BackendName,
    Constraint,
    ExpertRoutes,
    HiddenMode,
    LogprobSpec,
    Namespace,
    ProcessorName,
    RequestSpec,
    Truncation,
    Whitespace,
)
from ramet.runtime.errors import ClientError
from ramet.runtime.intake import other_servers
from ramet.runtime.intake.body import Checked
from ramet.runtime.intake.constraints import READERS, only_one
from ramet.runtime.intake.fields import Int32, Key, OrEach, TokenId, named
from ramet.runtime.intake.limits import INT32, MAX_IDS, MAX_TOP
from ramet.runtime.intake.prompts import check_length, check_most


def sampled(name: str, note: str = "") -> Meta:
    """Says of a field that it is the sampling parameter `name`, which ipc/params.py checks."""
    text = f"{ABOUT[name]}: {CHECKS[name].valid}" + (f"; {note}" if note else "")
    return Meta(description=text, extra_json_schema={"anyOf": [CHECKS[name].schema, {"type": "null"}]})


class ConstraintFields(Checked, frozen=True, kw_only=True):
    """What an output keeps to."""

    json_schema: Annotated[
        str | dict[str, Any] | None, about("the output is JSON that this JSON schema, an object or its text, allows")
    ] = None
    regex: Annotated[str | None, about("the whole output matches this pattern")] = None
    ebnf: Annotated[str | None, about("the output keeps to this grammar: GBNF, or Lark where the backend reads it")] = (
        None
    )
    structural_tag: Annotated[
        str | dict[str, Any] | None, about("literals, JSON, patterns and free text put together, an object or its text")
    ] = None
    grammar_backend: Annotated[
        BackendName | None, about("the library that keeps the output to its constraint; `--grammar-backend` if absent")
    ] = None

    def __post_init__(self) -> None:
        asked = [name for name in READERS if getattr(self, name) not in (None, "")]
        if len(asked) > 1:
            names = " and ".join(asked)
            raise ValueError(f"Only one of json_schema, regex, ebnf, or structural_tag can be set. Here {names} are.")
        super().__post_init__()

    def constraints(self, place: str = "") -> list[Constraint]:
        """The constraints that are asked for. `place`: what stands before the fields' names. Raises ClientError."""
        found = list[Constraint]()
        for name, read in READERS.items():
            if (value := getattr(self, name)) not in (None, ""):
                found.append(read(place + name, value))
        return found

    def backend(self) -> BackendName | None:
        """The library that is asked for. Raises ClientError."""
        return self.grammar_backend

    def whitespace(self) -> Whitespace | None:
        """The whitespace of its JSON. Raises ClientError."""
        return None


class SharedParams(ConstraintFields, frozen=True, kw_only=True):
    """Sampling parameters that every endpoint has under our names. `parse` checks their values."""

    temperature: Annotated[Any, sampled("temperature")] = None
    top_p: Annotated[Any, sampled("top_p")] = None
    top_k: Annotated[Any, sampled("top_k")] = None
    min_p: Annotated[Any, sampled("min_p")] = None
    typical_p: Annotated[Any, sampled("typical_p")] = None
    frequency_penalty: Annotated[Any, sampled("frequency_penalty")] = None
    presence_penalty: Annotated[Any, sampled("presence_penalty")] = None
    repetition_penalty: Annotated[Any, sampled("repetition_penalty")] = None
    logit_bias: Annotated[Any, sampled("logit_bias")] = None
    stop_token_ids: Annotated[Any, sampled("stop_token_ids")] = None
    stop_regex: Annotated[Any, sampled("stop_regex")] = None
    ignore_eos: Annotated[Any, sampled("ignore_eos")] = None
    no_stop_trim: Annotated[Any, sampled("no_stop_trim")] = None
    skip_special_tokens: Annotated[Any, sampled("skip_special_tokens")] = None
    spaces_between_special_tokens: Annotated[Any, sampled("spaces_between_special_tokens")] = None


class GivenParams(SharedParams, frozen=True, kw_only=True):
    """Sampling parameters as /generate and LLM take them; docs/sampling.md shows them."""

    max_new_tokens: Annotated[Any, sampled("max_new_tokens")] = None
    min_new_tokens: Annotated[Any, sampled("min_new_tokens")] = None
    stop: Annotated[Any, sampled("stop")] = None
    sampling_seed: Annotated[Any, sampled("sampling_seed")] = None
    n: Annotated[Any, sampled("n")] = None
    custom_params: Annotated[Any, sampled("custom_params", "or a list with one for each prompt")] = None
    stream_interval: Annotated[Any, sampled("stream_interval")] = None
    # Other endpoints have these names for a constraint.
    guided_json: other_servers.SchemaParam = None
    guided_regex: other_servers.PatternParam = None
    guided_grammar: other_servers.GrammarParam = None
    guided_choice: other_servers.ChoiceParam = None
    response_format: other_servers.SchemaParam = None
    output_format: other_servers.SchemaParam = None
    structured_outputs: other_servers.ConstraintParam = None
    guided_decoding_backend: other_servers.BackendParam = None
    output_config: other_servers.HeldParam = None
    guided_whitespace_pattern: other_servers.WhiteSpace = None


Hidden = bool | Literal["last"]
HIDDEN = about('hidden states: true: of every token that is read; "last": of the last one')
PRIORITY = about("requests with a larger one run first, whatever the queue's policy says")
SALT = about("prompts share cached prefixes only with those of their salt, a secret that keeps users apart")
KEY = about("the same, for a key that is no secret")
LORA = about("name of an adapter; null or empty: the model without one")
PROCESSOR = about("name of a logit processor; needs `--enable-custom-logit-processor`")


RETURN_ROUTES = about(
    "which experts every token but the last went through; needs `--enable-return-routed-experts`: base64 of int32 "
    "[tokens, layers, experts of a token]"
)
ROUTES_FROM = about("of the tokens from this one on alone: in [0, prompt_tokens]")
RouteStart = Annotated[int, named("an integer in [0, prompt_tokens]", ge=0, le=INT32 - 1)]


class SpecFields(SharedParams, frozen=True, kw_only=True):
    """The fields of bodies that ask the same for all of their prompts."""

    priority: Annotated[Int32 | None, PRIORITY] = None
    cache_salt: Annotated[Key | None, SALT] = None
    extra_key: Annotated[Key | None, KEY] = None
    custom_logit_processor: Annotated[str | None, PROCESSOR] = None
    lora_path: Annotated[str | None, LORA] = None


class SpecLists(Checked, frozen=True, kw_only=True):
    """The fields of /generate and LLM, where a list gives one value per prompt."""

    sampling_params: Annotated[OrEach[GivenParams], about("see docs/sampling.md; one for all prompts or for each")] = (
        None
    )
    return_logprob: Annotated[OrEach[bool], about("log-probabilities of the output's tokens")] = None
    logprob_start_len: Annotated[
        OrEach[Annotated[int, named("-1 (none of the prompt) or an integer >= 0, below 2^31", ge=-1, le=INT32 - 1)]],
        about("those of the prompt too, from this token on; -1: none"),
    ] = None
    top_logprobs_num: Annotated[
        OrEach[Annotated[int, Meta(ge=0, le=MAX_TOP)]], about("at each place those of this many best tokens")
    ] = None
    token_ids_logprob: Annotated[
        list[TokenId | Annotated[list[TokenId], Meta(max_length=MAX_IDS)] | None] | None,
        about("at each place those of these tokens; one list for all prompts, or one for each"),
    ] = None
    return_text_in_logprobs: Annotated[bool | None, about("each with its token's text")] = None
    priority: Annotated[OrEach[Int32], PRIORITY] = None
    cache_salt: Annotated[OrEach[Key], SALT] = None
    extra_key: Annotated[OrEach[Key], KEY] = None
    custom_logit_processor: Annotated[OrEach[str], PROCESSOR] = None
    lora_path: Annotated[OrEach[str], LORA] = None
    return_hidden_states: Annotated[OrEach[Hidden], HIDDEN] = None
    return_routed_experts: Annotated[OrEach[bool], RETURN_ROUTES] = None
    routed_experts_start_len: Annotated[OrEach[RouteStart], ROUTES_FROM] = None
    return_prompt_token_ids: Annotated[bool | None, about("replies have `prompt_token_ids`")] = None
    prefix_lease_s: Annotated[
        OrEach[Annotated[float, Meta(ge=0)]],
        about(
            "seconds for which the prompt's prefix stays cached, `--max-prefix-lease-s` at most; 0 ends such a lease"
        ),
    ] = None
    token_healing: Annotated[
        OrEach[bool],
        about(
            "the end of the prompt is chosen again, together with what follows; `--token-healing` if absent, and then "
            "not of token ids"
        ),
    ] = None
    grammar_backend: Annotated[OrEach[BackendName], about("as in `sampling_params`, where it may stand as well")] = None


class Returned(NamedTuple):
    """What a reply has beside its text."""

    logprobs: LogprobSpec | None = None
    hidden: Hidden | None = None
    prompt_ids: bool = False
    expert_routes: ExpertRoutes | None = None


def read_spec(
    body: SpecFields,
    params: SamplingParams,
    processors_on: bool,
    returned: Returned = Returned(),
    *,
    lease_s: float | None = None,
    truncate: Truncation | None = None,
    kept_to: Constraint | None = None,
    token_healing: bool = False,
) -> RequestSpec:
    """What is asked for one prompt, or for all. `processors_on`: --enable-custom-logit-processor."""
    processor = body.custom_logit_processor or None
    if processor and not processors_on:  # whether there is such a processor the scheduler knows
        fact = f"is {shown(processor)}, but this server takes no logit processors"
        raise ClientError("custom_logit_processor", fact, "--enable-custom-logit-processor")
    if lease_s is not None and not math.isfinite(lease_s):  # how long is too long the scheduler knows
        raise ClientError("prefix_lease_s", f"is {lease_s}, must be a finite number of seconds >= 0")
    return RequestSpec(
        params,
        returned.logprobs,
        body.priority or 0,
        _namespace(body.cache_salt or "", body.extra_key or "") if body.cache_salt or body.extra_key else (),
        ProcessorName(processor) if processor else None,
        _MODES[returned.hidden],
        lease_s,
        truncate,
        returned.prompt_ids,
        kept_to,
        token_healing,
        expert_routes=returned.expert_routes,
        lora=AdapterRef(body.lora_path) if isinstance(body.lora_path, str) and body.lora_path else None,
    )


def with_adapter(spec: RequestSpec, name: str | None) -> RequestSpec:
    """null or empty: none."""
    return replace(spec, lora=AdapterRef(name) if name else None)


def read_specs(
    body: SpecLists, count: int, batch: bool, defaults: SamplingParams, processors_on: bool
) -> list[RequestSpec]:
    """One for each of `count` prompts. `batch`: the client sent a list of them. Raises ClientError."""
    listed = listed_fields(body)
    for name in listed:
        check_length(name, len(getattr(body, name)), count, batch)
    for i, item in enumerate((body.token_ids_logprob or ()) if "token_ids_logprob" in listed else ()):
        if isinstance(item, int):
            raise ClientError(f"token_ids_logprob[{i}]", f"is {item}, must be a list of token ids, as others are")
    given = body.sampling_params
    params = _params_of_each(given, count, batch, defaults)
    kept_to = _constraint_of_each(given) if isinstance(given, list) else [_constraint_of(given)] * count
    if params and not listed and params[0] is params[-1]:  # one spec for all prompts
        return [_read_one(body, params[0], kept_to[0], processors_on)] * count
    own = SpecLists(**{name: getattr(body, name) for name in SpecLists.__struct_fields__})  # a body has many more
    specs = []
    for i in range(count):
        one = replace(own, **{name: getattr(own, name)[i] for name in listed})
        try:
            specs.append(_read_one(one, params[i], kept_to[i], processors_on))
        except ClientError as error:
            raise error.at(f"{error.place}[{i}]") if error.place in listed else error from None
    return specs


def backends_of(body: SpecLists, count: int) -> list[str]:
    """The library that each prompt asks for, whether or not it has a constraint of its own; "" where it names none."""
    beside = body.grammar_backend if isinstance(body.grammar_backend, list) else [body.grammar_backend] * count
    params = body.sampling_params if isinstance(body.sampling_params, list) else [body.sampling_params] * count
    return [(given and given.grammar_backend) or name or "" for given, name in zip(params, beside, strict=True)]


def listed_fields(body: SpecLists) -> list[str]:
    """The fields with one value for each prompt; a list of ids is one value. Raises ClientError."""
    names = [name for name in SpecLists.__struct_fields__ if isinstance(getattr(body, name), list)]
    ids = body.token_ids_logprob
    if ids is not None and all(isinstance(item, int) for item in ids[: MAX_IDS + 1]):
        check_most("token_ids_logprob", "entries", len(ids), MAX_IDS)
        names.remove("token_ids_logprob")
    return names


def _read_one(body: Any, params: SamplingParams, kept_to: Constraint | None, processors_on: bool) -> RequestSpec:
    """`body`: SpecLists with one value in each field."""
    if kept_to is not None and body.grammar_backend is not None:
        kept_to = _with_backend(kept_to, body.grammar_backend)
    logprobs = None
    if body.return_logprob:
        start = None if body.logprob_start_len == -1 else body.logprob_start_len
        ids, texts = tuple(body.token_ids_logprob or ()), bool(body.return_text_in_logprobs)
        logprobs = LogprobSpec(start, body.top_logprobs_num or 0, ids, texts)
    routes = ExpertRoutes(body.routed_experts_start_len or 0) if body.return_routed_experts else None
    return read_spec(
        body,
        params,
        processors_on,
        Returned(logprobs, body.return_hidden_states, bool(body.return_prompt_token_ids), routes),
        lease_s=body.prefix_lease_s,
        kept_to=kept_to,
        token_healing=bool(body.token_healing),
    )


def _with_backend(kept_to: Constraint, backend: BackendName) -> Constraint:
    """`backend`: named beside the sampling parameters, which may name it themselves."""
    if kept_to.backend not in ("", backend):
        fact = f"is {backend!r}, but sampling_params.grammar_backend is {kept_to.backend!r}"
        raise ClientError("grammar_backend", fact, "send one of them")
    return replace(kept_to, backend=backend)


def _constraint_of_each(given: list[GivenParams | None]) -> list[Constraint | None]:
    """The place of an error is where the client wrote it, in a list of sampling parameters."""
    kept_to = []
    for i, one in enumerate(given):
        try:
            kept_to.append(_constraint_of(one))
        except ClientError as error:
            raise error.at(error.place.replace("sampling_params", f"sampling_params[{i}]", 1)) from None
    return kept_to


def _constraint_of(given: GivenParams | None) -> Constraint | None:
    if given is None or not (found := given.constraints("sampling_params.")):
        return None
    return only_one(found, given.grammar_backend)


def _params_of_each(
    given: OrEach[GivenParams], count: int, batch: bool, defaults: SamplingParams
) -> list[SamplingParams]:
    if not isinstance(given, list):
        given = given or GivenParams()
        each = given.custom_params
        if not isinstance(each, list):
            return [parse(asdict(given), defaults)] * count
        check_length("sampling_params.custom_params", len(each), count, batch)
        params = parse(asdict(replace(given, custom_params=None)), defaults)
        read = CHECKS["custom_params"].read
        own = [None if one is None else read(f"sampling_params.custom_params[{i}]", one) for i, one in enumerate(each)]
        return [replace(params, custom_params=one) for one in own]

    return [parse(asdict(one) if one else {}, defaults, f"sampling_params[{i}].") for i, one in enumerate(given)]


_MODES = {None: None, False: None, True: HiddenMode.ALL, "last": HiddenMode.LAST}


def _namespace(cache_salt: str, extra_key: str) -> Namespace:
    """Requests share cached prefixes only inside one namespace; () is everybody's. (adapter, salt, extra key), and
    behind them the key that it came with, where the holders of keys are kept apart (RequestSpec.owned_by).
    """
    for place, value in (("cache_salt", cache_salt), ("extra_key", extra_key)):
        if any("\ud800" <= char <= "\udfff" for char in value):
            raise ClientError(place, "has half a surrogate pair, must be valid Unicode")
    return "", cache_salt, extra_key
