"""Sampling defaults of a model: generation_config.json over the table of ipc/params.py.

Decides which of its keys count: those of TAKEN whose values are valid, and nothing else. `do_sample`
is not asked: a file that names a temperature wants it. The length of an output is the request's alone. A key that would
change sampling but is not served is named in a warning. Knows no request.
"""

from pathlib import Path
from typing import Any, Literal

from ramet.ipc.errors import ClientError
from ramet.ipc.params import SamplingParams, parse
from ramet.runtime.log import LOGGER
from ramet.runtime.text.files import read_json

TAKEN = (
    "temperature", "top_p", "top_k", "min_p", "typical_p", "frequency_penalty", "presence_penalty",
    "repetition_penalty",
)  # fmt: skip
# keys that would change sampling, with the value at which they do nothing
NOT_SERVED: dict[str, Any] = {
    "encoder_repetition_penalty": 1.0, "epsilon_cutoff": 0.0, "eta_cutoff": 0.0,
    "no_repeat_ngram_size": 0, "num_beams": 1, "bad_words_ids": None, "suppress_tokens": None,
    "begin_suppress_tokens": None, "sequence_bias": None,
}  # fmt: skip


def sampling_defaults(folder: Path, mode: Literal["model", "openai"]) -> SamplingParams:
    """What a request that names nothing gets. Mode "openai" is the table alone."""
    if mode == "openai":
        return SamplingParams()
    path = folder / "generation_config.json"
    config = read_json(path)
    for name, neutral in NOT_SERVED.items():
        if config.get(name) not in (None, neutral):
            LOGGER.warning("%s: %s is %r, which is not built yet: ignored", path, name, config[name])
    return parse({name: config[name] for name in TAKEN if _valid(path, config, name)})


def _valid(path: Path, config: dict[str, Any], name: str) -> bool:
    if config.get(name) is None:
        return False
    if name == "top_k" and config[name] == 0:  # off, as the files of many models write it
        return False
    try:
        parse({name: config[name]}, place=f"{path}.")
    except ClientError as error:
        LOGGER.warning("%s: ignored", error)
        return False
    return True
