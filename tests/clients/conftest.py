"""Real clients against a real server with the bundled model: `make test-clients`, in a venv of their own.

Where a client is missing nothing here is collected. The clients are told not to call home before they are imported, and
a run in which one asked for the address of another machine fails.
"""

import importlib.util
import os
import socket
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
from live import Live

CLIENTS = ("openai", "anthropic", "langchain_openai", "litellm", "dspy", "instructor")
collect_ignore_glob = [] if all(importlib.util.find_spec(name) for name in CLIENTS) else ["test_*.py"]

_caches = tempfile.TemporaryDirectory(prefix="ramet-clients-")
os.environ.update(
    LITELLM_LOCAL_MODEL_COST_MAP="True",  # its table of prices comes from the wheel, not from the network
    LITELLM_TELEMETRY="False",
    LANGSMITH_TRACING="false",
    LANGCHAIN_TRACING_V2="false",
    OTEL_SDK_DISABLED="true",
    DO_NOT_TRACK="1",
    DSPY_CACHEDIR=_caches.name,
)


def pytest_configure(config: pytest.Config) -> None:
    for seen in ("Accessing the 'model_", "Item 'summary' on TypedDict"):  # LiteLLM's own use of pydantic
        config.addinivalue_line("filterwarnings", "ignore:" + seen)


@pytest.fixture(scope="session", autouse=True)
def only_loopback() -> Iterator[None]:
    """Names of other machines are not resolved, and asking for one fails the run."""
    asked: list[object] = []
    resolve = socket.getaddrinfo

    def resolve_loopback(host: Any, *rest: Any, **named: Any) -> Any:
        if host not in ("127.0.0.1", "localhost", b"127.0.0.1", b"localhost"):
            asked.append(host)
            raise socket.gaierror(socket.EAI_NONAME, f"{host!r} is not on loopback")
        return resolve(host, *rest, **named)

    socket.getaddrinfo = resolve_loopback
    yield
    socket.getaddrinfo = resolve
    assert not asked


@pytest.fixture(scope="session")
def server() -> Iterator[Live]:
    with Live() as live:
        yield live


@pytest.fixture(scope="session")
def guarded() -> Iterator[Live]:
    """A server that wants a key."""
    with Live(api_key="right") as live:
        yield live
