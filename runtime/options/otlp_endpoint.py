"""Where spans go: --otlp-traces-endpoint, with the protocol of OpenTelemetry's environment variables."""

import os
from collections.abc import Mapping
from importlib.util import find_spec
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from ramet.runtime.errors import ConfigError

HTTP, GRPC = "http/protobuf", "grpc"
PACKAGES = {
    HTTP: ("opentelemetry.exporter.otlp.proto.http", 'pip install "ramet[otel]"'),
    GRPC: (
        "opentelemetry.exporter.otlp.proto.grpc",
        'pip install "ramet[otel]" opentelemetry-exporter-otlp-proto-grpc',
    ),
}
VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


class OtlpEndpoint(NamedTuple):
    url: str
    protocol: str


def read_endpoint(given: str, environment: Mapping[str, str] = os.environ) -> OtlpEndpoint:
    """Raises ConfigError where it is no address, or what it needs is not installed."""
    protocol = next((value for name in VARIABLES if (value := environment.get(name))), HTTP)
    if protocol not in PACKAGES:
        raise ConfigError(f"{VARIABLES[1]} is {protocol!r}, must be one of {', '.join(PACKAGES)}")
    url = _parsed(given)
    if url is None or url.scheme not in ("http", "https"):
        fact = f"--otlp-traces-endpoint is {given!r}, must be an address as http://localhost:4318/v1/traces"
        raise ConfigError(fact)
    if protocol == HTTP and url.path in ("", "/"):
        url = url._replace(path="/v1/traces")
    package, hint = PACKAGES[protocol]
    if not _is_installed("opentelemetry.sdk") or not _is_installed(package):
        raise ConfigError(f"--otlp-traces-endpoint needs packages that are not installed: {hint}")
    return OtlpEndpoint(url.geturl(), protocol)


def _parsed(given: str) -> SplitResult | None:
    """None: it names no host, or a port that is none."""
    try:
        url = urlsplit(given)
        return url if url.hostname and url.port != 0 else None
    except ValueError:
        return None


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # of a package above it
        return False
