"""The bodies of the OpenAI endpoints and the parts their replies share. Only shapes: no endpoint, no engine.

`Any` stands where another place checks: sampling values in ipc.params, prompts in prompts.py.
"""

from collections.abc import Sequence as Many
from typing import Any

from msgspec import Struct

from ramet.ipc.messages import Finish
from ramet.runtime.server.submission import Sequence


class StreamOptions(Struct, frozen=True, kw_only=True):
    include_usage: bool | None = None


class CompletionBody(Struct, frozen=True, kw_only=True):
    """/v1/completions; the second half is what only this server (and SGLang) knows."""

    prompt: str | list[Any] | None = None
    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    echo: bool | None = None
    n: Any = None
    best_of: int | None = None
    max_tokens: Any = None
    temperature: Any = None
    top_p: Any = None
    stop: Any = None
    seed: Any = None
    frequency_penalty: Any = None
    presence_penalty: Any = None
    logit_bias: Any = None
    suffix: str | None = None
    logprobs: int | bool | None = None
    response_format: dict[str, Any] | None = None
    rid: str | None = None
    min_tokens: Any = None
    stop_token_ids: Any = None
    stop_regex: Any = None
    top_k: Any = None
    min_p: Any = None
    repetition_penalty: Any = None
    sampling_seed: Any = None
    ignore_eos: Any = None
    skip_special_tokens: Any = None
    spaces_between_special_tokens: Any = None
    no_stop_trim: Any = None
    json_schema: Any = None
    regex: Any = None
    ebnf: Any = None
    structural_tag: Any = None
    custom_params: Any = None
    custom_logit_processor: str | None = None
    grammar_backend: str | None = None
    lora_path: str | list[str | None] | None = None
    cache_salt: str | None = None
    extra_key: str | None = None
    priority: int | None = None
    return_hidden_states: bool | str | None = None


class TokenizeBody(Struct, frozen=True, kw_only=True):
    prompt: str | list[str] | None = None
    model: str | None = None
    add_special_tokens: bool = True


class DetokenizeBody(Struct, frozen=True, kw_only=True):
    tokens: list[Any] | None = None
    model: str | None = None
    skip_special_tokens: bool = True


def usage(sequences: Many[Sequence]) -> dict[str, Any]:
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
    }


def ending(finish: Finish) -> dict[str, Any]:
    """How a choice ended, as its keys."""
    return {"finish_reason": finish.kind, "matched_stop": finish.matched}
