"""The fields of every body whose endpoint draws tokens: sampling, then what only this server and SGLang know.

A field of type `Any` is checked in ipc.params, whose schema stands here.
"""

from typing import Annotated, Any

from msgspec import Struct

from ramet.ipc.params import about
from ramet.runtime.intake.fields import sampled, unbuilt
from ramet.runtime.intake.schemas import IN_INT32, KEY, RID, STRING_OR_NULL


class SamplingFields(Struct, frozen=True, kw_only=True):
    model: Annotated[str | None, about("the served model, `default`, or nothing")] = None
    stream: Annotated[bool | None, about("server-sent events as tokens come")] = None
    temperature: Annotated[Any, sampled("temperature")] = None
    top_p: Annotated[Any, sampled("top_p")] = None
    seed: Annotated[Any, sampled("sampling_seed")] = None
    frequency_penalty: Annotated[Any, sampled("frequency_penalty")] = None
    presence_penalty: Annotated[Any, sampled("presence_penalty")] = None
    logit_bias: Annotated[Any, sampled("logit_bias")] = None
    top_k: Annotated[Any, sampled("top_k")] = None
    min_p: Annotated[Any, sampled("min_p")] = None
    repetition_penalty: Annotated[Any, sampled("repetition_penalty")] = None
    min_tokens: Annotated[Any, sampled("min_new_tokens")] = None
    sampling_seed: Annotated[Any, sampled("sampling_seed", "goes before `seed`")] = None
    stop_token_ids: Annotated[Any, sampled("stop_token_ids")] = None
    stop_regex: Annotated[Any, sampled("stop_regex")] = None
    ignore_eos: Annotated[Any, sampled("ignore_eos")] = None
    skip_special_tokens: Annotated[Any, sampled("skip_special_tokens")] = None
    spaces_between_special_tokens: Annotated[Any, sampled("spaces_between_special_tokens")] = None
    no_stop_trim: Annotated[Any, sampled("no_stop_trim")] = None
    custom_logit_processor: Annotated[
        str | None, about("name of a logit processor; needs `--enable-custom-logit-processor`")
    ] = None
    custom_params: Annotated[Any, sampled("custom_params")] = None
    rid: Annotated[
        str | None, about("name of the request, for /abort_request; the reply's id if it is absent", **RID)
    ] = None
    priority: Annotated[
        int | None, about("the larger goes before the smaller, whatever the queue's policy says", **IN_INT32)
    ] = None
    cache_salt: Annotated[str | None, about("prompts share cached prefixes only with those of their salt", **KEY)] = (
        None
    )
    extra_key: Annotated[str | None, about("the same, for a key that is no secret", **KEY)] = None
    json_schema: Annotated[
        Any, unbuilt("a JSON schema that the output keeps to", type=["string", "object", "null"])
    ] = None
    regex: Annotated[Any, unbuilt("a pattern that the output matches", **STRING_OR_NULL)] = None
    ebnf: Annotated[Any, unbuilt("a grammar that the output keeps to", **STRING_OR_NULL)] = None
    structural_tag: Annotated[Any, unbuilt("schemas between tags of the output", **STRING_OR_NULL)] = None
    grammar_backend: Annotated[str | None, unbuilt("which library keeps the output to its constraint")] = None
    lora_path: Annotated[str | list[str | None] | None, unbuilt("an adapter")] = None
