"""Weights of a checkpoint into a model, one tensor at a time.

Decides what is an error: a tensor that is missing, unknown, of another shape or no weight (sound.py) is named, by the
headers of the files before memory is taken. Peak memory is the model and one weight.
"""

import logging
from pathlib import Path

import torch
from torch import Tensor

from ramet.kernels import reference
from ramet.kernels.packers import WordsPacker
from ramet.runtime.errors import ConfigError
from ramet.runtime.layers.modules import Linear
from ramet.runtime.models.decoder import Decoder
from ramet.runtime.models.registry import weights_of
from ramet.runtime.weights.bundle import TensorFacts, dtype_name
from ramet.runtime.weights.containers import Checkpoint, opened
from ramet.runtime.weights.names import NamePart, checkpoint_parts, is_ignored
from ramet.runtime.weights.quantised import QuantisedLayers
from ramet.runtime.weights.sound import check_dtype, copy_weights
from ramet.runtime.weights.staging import Staging
from ramet.runtime.weights.widening import Widening, bundles_of

log = logging.getLogger("ramet")

EMBEDDING = "embed.weight"


def check_weights(model: Decoder, folder: Path) -> None:
    """Whether `load_weights` would find what it needs; `model` is on the meta device, and of no use behind this."""
    _Loading(model, opened(folder))


def check_numbers(model: Decoder, folder: Path) -> None:
    """Whether `load_weights` would take every number, with one weight in memory at a time; `model` is as above."""
    loading = _Loading(model, opened(folder, mapped=True))
    with torch.inference_mode():
        loading.prove()


def linears_in_few_bits(model: Decoder, folder: Path) -> set[str]:
    """Those that keep the bits of a quantised checkpoint; `model` is as for `check_weights`."""
    linears = [(name, module) for name, module in model.named_modules() if isinstance(module, Linear)]
    _Loading(model, opened(folder))
    return {name for name, linear in linears if linear.weight is None}


def load_weights(model: Decoder, folder: Path, packer: WordsPacker | None = None, *, mapped: bool = False) -> None:
    """Fill every parameter (already on its device, in its dtype) from `folder`; what stays in few bits is packed."""
    with torch.inference_mode():
        _Loading(model, opened(folder, mapped=mapped)).fill(packer or reference.packers.words)


class _Loading:
    """Where each tensor of a checkpoint goes. Raises ConfigError where the headers show that it does not fit."""

    def __init__(self, model: Decoder, checkpoint: Checkpoint) -> None:
        self._checkpoint, self._model = checkpoint, model
        self._weights = weights = weights_of(model.shape)
        is_tied = model.shape.tied_head and model.shape.generates
        self._second_head = f"{weights.top['head']}.weight" if is_tied else None
        self._is_head_alone = False
        self._facts = facts = self._read_facts()
        bundles = list(bundles_of(facts, facts, model.shape.quantization))
        self._quantised = QuantisedLayers(model, bundles, facts, weights)
        self._bundles = [bundle for bundle in bundles if bundle.weight not in self._quantised.claimed]
        self._parameters = {name: parameter.data for name, parameter in model.named_parameters()}
        self._wanted = checkpoint_parts(((name, len(tensor)) for name, tensor in self._parameters.items()), weights)
        self._check(set(self._wanted))

    def _name(self, source: str) -> str:
        """The canonical name. A tied head that is stored without an embedding is the embedding, as in transformers."""
        name, top = self._weights.canonical(source), self._weights.top
        head, embedding = f"{top['head']}.", f"{top['embed']}."
        return embedding + name.removeprefix(head) if self._is_head_alone and name.startswith(head) else name

    def _read_facts(self) -> dict[str, TensorFacts]:
        facts: dict[str, TensorFacts] = {}
        found = list(self._checkpoint.facts())
        modules = {self._weights.canonical(source).rpartition(".")[0] for source, _ in found}
        self._is_head_alone = self._second_head is not None and self._weights.top["embed"] not in modules
        for source, fact in found:
            name = self._name(source)
            if is_ignored(name, self._weights):
                continue
            if name in facts:
                raise ConfigError(f"{fact.named} is there twice, also as {facts[name].named}")
            facts[name] = fact
        return facts

    def _check(self, missing: set[str]) -> None:
        in_bundles = {name for bundle in self._bundles for name in bundle.names.values()}
        for name, fact in self._facts.items():
            if name in in_bundles or self._quantised.waits_for(name):
                continue
            if name not in self._wanted and self._quantised.may_be_bias_of_none(name):
                continue
            check_dtype(fact.dtype, fact.named)
            missing -= self._places(name, fact.shape, fact.named)
        for bundle in self._bundles:
            named = self._facts[next(iter(bundle.names.values()))].named
            missing -= self._places(bundle.weight, bundle.shape, named)
        if missing:
            examples = ", ".join(sorted(missing)[:3])
            raise ConfigError(f"{self._checkpoint.place}: {len(missing)} tensors are missing, among them {examples}")

    def _places(self, name: str, shape: tuple[int, ...], named: str) -> set[str]:
        """What a tensor of that name stands for. Raises ConfigError for what has another shape, or no place."""
        found = set()
        for own, part in self._weights.apart(name, torch.empty(shape, device="meta")):
            self._check_place(own, tuple(part.shape), _named(named, name, own))
            found.add(own)
        return found

    def _check_place(self, name: str, shape: tuple[int, ...], named: str) -> None:
        if name == self._second_head:
            wanted = self._parameters[EMBEDDING].shape
        elif name in self._wanted:
            part = self._wanted[name]
            wanted = self._parameters[part.name][part.start : part.start + part.rows].shape
        else:
            raise ConfigError(f"{named} does not belong to a {self._model.shape.architecture} of this config")
        if shape != wanted:
            raise ConfigError(f"{named} is {list(shape)}, config.json asks for {list(wanted)}")

    def prove(self) -> None:
        """Read every weight as `fill` does, into memory that is given back. The embedding is kept, to be compared."""
        embedding = self._parameters[EMBEDDING]
        self._parameters[EMBEDDING] = torch.empty(embedding.shape, dtype=embedding.dtype)
        self.fill(reference.packers.words)

    def fill(self, packer: WordsPacker) -> None:
        """WRITES every parameter."""
        parameters = self._parameters
        staging = None if parameters[EMBEDDING].is_cpu else Staging()
        widening = Widening(self._bundles, parameters[EMBEDDING].dtype)
        second_head, dtype = None, parameters[EMBEDDING].dtype
        if num := self._checkpoint.num_in_blocks:
            log.warning("%d weights in blocks of GGUF are widened to %s", num, dtype_name(dtype))
        for source, tensor in self._checkpoint.tensors(dtype):
            name = self._name(source)
            if is_ignored(name, self._weights) or self._quantised.take(name, tensor, packer):
                continue
            whole, named = widening.take(name, tensor), self._facts[name].named
            if whole is None:
                continue
            name, tensor = whole
            if name == self._second_head:  # it must be the embedding once more: transformers unties one that differs
                second_head = torch.empty_like(parameters[EMBEDDING])
                copy_weights(second_head, tensor, named, staging)
                continue
            for own, each in self._weights.apart(name, tensor):
                if own in self._wanted:
                    _copy(each, self._wanted[own], parameters, _named(named, name, own), staging)
                elif each.any():
                    raise ConfigError(f"{named} does not belong to a {self._model.shape.architecture} of this config")
        if second_head is not None and not torch.equal(second_head, parameters[EMBEDDING]):
            raise ConfigError(
                f"{self._checkpoint.place}: tensor {self._second_head} differs from the embedding, though config.json "
                "ties them; if both are meant, add --json-model-override-args '{\"tie_word_embeddings\": false}'"
            )


def _named(named: str, name: str, own: str) -> str:
    return named if own == name else f"{named}, its part {own},"


def _copy(tensor: Tensor, part: NamePart, parameters: dict[str, Tensor], named: str, staging: Staging | None) -> None:
    """WRITES the part of its parameter, if that has memory."""
    target = parameters[part.name][part.start : part.start + part.rows]
    target = torch.empty(target.shape, dtype=target.dtype) if target.is_meta else target
    copy_weights(target, tensor if part.pairs is None else part.pairs.apart(tensor), named, staging)
