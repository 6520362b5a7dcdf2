"""How a model folder says that embeddings are made: the files of sentence-transformers.

modules.json lists the modules, 1_Pooling/config.json says what one vector is made of, and
config_sentence_transformers.json has the prompts that stand before a text. Decides which of their words count: one
pooling of mean, last or first token, dense layers, normalisation, prompts. A folder that says nothing gets the mean,
normalised. What is asked for and not built is refused when an embedding is asked for, so that no vector is silently
another one. Knows no request; the dense layers' numbers are weights/heads.py's.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ramet.runtime.errors import ConfigError
from ramet.runtime.log import LOGGER
from ramet.runtime.text.files import read_json, read_json_list

Kind = Literal["mean", "last", "cls"]
MODES: dict[str, Kind] = {"mean": "mean", "mean_tokens": "mean", "lasttoken": "last", "cls": "cls", "cls_token": "cls"}
BUILT = frozenset({"Transformer", "Pooling", "Dense", "Normalize"})
QUERY, DOCUMENT = ("query",), ("document", "passage", "corpus")  # names that prompts of a search have


class Pooling(NamedTuple):
    """What a client that names nothing gets.

    `kind`: which hidden states one vector is made of. `normalize`: to length 1. `unbuilt`: what else the folder asks
    for, and why there is no vector unless a client names a pooling.
    """

    kind: Kind = "mean"
    normalize: bool = True
    unbuilt: str = ""
    prompts: Mapping[str, str] = {}  # name -> what stands before a text
    default_prompt: str | None = None
    pools_prompt: bool = True  # the mean is over the prompt's tokens too

    def prompt_of(self, names: tuple[str, ...]) -> str:
        """Of the first of these names that the folder has; else that of any text."""
        found = next((name for name in names if name in self.prompts), self.default_prompt)
        return "" if found is None else self.prompts[found]


def read_pooling(folder: Path) -> Pooling:
    """Raises ConfigError for files that are no JSON, or that name what they do not have."""
    modules = {_kind_of(module): module for module in read_json_list(folder / "modules.json")}
    unbuilt = [f"{folder / 'modules.json'} names the module {name}" for name in sorted(modules.keys() - BUILT)]
    place = folder / str(modules.get("Pooling", {}).get("path") or "1_Pooling") / "config.json"
    config = read_json(place)
    asked = _modes(config)
    kind = MODES.get(asked[0]) if len(asked) == 1 else None
    if asked and kind is None:
        unbuilt.append(f"{place} asks for {' and '.join(asked)}")
    prompts, default = _prompts(folder / "config_sentence_transformers.json")
    if unbuilt:
        LOGGER.warning("embeddings are refused unless a request names a pooling: %s", "; ".join(unbuilt))
    normalize = "Normalize" in modules if modules else True
    pools_prompt = config.get("include_prompt", True) is not False
    return Pooling(kind or "mean", normalize, "; ".join(unbuilt), prompts, default, pools_prompt)


def modules_of(folder: Path, kind: str) -> list[dict[str, Any]]:
    """Of this class, in the order of modules.json."""
    return [module for module in read_json_list(folder / "modules.json") if _kind_of(module) == kind]


def _kind_of(module: dict[str, Any]) -> str:
    """The class of a module, without where it is defined."""
    return str(module.get("type", "")).rpartition(".")[2]


def _modes(config: dict[str, Any]) -> list[str]:
    """What the pooling module's file asks for: one key for each mode, or one with all of them."""
    given = config.get("pooling_mode")
    if given is not None:
        return sorted(given) if isinstance(given, list) else [str(given)]
    prefix = "pooling_mode_"
    return sorted(name.removeprefix(prefix) for name, on in config.items() if name.startswith(prefix) and on is True)


def _prompts(path: Path) -> tuple[dict[str, str], str | None]:
    """The prompts by name, and the name of that of every text that names none."""
    config = read_json(path)
    prompts, default = config.get("prompts") or {}, config.get("default_prompt_name")
    if not isinstance(prompts, dict) or not all(isinstance(text, str) for text in prompts.values()):
        raise ConfigError(f"{path}: prompts must be an object with a text for each name")
    if default is not None and default not in prompts:
        raise ConfigError(f"{path}: default_prompt_name is {default!r}, must be one of {', '.join(prompts) or 'none'}")
    return prompts, default
