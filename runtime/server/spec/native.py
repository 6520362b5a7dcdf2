"""What /generate and the endpoints of whoever runs the server reply. Decides nothing, as shapes.py."""

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from ramet.runtime.server.spec.shapes import Shape


class Stopped(Shape, tag_field="type", tag="stop"):
    """`matched`: the token, text or pattern that stopped it."""

    matched: int | str | None


class RanOut(Shape, tag_field="type", tag="length"):
    length: int


class Aborted(Shape, tag_field="type", tag="abort"):
    message: str
    status_code: int | None
    err_type: str


Triple = tuple[float | None, int, str | None]  # log-probability, token id, text


Triples = list[list[Triple] | None]


class MetaInfo(Shape):
    """Log-probabilities and hidden states are there if they were asked for; `e2e_latency` (s) at the end."""

    id: str
    finish_reason: Stopped | RanOut | Aborted | None
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    num_retractions: int
    weight_version: str
    e2e_latency: float | UnsetType = UNSET
    input_token_logprobs: list[Triple] | UnsetType = UNSET
    output_token_logprobs: list[Triple] | UnsetType = UNSET
    input_top_logprobs: Triples | UnsetType = UNSET
    output_top_logprobs: Triples | UnsetType = UNSET
    input_token_ids_logprobs: Triples | UnsetType = UNSET
    output_token_ids_logprobs: Triples | UnsetType = UNSET
    hidden_states: list[Any] | UnsetType = UNSET


class GenerateReply(Shape):
    """A batch, or n > 1, gets a list of these."""

    text: str
    output_ids: list[int]
    meta_info: MetaInfo
    index: int | UnsetType = UNSET


class Status(Shape):
    status: Literal["ok"]


class ModelInfo(Shape):
    model_path: str
    tokenizer_path: str
    served_model_name: str
    is_generation: bool
    preferred_sampling_params: None
    weight_version: str
    context_length: int
    vocab_size: int
    hidden_size: int


class ServerInfo(Struct, kw_only=True):
    """Beside these every option of `ramet serve` by its name."""

    model_path: str
    tokenizer_path: str
    served_model_name: str
    context_length: int
    max_total_num_tokens: int
    max_running_requests: int
    vocab_size: int
    sampling_defaults_resolved: dict[str, Any]
    version: str
    started: int
    internal_states: list[dict[str, Any]]


class Flushed(Shape):
    success: bool
    message: str


class AbortReply(Shape):
    """How many sequences were told to end."""

    aborted: int


class RequestState(Struct, kw_only=True):
    """The first sequence's keys, which depend on its state, and all sequences."""

    id: str
    state: str
    sequences: list[dict[str, Any]]
