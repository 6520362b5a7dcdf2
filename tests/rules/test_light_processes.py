"""Server, tokenizer and detokenizer import neither torch nor transformers; nothing imports them by accident."""

import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "triton", "numpy", "opentelemetry")
SHOW = "import sys, {module}; print([m for m in {heavy!r} if m in sys.modules])"


@pytest.mark.parametrize(
    "module",
    [
        "ramet",
        "ramet.frontend.program",
        "ramet.frontend.backends.endpoint",
        "ramet.frontend.backends.mock",
        "ramet.frontend.backends.openai",
        "ramet.frontend.backends.table",
        "ramet.ipc.channel",
        "ramet.runtime.processes.child",
        "ramet.runtime.processes.launch",
        "ramet.runtime.flags",
        "ramet.runtime.terminal.chat",
        "ramet.runtime.server.process",
        "ramet.runtime.text.tokenizer_process",
        "ramet.runtime.text.detokenizer_process",
        "ramet.runtime.text.render_worker",
        "ramet.__main__",
    ],
)
def test_module_is_light(module: str):
    code = SHOW.format(module=module, heavy=HEAVY)
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


def test_scheduler_does_not_import_transformers():
    code = SHOW.format(
        module="ramet.runtime.scheduler.process.start, ramet.runtime.engine.runner", heavy=("transformers",)
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"
