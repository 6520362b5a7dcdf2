"""The replies of health checks and operators' endpoints. That of /generate is in runtime/reply.py."""

from typing import Any, Literal

from msgspec import Struct

from ramet.runtime.reply import WEIGHT_VERSION, Reply


class Status(Reply, frozen=True):
    status: Literal["ok"] = "ok"


class ModelInfo(Reply, frozen=True, kw_only=True):
    model_path: str
    tokenizer_path: str
    served_model_name: str
    is_generation: bool = True
    preferred_sampling_params: None = None
    weight_version: str = WEIGHT_VERSION
    context_length: int
    vocab_size: int
    hidden_size: int


class ServerInfo(Struct, frozen=True):
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


class Flushed(Reply, frozen=True):
    success: bool = True
    message: str = "Cache flushed."


class AbortReply(Reply, frozen=True):
    """How many sequences are ended."""

    aborted: int


class RequestState(Struct, frozen=True):
    """The first sequence's keys, which depend on its state, and all sequences."""

    id: str
    state: str
    sequences: list[dict[str, Any]]
