"""OpenAI's and Anthropic's fields to sampling parameters, and to what is asked beside them.

Decides names only: what is valid ipc.params and extras.py say. Errors name the field that the client wrote.
"""

from collections.abc import Mapping
from typing import Any

from ramet.ipc.params import CHECKS, SamplingParams, parse, shown
from ramet.ipc.spec import LogprobSpec, RequestSpec
from ramet.runtime.errors import ClientError
from ramet.runtime.intake import prompts
from ramet.runtime.intake.extras import hidden_mode, in_int32, namespace_of, processor_name
from ramet.runtime.intake.sampling_fields import SamplingFields

# ours -> what clients call it; of several the first that is set counts
NAMES: dict[str, tuple[str, ...]] = {
    "max_new_tokens": ("max_completion_tokens", "max_tokens", "max_output_tokens"),
    "min_new_tokens": ("min_tokens",),
    "sampling_seed": ("sampling_seed", "seed"),
    "stop": ("stop", "stop_sequences"),
}
SAME = (
    "n", "temperature", "top_p", "stop_token_ids", "stop_regex", "top_k", "min_p", "frequency_penalty",
    "presence_penalty", "repetition_penalty", "logit_bias", "ignore_eos", "skip_special_tokens",
    "spaces_between_special_tokens", "no_stop_trim", "json_schema", "regex", "ebnf", "structural_tag", "custom_params",
)  # fmt: skip
UNBUILT: dict[str, tuple[Any, ...]] = {
    "grammar_backend": (), "lora_path": ("",), "structured_outputs": (), "guided_json": (), "guided_regex": (),
    "guided_choice": (), "guided_grammar": (),
}  # fmt: skip


def read_params(
    fields: Mapping[str, Any], defaults: SamplingParams, form: Any = None, form_place: str = "response_format"
) -> SamplingParams:
    """`fields`: a body's; `form` its response format. Raises ClientError under the name that the client used."""
    prompts.refuse_unbuilt({name: fields.get(name) for name in UNBUILT}, UNBUILT)
    given = {name: fields.get(name) for name in SAME}
    for ours, names in NAMES.items():
        said = [name for name in names if fields.get(name) is not None]
        given[ours] = fields[said[0]] if said else None
        for name in said[1:]:
            _check_unused(ours, name, fields[name])
    schema = _schema(form, form_place)
    if schema is not None:
        given["json_schema"] = schema
    try:
        return parse(given, defaults, "")
    except ClientError as error:
        if schema is not None and error.place == ".json_schema":
            fact = f"is {shown(form)}, but this feature is not built yet"
            raise ClientError(form_place, fact, error.hint) from None
        raise _as_written(error, fields) from None


def _check_unused(ours: str, name: str, value: Any) -> None:
    """A value that another one goes before must be valid as well."""
    CHECKS[ours].read(name, value)


def read_spec(
    body: SamplingFields,
    params: SamplingParams,
    processors_on: bool,
    logprobs: LogprobSpec | None = None,
    hidden: bool | str | None = None,
) -> RequestSpec:
    """What a body asks for; the same of every prompt. `processors_on`: --enable-custom-logit-processor."""
    return RequestSpec(
        params,
        logprobs,
        in_int32("priority", body.priority or 0),
        namespace_of(body.cache_salt or "", body.extra_key or ""),
        processor_name(body.custom_logit_processor or "", processors_on),
        hidden_mode(hidden),
    )


def _schema(form: Any, place: str) -> Any:
    """What the output must keep to; None for free text. A schema stands in `json_schema` or beside the type."""
    match form:
        case None | {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return {"type": "object"}
        case {"type": "json_schema", "json_schema": {"schema": dict() as schema}}:
            return schema
        case {"type": "json_schema", "schema": dict() as schema}:
            return schema
        case {"type": "json_schema"}:
            raise ClientError(place, f"is {shown(form)}, must have a schema, which is an object")
        case _:
            kind = form.get("type") if isinstance(form, dict) else form
            raise ClientError(f"{place}.type", f"is {shown(kind)}, must be text, json_object or json_schema")


def _as_written(error: ClientError, fields: Mapping[str, Any]) -> ClientError:
    """The error under the name that the client used."""
    place, fact = error.place.removeprefix("."), error.fact
    for ours, names in NAMES.items():
        known = [name for name in names if name in fields]
        theirs = next((name for name in known if fields[name] is not None), known[0] if known else ours)
        if place == ours or place.startswith(ours + "["):
            place = theirs + place.removeprefix(ours)
        if ours == "max_new_tokens":
            fact = fact.replace(ours, theirs)
    return ClientError(place, fact, error.hint)
