"""RequestSpecs for tests: fields of the spec and of its sampling parameters side by side."""

from typing import Any

from ramet.ipc.params import SamplingParams
from ramet.ipc.spec import RequestSpec


def make_spec(**asked: Any) -> RequestSpec:
    """A field that RequestSpec has is its own, every other one is a sampling parameter."""
    own = {name: asked.pop(name) for name in RequestSpec.__struct_fields__ if name in asked}
    return RequestSpec(own.pop("params", None) or SamplingParams(**asked), **own)
