"""Calls of /generate: texts, token ids or embeddings -> prompts, with what is asked of each."""

import re
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, Struct
from msgspec.structs import replace

from ramet.ipc.content import Content
from ramet.ipc.messages import Limits
from ramet.ipc.params import MAX_NEW_TOKENS, MAX_SAMPLES, SamplingParams, about, shown
from ramet.runtime.engine_client.places import PARAMS, FieldPlaces
from ramet.runtime.engine_client.prompt import Prompt
from ramet.runtime.errors import ClientError
from ramet.runtime.intake import other_servers
from ramet.runtime.intake import prompts as checks
from ramet.runtime.intake.fields import RID, RID_WORDS, Ids, Int32, PromptId, Some, Text, accepted, unbuilt
from ramet.runtime.intake.limits import MAX_EMBED
from ramet.runtime.intake.media import FIELDS, check_options, read_fields
from ramet.runtime.intake.prompts import Placed
from ramet.runtime.intake.specs import SpecLists, listed_fields, read_specs
from ramet.runtime.media.source import GivenMedia

Embed = Annotated[float, Meta(ge=-MAX_EMBED, le=MAX_EMBED)]
PROMPTS = ("text", "input_ids", "input_embeds")
Media = str | dict[str, Any] | list[Any] | None
MEDIA = (
    "{}: a URL, a data URI, base64, a path, or an object (docs/media.md); a list has those of the only prompt, or an "
    "entry for each prompt, which may be a list"
)


class SessionParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which session a request belongs to, and what of it the request goes on from."""

    id: Annotated[str | None, about("of a session that is open")] = None
    rid: Annotated[str | None, about("of the request of this session to go on from; absent: none, a new beginning")] = (
        None
    )
    offset: Annotated[
        Int32 | None,
        about("tokens of that request and its output to keep, from the front; negative: all but so many; 0: all"),
    ] = None
    replace: Annotated[
        bool | None,
        about("what went on from that request is cleared, and if it runs it is ended; without rid the whole session"),
    ] = None
    drop_previous_output: Annotated[bool | None, about("go on from that request's prompt, without its output")] = None


ArrayForm = Annotated[bool | None, unbuilt("log-probabilities as arrays", neutral=(False,))]
OfEncoder = Annotated[
    other_servers.Object | list[Any] | bool | None, unbuilt("media that another server encoded", neutral=(False, {}))
]
MediaHashes = Annotated[list[Any] | None, accepted("media are known by what they show")]
Traced = Annotated[dict[str, Any] | None, accepted("it changes no reply")]


class GenerateBody(SpecLists, frozen=True, kw_only=True):
    """Every field /generate knows. A list gives one value per prompt."""

    text: Annotated[Text | Some[Text] | None, about("a prompt, or a list of them")] = None
    input_ids: Annotated[Some[PromptId | Ids] | None, about("a prompt as token ids, or a list of such")] = None
    input_embeds: Annotated[
        Some[list[Embed | list[Embed]]] | None,
        about("a prompt as rows of hidden_size numbers, or a list of such; it shares the cache with equal ones only"),
    ] = None
    rid: Annotated[
        str | list[str] | None,
        about(
            "name of the request, for /abort_request; a new one if it is absent", pattern=RID, items={"pattern": RID}
        ),
    ] = None
    stream: Annotated[bool | None, about("server-sent events as tokens come")] = None
    require_reasoning: Annotated[
        bool | None,
        about(
            "the output begins with a thought, whose tokens `meta_info.reasoning_tokens` counts with its closing tag; "
            "a constraint begins after it"
        ),
    ] = None
    image_data: Annotated[Media, about(MEDIA.format("pictures"))] = None
    audio_data: Annotated[Media, about(MEDIA.format("sound"))] = None
    video_data: Annotated[Media, about(MEDIA.format("films"))] = None
    modalities: Annotated[list[Any] | None, about("accepted; the field that media stand in says what they are")] = None
    session_params: Annotated[
        SessionParams | None, about("the request goes on from another one of its session; see Sessions below")
    ] = None
    # Clients of other servers send these names; SamplingFields has the first of them as well.
    bootstrap_host: other_servers.PrefillHost = None
    bootstrap_port: other_servers.PrefillNumber = None
    bootstrap_room: other_servers.PrefillNumber = None
    disagg_prefill_dp_rank: other_servers.PrefillRank = None
    kv_transfer_params: other_servers.OtherCache = None
    ec_transfer_params: other_servers.OtherCache = None
    routed_dp_rank: other_servers.OtherRank = None
    data_parallel_rank: other_servers.OtherRank = None
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
    return_bytes: Annotated[bool | None, unbuilt("the reply as bytes", neutral=(False,))] = None
    return_entropy: Annotated[bool | None, unbuilt("the entropy of each draw", neutral=(False,))] = None
    return_sampling_mask: Annotated[bool | None, unbuilt("which tokens could be drawn", neutral=(False,))] = None
    return_flat_raw_top_logprobs: ArrayForm = None
    return_flat_raw_top_logprobs_b64: ArrayForm = None
    return_indexer_topk: Annotated[bool | None, unbuilt("indices of sparse attention", neutral=(False,))] = None
    log_metrics: Annotated[bool | None, unbuilt("a request that no metric counts", neutral=(True,))] = None
    background: Annotated[bool | None, unbuilt("an answer to ask for later", neutral=(False,))] = None
    lora_id: Annotated[other_servers.Texts | None, unbuilt("an adapter", neutral=("",))] = None
    positional_embed_overrides: Annotated[Any | None, unbuilt(other_servers.OVERRIDES)] = None
    multi_item_delimiter_indices: Annotated[list[Any] | None, unbuilt("prompts of several items")] = None
    bootstrap_pair_key: Annotated[other_servers.Texts | None, unbuilt(other_servers.PREFILL)] = None
    decode_tp_size: other_servers.PrefillNumber = None
    http_worker_ipc: Annotated[str | None, unbuilt("the address of one of the server's own processes")] = None
    need_wait_for_mm_inputs: OfEncoder = None
    num_items_assigned: OfEncoder = None
    encoder_urls: OfEncoder = None
    video_config: other_servers.MediaOptions = None
    images_config: other_servers.MediaOptions = None
    mm_hashes: MediaHashes = None
    mm_content_hashes: MediaHashes = None
    max_dynamic_patch: other_servers.NumPatches = None
    min_dynamic_patch: other_servers.NumPatches = None
    image_max_dynamic_patch: other_servers.NumPatches = None
    video_max_dynamic_patch: other_servers.NumPatches = None
    use_audio_in_video: other_servers.WithAudio = None
    no_logs: Annotated[bool | None, accepted("the log never has a request's text")] = None
    kv_router_hint: Traced = None
    external_trace_header: Traced = None
    received_time: Annotated[float | None, accepted("it changes no reply")] = None
    # Other endpoints have these names for a constraint.
    json_schema: other_servers.SchemaParam = None
    guided_json: other_servers.SchemaParam = None
    regex: other_servers.PatternParam = None
    guided_regex: other_servers.PatternParam = None
    ebnf: other_servers.GrammarParam = None
    guided_grammar: other_servers.GrammarParam = None
    structural_tag: other_servers.TagParam = None
    guided_choice: other_servers.ChoiceParam = None
    response_format: other_servers.SchemaParam = None
    output_format: other_servers.SchemaParam = None
    structured_outputs: other_servers.ConstraintParam = None
    guided_decoding_backend: other_servers.BackendParam = None
    output_config: other_servers.HeldParam = None
    guided_whitespace_pattern: other_servers.WhiteSpace = None


class AskedTurn(NamedTuple):
    asked: SessionParams
    prompt: Prompt


class CallDefaults(NamedTuple):
    """What a call that names nothing gets, and what the engine takes."""

    params: SamplingParams
    limits: Limits
    processors_on: bool
    healing_on: bool = False  # of texts, in calls that do not say

    @property
    def to_the_end(self) -> "CallDefaults":
        """The defaults of a chat: without max_new_tokens an output may go on to the end of the context."""
        return self._replace(params=replace(self.params, max_new_tokens=MAX_NEW_TOKENS))


def make_prompts(
    body: SpecLists, contents: list[Placed], batch: bool, rids: list[str], defaults: CallDefaults, batch_rid: str = ""
) -> list[Prompt]:
    """A prompt of each content, with what is asked of it. `batch_rid`: of them all. Raises ClientError."""
    specs = read_specs(body, len(contents), batch, defaults.params, defaults.processors_on)
    places = places_of(body, contents)
    unasked, healing = defaults.healing_on, body.token_healing
    healed = {id(spec): replace(spec, token_healing=True) for spec in specs} if unasked else {}
    prompts = []
    for i, (place, content) in enumerate(contents):
        spec = specs[i]
        if spec.returns_prompt and content.embeds is not None:
            fact = f"is True, but {place} is a prompt of embeddings, which has no token ids"
            raise ClientError("return_prompt_token_ids", fact)
        if spec.token_healing and content.embeds is not None:
            at = f"token_healing[{i}]" if isinstance(healing, list) else "token_healing"
            raise ClientError(at, f"is True, but {place} is a prompt of embeddings, which has no tokens to heal")
        if unasked and content.text is not None and (healing[i] if isinstance(healing, list) else healing) is None:
            spec = healed[id(spec)]
        prompts.append(Prompt(rids[i], spec, content, batch_rid, places[i]))
    return prompts


def places_of(body: SpecLists, contents: list[Placed]) -> list[FieldPlaces]:
    """How the client wrote each prompt and what is asked of it."""
    listed, fields, found = listed_fields(body), {PARAMS: PARAMS}, []
    for i, (place, _) in enumerate(contents):
        own = fields | {name: f"{name}[{i}]" for name in listed} if listed else fields
        found.append(FieldPlaces(place, f"[{i}]" if place.endswith("]") else "", own))
    return found


# -- of a body, before its fields are read -----------------------------------------------------------------------------


def num_asked(written: dict[str, Any]) -> tuple[str, int]:
    """The field of the prompts, and how many sequences a body asks for at least. Raises ClientError for too many."""
    place = next((name for name in PROMPTS if written.get(name) is not None), "text")
    given, params = written.get(place), written.get("sampling_params")
    nested = place != "input_embeds" or (isinstance(given, list) and _is_batch_of_embeds(given))
    batch, count = False, 1
    if isinstance(given, list) and given and nested and checks.is_batch(given):
        batch, count = True, len(given)
    checks.check_count(place, count)
    if isinstance(params, list) and given:
        checks.check_length("sampling_params", len(params), count, batch)
    asked = (
        sum(map(_samples, params)) if isinstance(params, list) and len(params) == count else count * _samples(params)
    )
    checks.check_count(place, asked)
    return place, asked


def _samples(params: Any) -> int:
    """The samples of one prompt; 1 where the number is absent or wrong."""
    n = params.get("n") if params.__class__ is dict else None
    return n if n.__class__ is int and 1 <= n <= MAX_SAMPLES else 1


def _is_batch_of_embeds(given: list[Any]) -> bool:
    return bool(given and isinstance(given[0], list) and given[0] and isinstance(given[0][0], list))


# -- of a body ---------------------------------------------------------------------------------------------------------


def read_generate(body: GenerateBody, request_id: str, defaults: CallDefaults) -> tuple[list[Prompt], bool]:
    """The prompts in order, and whether the client sent a list of them."""
    given = [name for name in PROMPTS if getattr(body, name) is not None]
    if len(given) != 1:
        raise ClientError("text", "and input_ids and input_embeds: exactly one of them must be set")
    (place,) = given
    contents, batch = _contents(place, getattr(body, place), defaults.limits)
    rids = _rids(body.rid, request_id, len(contents), batch)
    batch_rid = (body.rid if isinstance(body.rid, str) else request_id) if batch else ""
    prompts = make_prompts(body, contents, batch, rids, defaults, batch_rid)
    checks.check_count(place, sum(prompt.spec.params.n for prompt in prompts))
    if isinstance(body.rid, list):
        _check_distinct(prompts)
    written = {name: value for name in FIELDS if (value := getattr(body, name)) is not None}
    if written:
        prompts = with_sources_of(prompts, read_fields(written, len(prompts), batch, defaults.limits.media))
        _check_about_media(body, prompts)
    return prompts, batch


def _check_about_media(body: GenerateBody, prompts: list[Prompt]) -> None:
    """What else the body says of its media."""
    if any(prompt.sources for prompt in prompts):
        check_options(body)
        if "video" in (body.modalities or ()) and not body.video_data:
            raise ClientError("modalities", "has 'video', but video_data is not set", "send films as video_data")


def with_sources_of(prompts: list[Prompt], sources: list[tuple[GivenMedia, ...]]) -> list[Prompt]:
    """Each prompt with its media. Raises ClientError where a prompt can have none."""
    for prompt, given in zip(prompts, sources, strict=True):
        if given and prompt.content.embeds is not None:
            fact = f"is set, but {prompt.places.prompt} is a prompt of embeddings, in which no media have a place"
            raise ClientError(given[0].place, fact, "send text or input_ids")
        if given and prompt.content.contexts:
            raise ClientError(given[0].place, "is set, but the prompt has parallel contexts, which can have no media")
    return [prompt._replace(sources=given) for prompt, given in zip(prompts, sources, strict=True)]


def read_turn(body: GenerateBody, request_id: str, defaults: CallDefaults) -> AskedTurn | None:
    """The one prompt of a session's request, its own part alone. None: no session is named. Raises ClientError.

    An end of a text that is chosen again would be in the prompt and in the output of a request that is kept.
    """
    asked = body.session_params
    if asked is None or asked == SessionParams():
        return None
    if not asked.id:
        raise ClientError("session_params.id", "is missing", "/open_session gives one")
    if body.session_id:
        raise ClientError("session_id", "is set, and so is session_params: they are two kinds of sessions", "omit it")
    for name in PROMPTS:
        given = getattr(body, name)
        if given and (_is_batch_of_embeds(given) if name == "input_embeds" else checks.is_batch(given)):
            raise ClientError(name, "is a list of prompts, must be one in a session")
    prompts, is_batch = read_generate(body, request_id, defaults._replace(healing_on=False))
    (prompt,) = prompts[:1]
    if is_batch:
        raise ClientError(prompt.places.all_prompts, "is a list of prompts, must be one in a session")
    if prompt.spec.params.n > 1:
        raise ClientError("sampling_params.n", f"is {prompt.spec.params.n}, must be 1 in a session")
    if prompt.content.embeds is not None:
        raise ClientError("input_embeds", "is set, but a session keeps token ids", "send text or input_ids")
    if prompt.spec.token_healing:
        raise ClientError("token_healing", "is True, must be false in a session, which keeps prompts as they were")
    if prompt.sources:
        raise ClientError(prompt.sources[0].place, "is set, but a session keeps token ids, not media")
    return AskedTurn(asked, prompt)


def _contents(place: str, given: Any, limits: Limits) -> tuple[list[Placed], bool]:
    if place != "input_embeds":
        checks.check_prompts(place, given)
        return checks.read_contents(place, given, limits)
    batch = _is_batch_of_embeds(given)
    checks.check_count(place, len(given) if batch else 1)
    each = checks.placed(place, given, batch)
    return [(at, Content(embeds=checks.pack_embeds(at, one, limits))) for at, one in each], batch


def named_by(body: GenerateBody) -> str | None:
    """The request's id, if the client gives it a valid one: an invalid one may be millions of characters."""
    return body.rid if isinstance(body.rid, str) and re.search(RID, body.rid) else None


def _rids(given: str | list[str] | None, request_id: str, count: int, batch: bool) -> list[str]:
    if isinstance(given, list):
        checks.check_length("rid", len(given), count, batch)
        return [_checked(f"rid[{i}]", one) for i, one in enumerate(given)]
    name = request_id if given is None else _checked("rid", given)
    return [f"{name}-{i}" for i in range(count)] if batch else [name]


def _checked(place: str, rid: str) -> str:
    if not re.search(RID, rid):
        raise ClientError(place, f"is {shown(rid)}, must be {RID_WORDS}")
    return rid


def _check_distinct(prompts: list[Prompt]) -> None:
    """Raises ClientError where two sequences would have one id."""
    seen: dict[str, int] = {}
    for i, prompt in enumerate(prompts):
        for name in map(prompt.id_of, range(prompt.spec.params.n)):
            if (first := seen.setdefault(name, i)) != i:
                fact = f"is {shown(prompt.rid)} and rid[{first}] is {shown(prompts[first].rid)}, so that two sequences"
                raise ClientError(f"rid[{i}]", f"{fact} have the id {shown(name)}: they must differ")
