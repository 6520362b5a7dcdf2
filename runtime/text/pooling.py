"""How a model folder says that embeddings are made: modules.json and 1_Pooling/config.json of sentence-transformers.

Decides which of their words count: mean or last-token pooling, and whether there is a Normalize module. A folder that
says nothing gets the mean, normalised. What is asked for and not built is named in a warning. Knows no request.
"""

from pathlib import Path
from typing import Any, Literal, NamedTuple

from ramet.runtime.log import LOGGER
from ramet.runtime.text.files import read_json, read_json_list

Kind = Literal["mean", "last"]
MODES: dict[str, Kind] = {"pooling_mode_mean_tokens": "mean", "pooling_mode_lasttoken": "last"}
MADE_ELSEWHERE = frozenset({"Transformer", "Pooling", "Normalize"})  # modules that the runtime has its own way for


class Pooling(NamedTuple):
    """`kind`: what one vector is made of, all tokens or the last one. `normalize`: to length 1."""

    kind: Kind = "mean"
    normalize: bool = True


def read_pooling(folder: Path) -> Pooling:
    """What a client that names nothing gets. Raises ConfigError for files that are no JSON."""
    modules = {_kind_of(module): module for module in read_json_list(folder / "modules.json")}
    for unknown in sorted(modules.keys() - MADE_ELSEWHERE):
        LOGGER.warning("%s names the module %s, which is not built: ignored", folder / "modules.json", unknown)
    place = modules.get("Pooling", {}).get("path") or "1_Pooling"
    kind = _pooling_of(folder / str(place) / "config.json")
    return Pooling(kind, "Normalize" in modules if modules else True)


def _kind_of(module: dict[str, Any]) -> str:
    """The class of a module, without where it is defined."""
    return str(module.get("type", "")).rpartition(".")[2]


def _pooling_of(path: Path) -> Kind:
    config = read_json(path)
    asked = [name for name, value in config.items() if name.startswith("pooling_mode_") and value is True]
    if not asked:
        return "mean"
    if len(asked) == 1 and asked[0] in MODES:
        return MODES[asked[0]]
    LOGGER.warning("%s asks for %s, which is not built: embeddings are the mean", path, " and ".join(sorted(asked)))
    return "mean"
