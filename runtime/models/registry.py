"""From the architecture name in config.json to its class. A family is imported when a model asks for it."""

from importlib import import_module

from ramet.runtime.errors import ConfigError
from ramet.runtime.models.decoder import Decoder

FAMILIES = {  # architecture as Hugging Face names it -> the module of this folder that holds a class of that name
    "LlamaForCausalLM": "llama",
}


def model_class(architecture: str) -> type[Decoder]:
    if architecture not in FAMILIES:
        raise ConfigError(
            f"config.json: architecture {architecture} is not supported; supported: {', '.join(FAMILIES)}"
        )
    module = import_module(f"ramet.runtime.models.{FAMILIES[architecture]}")
    return vars(module)[architecture]
