"""Not a fake: the kernels for `parametrize`. A test of the compiled ones is skipped where there is no compiler."""

import pytest

from ramet.kernels import reference
from ramet.kernels.cpu.ops import CpuOps
from ramet.runtime.engine.devices.cpu_kernels import compiled_ops

_WITHOUT = "no C++ compiler here"
_ops = compiled_ops(2)
KERNELS = [
    pytest.param(reference, id="reference"),
    pytest.param(_ops, id="compiled", marks=pytest.mark.skipif(_ops is None, reason=_WITHOUT)),
]


def compiled_kernels() -> CpuOps:
    """For a test that needs them; skips it."""
    if _ops is None:
        pytest.skip(_WITHOUT)
    return _ops
