"""Which backend a run gets: its own, that of the program around it, or the default one."""

import sys
from typing import Any

from ramet.frontend.backends.base import Backend
from ramet.frontend.errors import ProgramError
from ramet.frontend.loop import check_wait
from ramet.ipc.waits import waited

_default: list[Any] = []
_of_urls: dict[str, Backend] = {}  # runs that name a server by its URL share its connections


def set_default_backend(backend: Any) -> None:
    """Of runs that name none: a Backend, an LLM, or the URL of a server."""
    _default[:] = [as_backend(backend)]


def backend_of(given: Any, outer: Backend | None) -> Backend:
    """Raises ProgramError where there is none."""
    if given is not None:
        return as_backend(given)
    if outer is not None:
        return outer
    if not _default:
        raise ProgramError("no backend is set: set_default_backend(Endpoint(URL)), or run(backend=...)")
    backend: Backend = _default[0]
    return backend


def as_backend(value: Any) -> Backend:
    """Raises TypeError for what is none."""
    if isinstance(value, Backend):
        return value
    if isinstance(value, str):
        from ramet.frontend.backends.endpoint import Endpoint

        if value not in _of_urls:
            _of_urls[value] = Endpoint(value)
        return _of_urls[value]
    if "ramet.runtime.llm" in sys.modules:  # else it cannot be an LLM
        from ramet.frontend.backends.inprocess import of_llm

        if (found := of_llm(value)) is not None:
            return found
    raise TypeError(
        f"{type(value).__name__} is not a backend: it must be an Endpoint, an LLM, an API, Mock, Replay or a URL"
    )


def get_server_info(backend: Any = None) -> dict[str, Any]:
    """What the server of a backend says of itself, or that of the default one. Raises Unsupported and BackendError."""
    chosen = backend_of(backend, None)
    check_wait(chosen.loop)
    return waited(chosen.loop.start(chosen.server_info()))


def flush_cache(backend: Any = None) -> None:
    """Forget every cached prefix of a backend, or of the default one."""
    chosen = backend_of(backend, None)
    check_wait(chosen.loop)
    waited(chosen.loop.start(chosen.flush_cache()))
