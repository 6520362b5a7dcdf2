"""The bodies of OpenAI's text endpoints. Only shapes: no endpoint, no engine.

A field of type `Any` is checked elsewhere, with the schema that stands here: sampling values in ipc.params, prompts in
prompts.py, messages in the tokenizer.
"""

from typing import Annotated, Any

from msgspec import Struct

from ramet.ipc.params import MAX_SAMPLES, about
from ramet.runtime.intake.extras import MOST_TOP
from ramet.runtime.intake.fields import sampled, unbuilt
from ramet.runtime.intake.sampling_fields import SamplingFields
from ramet.runtime.intake.schemas import (
    HIDDEN_STATES,
    ID_LISTS,
    texts_or_ids,
    typed,
)

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


class SamplingBody(SamplingFields, frozen=True, kw_only=True):
    """What chat and text completions share beside what every endpoint knows that draws tokens."""

    stream_options: Annotated[
        StreamOptions | None, about("`include_usage`: a last chunk without choices tells the usage")
    ] = None
    n: Annotated[Any, sampled("n")] = None
    stop: Annotated[Any, sampled("stop")] = None
    user: Annotated[str | None, about("accepted; nothing is done with it")] = None
    metadata: Annotated[dict[str, Any] | None, about("accepted; nothing is done with it")] = None
    return_hidden_states: Annotated[
        bool | str | None,
        about('true: of every token that is read; "last": of the last one', enum=HIDDEN_STATES),
    ] = None
    response_format: Annotated[
        Any, unbuilt('a JSON schema that the output keeps to; {"type": "text"} is taken', anyOf=FORMATS)
    ] = None
    structured_outputs: Annotated[dict[str, Any] | None, unbuilt("vLLM's name for what the output keeps to")] = None
    guided_json: Annotated[str | dict[str, Any] | None, unbuilt("the same, a JSON schema")] = None
    guided_regex: Annotated[str | None, unbuilt("the same, a pattern")] = None
    guided_choice: Annotated[list[str] | None, unbuilt("the same, some texts")] = None
    guided_grammar: Annotated[str | None, unbuilt("the same, a grammar")] = None


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


class DetokenizeBody(Struct, frozen=True, kw_only=True):
    """/v1/detokenize."""

    tokens: Annotated[Any, about("token ids, or a list of such lists", **ID_LISTS)]
    model: str | None = None
    skip_special_tokens: bool = True
