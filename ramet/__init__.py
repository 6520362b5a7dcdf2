"""ramet: a language for programs that call a language model many times, and the runtime that serves them fast.

Public names load on first use, so that importing the package costs nothing and never torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ramet.version import __version__

if TYPE_CHECKING:
    from ramet.runtime.config import Args, CacheArgs, ExecArgs, ModelArgs, ScheduleArgs, ServeArgs
    from ramet.runtime.errors import ClientError, ConfigError, EngineClosed, EngineFailed, ServerError
    from ramet.runtime.llm import LLM

__all__ = [
    "LLM",
    "Args",
    "CacheArgs",
    "ClientError",
    "ConfigError",
    "EngineClosed",
    "EngineFailed",
    "ExecArgs",
    "ModelArgs",
    "ScheduleArgs",
    "ServeArgs",
    "ServerError",
    "__version__",
]

_HOMES = (
    dict.fromkeys(("Args", "CacheArgs", "ExecArgs", "ModelArgs", "ScheduleArgs", "ServeArgs"), "ramet.runtime.config")
    | dict.fromkeys(
        ("ClientError", "ConfigError", "EngineClosed", "EngineFailed", "ServerError"), "ramet.runtime.errors"
    )
    | {"LLM": "ramet.runtime.llm"}
)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ramet' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
