"""ramet: a language for programs that call a language model many times, and the runtime that serves them fast.

Public names load on first use, so that importing the package costs nothing and never torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ramet.version import __version__

if TYPE_CHECKING:
    from ramet.frontend.api import (
        assistant,
        assistant_begin,
        assistant_end,
        audio,
        gen,
        gen_int,
        gen_string,
        image,
        movable,
        select,
        separate_reasoning,
        system,
        system_begin,
        system_end,
        tool,
        tool_begin,
        tool_end,
        user,
        user_begin,
        user_end,
        video,
    )
    from ramet.frontend.backends.anthropic import Anthropic
    from ramet.frontend.backends.chosen import flush_cache, get_server_info, set_default_backend
    from ramet.frontend.backends.endpoint import Endpoint
    from ramet.frontend.backends.endpoint import Endpoint as RuntimeEndpoint
    from ramet.frontend.backends.gemini import Gemini
    from ramet.frontend.backends.litellm import LiteLLM
    from ramet.frontend.backends.mock import Mock
    from ramet.frontend.backends.openai import OpenAI
    from ramet.frontend.backends.replay import Replay
    from ramet.frontend.choices import (
        exact_sequence,
        greedy_token_selection,
        token_length_normalized,
        unconditional_likelihood_normalized,
    )
    from ramet.frontend.errors import (
        BackendError,
        BatchFailed,
        CallFailed,
        Cancelled,
        ProgramError,
        RunTimeout,
        Unsupported,
    )
    from ramet.frontend.graph import Graph
    from ramet.frontend.program import Compiled, Program, function
    from ramet.frontend.state import State
    from ramet.runtime.config import Args, CacheArgs, ExecArgs, ModelArgs, ScheduleArgs, ServeArgs
    from ramet.runtime.errors import ClientError, ConfigError, EngineClosed, EngineFailed, ServerError
    from ramet.runtime.llm import LLM

_HOMES = {
    name: module
    for module, names in {
        "ramet.frontend.api": (
            "assistant", "assistant_begin", "assistant_end", "audio", "gen", "gen_int", "gen_string", "image",
            "movable", "select", "separate_reasoning", "system", "system_begin", "system_end", "tool", "tool_begin",
            "tool_end", "user", "user_begin", "user_end", "video",
        ),
        "ramet.frontend.backends.anthropic": ("Anthropic",),
        "ramet.frontend.backends.chosen": ("flush_cache", "get_server_info", "set_default_backend"),
        "ramet.frontend.backends.endpoint": ("Endpoint",),
        "ramet.frontend.backends.gemini": ("Gemini",),
        "ramet.frontend.backends.litellm": ("LiteLLM",),
        "ramet.frontend.backends.mock": ("Mock",),
        "ramet.frontend.backends.openai": ("OpenAI",),
        "ramet.frontend.backends.replay": ("Replay",),
        "ramet.frontend.choices": (
            "exact_sequence", "greedy_token_selection", "token_length_normalized",
            "unconditional_likelihood_normalized",
        ),
        "ramet.frontend.errors": (
            "BackendError", "BatchFailed", "CallFailed", "Cancelled", "ProgramError", "RunTimeout", "Unsupported",
        ),
        "ramet.frontend.graph": ("Graph",),
        "ramet.frontend.program": ("Compiled", "Program", "function"),
        "ramet.frontend.state": ("State",),
        "ramet.runtime.config": ("Args", "CacheArgs", "ExecArgs", "ModelArgs", "ScheduleArgs", "ServeArgs"),
        "ramet.runtime.errors": ("ClientError", "ConfigError", "EngineClosed", "EngineFailed", "ServerError"),
        "ramet.runtime.llm": ("LLM",),
    }.items()
    for name in names
}  # fmt: skip
_ALIASES = {"RuntimeEndpoint": "Endpoint"}  # of SGLang's programs
_OTHERS = {"Runtime": "LLM", "Engine": "LLM", "VertexAI": "Gemini"}  # names that SGLang's programs use otherwise

__all__ = [
    "LLM",
    "Anthropic",
    "Args",
    "BackendError",
    "BatchFailed",
    "CacheArgs",
    "CallFailed",
    "Cancelled",
    "ClientError",
    "Compiled",
    "ConfigError",
    "Endpoint",
    "EngineClosed",
    "EngineFailed",
    "ExecArgs",
    "Gemini",
    "Graph",
    "LiteLLM",
    "Mock",
    "ModelArgs",
    "OpenAI",
    "Program",
    "ProgramError",
    "Replay",
    "RunTimeout",
    "RuntimeEndpoint",
    "ScheduleArgs",
    "ServeArgs",
    "ServerError",
    "State",
    "Unsupported",
    "__version__",
    "assistant",
    "assistant_begin",
    "assistant_end",
    "audio",
    "exact_sequence",
    "flush_cache",
    "function",
    "gen",
    "gen_int",
    "gen_string",
    "get_server_info",
    "greedy_token_selection",
    "image",
    "movable",
    "select",
    "separate_reasoning",
    "set_default_backend",
    "system",
    "system_begin",
    "system_end",
    "token_length_normalized",
    "tool",
    "tool_begin",
    "tool_end",
    "unconditional_likelihood_normalized",
    "user",
    "user_begin",
    "user_end",
    "video",
]


def __getattr__(name: str) -> Any:
    name = _ALIASES.get(name, name)
    if name not in _HOMES:
        hint = f"; here it is {_OTHERS[name]}" if name in _OTHERS else ""
        raise AttributeError(f"module 'ramet' has no attribute {name!r}{hint}")
    try:
        return getattr(import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "ramet":
            raise
        return _missing(name, str(error.name))


def _missing(name: str, package: str) -> type:
    """In its place where the language alone is installed: it may be imported, as by `from ramet import *`, not made."""

    def make(*_: Any, **__: Any) -> Any:
        raise ImportError(f'ramet.{name} needs {package}: pip install "ramet[serve]"', name=package)

    return type(name, (), {"__new__": make, "__module__": "ramet"})


def __dir__() -> list[str]:
    return __all__
