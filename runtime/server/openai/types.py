"""The bodies of OpenAI's text endpoints and the parts their replies share. Only shapes: no endpoint, no engine.

A field of type `Any` is checked elsewhere, with the schema that stands here: sampling values in ipc.params, prompts in
prompts.py, messages in the tokenizer.
"""

from collections.abc import Sequence as Many
from typing import Annotated, Any

from msgspec import Struct

from ramet.ipc.messages import Finish
from ramet.ipc.params import MAX_SAMPLES, about
from ramet.runtime.server.extras import MOST_TOP
from ramet.runtime.server.fields import sampled, unbuilt
from ramet.runtime.server.spec.schemas import (
    HIDDEN_STATES,
    ID_LISTS,
    IN_INT32,
    KEY,
    MESSAGE,
    RID,
    STRING_OR_NULL,
    texts_or_ids,
    typed,
)
from ramet.runtime.server.submission import Sequence

_SCHEMA_FORMAT = {
    "type": "object",
    "required": ["type", "json_schema"],
    "properties": {
        "type": {"const": "json_schema"},
        "json_schema": {"type": "object", "required": ["schema"], "properties": {"schema": {"type": "object"}}},
    },
}
FORMATS = [typed("text", "json_object"), _SCHEMA_FORMAT, {"type": "null"}]


class StreamOptions(Struct, frozen=True, kw_only=True):
    include_usage: bool | None = None


class SamplingBody(Struct, frozen=True, kw_only=True):
    """What chat and text completions share: OpenAI's parameters, then what only this server and SGLang know."""

    model: Annotated[str | None, about("the served model, `default`, or nothing")] = None
    stream: Annotated[bool | None, about("server-sent events as tokens come")] = None
    stream_options: Annotated[
        StreamOptions | None, about("`include_usage`: a last chunk without choices tells the usage")
    ] = None
    n: Annotated[Any, sampled("n")] = None
    temperature: Annotated[Any, sampled("temperature")] = None
    top_p: Annotated[Any, sampled("top_p")] = None
    stop: Annotated[Any, sampled("stop")] = None
    seed: Annotated[Any, sampled("sampling_seed")] = None
    frequency_penalty: Annotated[Any, sampled("frequency_penalty")] = None
    presence_penalty: Annotated[Any, sampled("presence_penalty")] = None
    logit_bias: Annotated[Any, sampled("logit_bias")] = None
    user: Annotated[str | None, about("accepted; nothing is done with it")] = None
    metadata: Annotated[dict[str, Any] | None, about("accepted; nothing is done with it")] = None
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
    return_hidden_states: Annotated[
        bool | str | None,
        about('true: of every token that is read; "last": of the last one', enum=HIDDEN_STATES),
    ] = None
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
    response_format: Annotated[
        Any, unbuilt('a JSON schema that the output keeps to; {"type": "text"} is taken', anyOf=FORMATS)
    ] = None
    json_schema: Annotated[
        Any, unbuilt("a JSON schema that the output keeps to", type=["string", "object", "null"])
    ] = None
    regex: Annotated[Any, unbuilt("a pattern that the output matches", **STRING_OR_NULL)] = None
    ebnf: Annotated[Any, unbuilt("a grammar that the output keeps to", **STRING_OR_NULL)] = None
    structural_tag: Annotated[Any, unbuilt("schemas between tags of the output", **STRING_OR_NULL)] = None
    grammar_backend: Annotated[str | None, unbuilt("which library keeps the output to its constraint")] = None
    lora_path: Annotated[str | list[str | None] | None, unbuilt("an adapter")] = None


class CompletionBody(SamplingBody, frozen=True, kw_only=True):
    """/v1/completions."""

    prompt: Annotated[Any, about("a text, token ids, or a list of either", **texts_or_ids())]
    max_tokens: Annotated[Any, sampled("max_new_tokens", "16 if it is absent")] = None
    echo: Annotated[bool | None, about("the prompt goes before the output")] = None
    best_of: Annotated[
        int | None,
        about(
            "so many outputs are made, and the n whose tokens are likeliest on average are told",
            minimum=1,
            maximum=MAX_SAMPLES,
        ),
    ] = None
    logprobs: Annotated[
        int | bool | None,
        about(
            "so many best tokens at each place; with `echo` those of the prompt as well", minimum=0, maximum=MOST_TOP
        ),
    ] = None
    suffix: Annotated[str | None, unbuilt("what comes after the output")] = None


class TokenizeBody(Struct, frozen=True, kw_only=True):
    """/v1/tokenize."""

    prompt: Annotated[str | list[str] | None, about("a text, or a list of them", minItems=1)] = None
    messages: Annotated[
        list[dict[str, Any]] | None, about("a chat, in the place of a prompt", items=MESSAGE, minItems=1)
    ] = None
    tools: Annotated[list[dict[str, Any]] | None, about("what the chat offers")] = None
    model: str | None = None
    add_special_tokens: Annotated[
        bool, about("as the tokenizer does before a prompt; a chat's template writes its own")
    ] = True


class DetokenizeBody(Struct, frozen=True, kw_only=True):
    """/v1/detokenize."""

    tokens: Annotated[Any, about("token ids, or a list of such lists", **ID_LISTS)]
    model: str | None = None
    skip_special_tokens: bool = True


def usage(sequences: Many[Sequence], reasoning_tokens: int = 0) -> dict[str, Any]:
    """Prompts count once, whatever n: their cached tokens are those of the first sample."""
    prompt_tokens = cached_tokens = 0
    counted: set[int] = set()
    for sequence in sequences:
        if id(sequence.prompt) not in counted:
            counted.add(id(sequence.prompt))
            prompt_tokens += sequence.num_prompt
            cached_tokens += sequence.num_cached
    completion_tokens = sum(sequence.num_generated for sequence in sequences)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": reasoning_tokens},
    }


def ending(finish: Finish) -> dict[str, Any]:
    """How a choice ended, as its keys."""
    return {"finish_reason": finish.kind, "matched_stop": finish.matched}
