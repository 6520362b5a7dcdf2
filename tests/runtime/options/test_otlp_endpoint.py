"""What --otlp-traces-endpoint may be, and what is said where packages are missing."""

import re
import subprocess
import sys

import pytest

from ramet.runtime.errors import ConfigError
from ramet.runtime.options.otlp_endpoint import GRPC, HTTP, OtlpEndpoint, read_endpoint

HIDE = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "opentelemetry":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Hidden())
from ramet.runtime.config import make_args, resolve
from ramet.runtime.errors import ConfigError
try:
    resolve(make_args(otlp_traces_endpoint="http://localhost:4318"))
except ConfigError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://localhost:4318", "http://localhost:4318/v1/traces"),
        ("http://localhost:4318/", "http://localhost:4318/v1/traces"),
        ("https://collector/v1/traces", "https://collector/v1/traces"),
        ("http://collector/own/path", "http://collector/own/path"),
    ],
)
def test_a_path_is_added_where_there_is_none(given: str, url: str) -> None:
    assert read_endpoint(given, {}) == OtlpEndpoint(url, HTTP)


@pytest.mark.parametrize(
    "given",
    ["localhost:4318", "collector", "grpc://collector:4317", "http://", "http://[::1", "http://127.0.0.1:99999",
     "http://a:x", "http://:4318", "http://a:0"],
)  # fmt: skip
def test_what_is_no_address_is_refused(given: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"--otlp-traces-endpoint is {given!r}")):
        read_endpoint(given, {})


def test_the_protocol_comes_from_the_environment() -> None:
    with pytest.raises(ConfigError, match="opentelemetry-exporter-otlp-proto-grpc"):
        read_endpoint("http://localhost:4317", {"OTEL_EXPORTER_OTLP_PROTOCOL": GRPC})
    with pytest.raises(ConfigError, match="'http/json', must be one of http/protobuf, grpc"):
        read_endpoint("http://localhost:4317", {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"})
    both = {"OTEL_EXPORTER_OTLP_PROTOCOL": GRPC, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": HTTP}
    assert read_endpoint("http://localhost:4318", both).protocol == HTTP


def test_without_its_packages_the_start_says_what_to_install() -> None:
    out = subprocess.run([sys.executable, "-c", HIDE], capture_output=True, text=True, check=True).stdout
    assert '--otlp-traces-endpoint needs packages that are not installed: pip install "ramet[otel]"' in out
