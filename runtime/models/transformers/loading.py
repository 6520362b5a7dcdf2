"""Weights of transformers' modules: from a checkpoint's files, by transformers' own mapping of names, or random.

Decides what is an error: a tensor that is missing, unknown, of another shape or no weight is named. Files are mapped,
and each tensor is copied once, when it is converted. Nothing but safetensors and the config that was read is opened.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers.utils import logging as theirs

from ramet.runtime.errors import ConfigError, describe

IGNORED = ("rotary_emb.inv_freq", "attn.bias", "attn.masked_bias")  # buffers that older files have among weights
NAMED = 3  # of the tensors that an error is about


def load_causal(
    model_class: Any, config: Any, attention: str, tensors: Iterable[tuple[str, Tensor]], dtype: torch.dtype
) -> Any:
    """Of `model_class`, on the CPU. Raises ConfigError."""
    return load_part(model_class, config, attention, tensors, dtype)


def load_part(
    model_class: Any,
    config: Any,
    attention: str,
    tensors: Iterable[tuple[str, Tensor]],
    dtype: torch.dtype,
    without: str | None = None,
) -> Any:
    """The same of a class of which the module `without` has no weights here. Raises ConfigError."""
    model = _built(model_class, config, attention, tensors, dtype, without)
    _check_finite(model)
    return model.eval()


def check_part(
    model_class: Any,
    config: Any,
    attention: str,
    tensors: Iterable[tuple[str, Tensor]],
    dtype: torch.dtype,
    without: str | None = None,
) -> None:
    """Whether `load_part` would take the names and shapes of `tensors`, on the meta device. Raises ConfigError."""
    _built(model_class, config, attention, tensors, dtype, without, device_map={"": "meta"})


def _built(
    model_class: Any,
    config: Any,
    attention: str,
    tensors: Iterable[tuple[str, Tensor]],
    dtype: torch.dtype,
    without: str | None,
    **options: Any,
) -> Any:
    try:
        with _silent():
            model, found = model_class.from_pretrained(
                None, config=config, state_dict=dict(tensors), dtype=dtype, attn_implementation=attention,
                experts_implementation="eager", output_loading_info=True, ignore_mismatched_sizes=True, **options,
            )  # fmt: skip
    except (RuntimeError, ValueError, KeyError) as error:
        raise ConfigError(f"{model_class.__name__} cannot take the weights: {describe(error)}") from error
    if without is not None:
        found["missing_keys"] = [key for key in found["missing_keys"] if not key.startswith(f"{without}.")]
    _check_keys(model_class.__name__, found)
    return model


def random_causal(model_class: Any, config: Any, attention: str, dtype: torch.dtype, seed: int) -> Any:
    """As the class begins its training."""
    config._attn_implementation, config._experts_implementation = attention, "eager"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return model_class._from_config(config, dtype=dtype, attn_implementation=attention).eval()


def _check_keys(name: str, found: dict[str, Any]) -> None:
    """What transformers says of a checkpoint's names. Raises ConfigError."""
    odd = sorted(found["mismatched_keys"])
    unknown = sorted(key for key in found["unexpected_keys"] if not key.endswith(IGNORED))
    for what, keys in (
        ("are missing", sorted(found["missing_keys"])),
        (f"do not belong to a {name} of this config", unknown),
        (
            "are not as config.json asks for",
            [f"{key} of {list(own)} instead of {list(want)}" for key, own, want in odd],
        ),
        ("cannot be converted", sorted(str(each) for each in found.get("error_msgs") or ())),
    ):
        if keys:
            raise ConfigError(f"{len(keys)} tensors {what}, among them {', '.join(keys[:NAMED])}")


def _check_finite(model: Any) -> None:
    for name, parameter in model.named_parameters():
        bounds = torch.stack(torch.aminmax(parameter.detach()))
        if not bool(bounds.isfinite().all()):
            dtype = str(parameter.dtype).removeprefix("torch.")
            raise ConfigError(f"tensor {name} has {bounds.tolist()} in it, weights must be finite numbers of {dtype}")


@contextmanager
def _silent() -> Iterator[None]:
    """transformers' report of keys is an error here, and its progress no line of a log."""
    level, shown = theirs.get_verbosity(), theirs.is_progress_bar_enabled()
    theirs.set_verbosity_error()
    theirs.disable_progress_bar()
    try:
        yield
    finally:
        theirs.set_verbosity(level)
        if shown:
            theirs.enable_progress_bar()
