"""The grammar backends by name. Each library is imported when its backend is built, and not before."""

from importlib import import_module
from importlib.util import find_spec
from typing import cast

from ramet.runtime.errors import ConfigError
from ramet.runtime.grammar.base import BackendName, GrammarBackend, Vocabulary

BACKENDS: dict[BackendName, tuple[str, str, str]] = {  # name -> library, extra that installs it, class
    "llguidance": ("llguidance", "serve", "LLGuidanceBackend"),
    "xgrammar": ("xgrammar", "xgrammar", "XGrammarBackend"),
    "outlines": ("outlines_core", "outlines", "OutlinesBackend"),
}


def installed(name: BackendName) -> bool:
    return find_spec(BACKENDS[name][0]) is not None


def check_installed(name: BackendName) -> None:
    """Raises ConfigError."""
    library, extra, _ = BACKENDS[name]
    if not installed(name):
        raise ConfigError(f"the grammar backend {name} needs {library}: pip install 'ramet[{extra}]'")


def build(name: BackendName, vocabulary: Vocabulary, step_items: int | None = None) -> GrammarBackend:
    """Reads the vocabulary, which takes a tenth of a second and more. Raises ConfigError.

    `step_items`: parser items that a step may take of one output, where the library counts them. None: as many as a
    constraint may need.
    """
    check_installed(name)
    made = getattr(import_module(f"ramet.runtime.grammar.{name}"), BACKENDS[name][2])
    return cast(GrammarBackend, made(vocabulary, step_items=step_items) if name == "llguidance" else made(vocabulary))
