"""`ramet convert SOURCE TARGET`: a checkpoint of any form that ramet reads, and pickles, as plain safetensors.

Decides what a target folder has: weights in shards, widened where the source has them in few bits; config.json without
what said so; tokenizer and the other files of text beside it. A folder that could not be loaded is not left there. Peak
memory is one shard.
"""

import argparse
import json
import shutil
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from ramet.runtime.errors import ConfigError
from ramet.runtime.gguf.file import SUFFIX
from ramet.runtime.gguf.folder import write_folder
from ramet.runtime.gguf.left_out import split
from ramet.runtime.models.config_json import ConfigObject
from ramet.runtime.models.quantization_config import NAME, read_quantization
from ramet.runtime.models.registry import read_config
from ramet.runtime.text.chat_template import ChatTemplate
from ramet.runtime.text.template_files import read_templates
from ramet.runtime.text.tokenizer import Tokenizer
from ramet.runtime.weights.bundle import TensorFacts, dtype_name
from ramet.runtime.weights.containers import INDEX, SINGLE, Checkpoint, opened, pickles_of
from ramet.runtime.weights.gguf_tensors import GgufFile
from ramet.runtime.weights.loadable import check_folder
from ramet.runtime.weights.sound import DTYPES
from ramet.runtime.weights.widening import Widening, bundles_of

SHARD_BYTES = 2 << 30
TEXTS = ("*.json", "*.jinja", "*.txt", "*.model", "*.md", "additional_chat_templates", "LICENSE*")
NOT_COPIED = ("config.json", INDEX, "pytorch_model.bin.index.json")
TOKENIZER = "tokenizer.json"
DTYPE_NAMES = ("bfloat16", "float16", "float32")
WARNING = (
    "a pickle may execute code when it is read. torch reads it with weights_only=True, which has had holes: convert "
    "files of people whom you trust, with a torch that is up to date"
)


class Pickles:
    """Files of torch.save. Only what torch itself allows in them is read."""

    def __init__(self, place: Path, files: list[Path]) -> None:
        self.place, self.files = place, files

    @property
    def num_in_blocks(self) -> int:
        return 0

    def facts(self) -> Iterator[tuple[str, TensorFacts]]:
        for path in self.files:
            for name, tensor in _unpickled(path).items():
                yield name, TensorFacts(tuple(tensor.shape), tensor.dtype, f"{path}: tensor {name}")

    def tensors(self, dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
        for path in self.files:
            yield from _unpickled(path).items()


def _unpickled(path: Path) -> dict[str, Tensor]:
    """Mapped where the file allows it. Raises ConfigError."""
    try:
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except Exception as error:  # the library raises what it likes
        raise ConfigError(f"{path} cannot be read as weights alone: {error}") from error
    found = found.get("state_dict", found) if isinstance(found, dict) else found
    if not isinstance(found, dict) or not found or not all(map(_is_weight, found.items())):
        raise ConfigError(f"{path} holds no names with plain tensors")
    return found


def _is_weight(entry: tuple[Any, Any]) -> bool:
    name, tensor = entry
    return isinstance(name, str) and isinstance(tensor, Tensor) and tensor.layout is torch.strided and tensor.is_cpu


def convert(source: Path, target: Path, dtype_asked: str | None, say: Any, overrides: str = "") -> None:
    """Raises ConfigError; what was written then is removed."""
    if target.exists():
        raise ConfigError(f"{target} is there already: name a folder that is not")
    if not source.exists():
        raise ConfigError(f"{source} is not there")
    try:
        checkpoint, config = _read(source, target, overrides, say)
        dtype = getattr(torch, dtype_asked or _dtype_of(config))
        done = _write(checkpoint, config, target, dtype, dtype_asked is not None)
        _check(target)
        if not (target / TOKENIZER).is_file():
            say(f"warning: {source} has no {TOKENIZER}: name a folder that has one with --tokenizer-path")
        say(done)
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise


def _check(target: Path) -> None:
    """Raises ConfigError where a server could not load it."""
    try:
        check_folder(target)
        if (target / TOKENIZER).is_file():
            Tokenizer.from_folder(target)
        ChatTemplate(read_templates(target)).check()
    except ConfigError as error:
        raise ConfigError(f"{target} as it was written cannot be served, and was removed: {error}") from error


def _read(source: Path, target: Path, overrides: str, say: Any) -> tuple[Checkpoint, dict[str, Any]]:
    """With everything in the target that is not the weights."""
    if source.suffix == SUFFIX and source.is_file():
        overrides, left_out = split(overrides)
        write_folder(source, target, left_out=left_out)
        return GgufFile(target, source, mapped=True), read_config(target, overrides)
    if not (source / "config.json").is_file():
        raise ConfigError(f"{source} has no config.json: it must be a model folder or a {SUFFIX} file")
    config = read_config(source, overrides)
    target.mkdir(parents=True)
    for path in sorted({path for pattern in TEXTS for path in source.glob(pattern)}):
        if path.name not in NOT_COPIED and (path.is_file() or path.is_dir()):  # no link to nothing, and no pipe
            shutil.copytree(path, target / path.name) if path.is_dir() else shutil.copyfile(path, target / path.name)
    has_safetensors = (source / SINGLE).is_file() or (source / INDEX).is_file()
    if not has_safetensors and (pickles := pickles_of(source)):
        say(f"warning: {source} has pickles: {WARNING}")
        return Pickles(source, pickles), config
    return opened(source, mapped=True), config


def _dtype_of(config: dict[str, Any]) -> str:
    inner = config.get("text_config")
    inner = inner if isinstance(inner, dict) else {}
    found = [each.get(name) for each in (config, inner) for name in ("dtype", "torch_dtype")]
    return next((name for name in found if name in DTYPE_NAMES), "bfloat16")


def _write(checkpoint: Checkpoint, config: dict[str, Any], target: Path, dtype: torch.dtype, change: bool) -> str:
    """What was written, for a person."""
    facts = dict(checkpoint.facts())
    quantization = read_quantization(ConfigObject({NAME: config.get(NAME)}, "", str(target / "config.json")))
    bundles = list(bundles_of(facts, facts, quantization))
    widening = Widening(bundles, dtype)
    shards = _Shards(target)
    for name, tensor in checkpoint.tensors(dtype):
        whole = widening.take(name, tensor)
        if whole is None:
            continue
        name, tensor = whole
        if tensor.dtype not in DTYPES and tensor.dtype.itemsize == 1:
            raise ConfigError(f"{facts[name].named} is {dtype_name(tensor.dtype)}, and nothing says what it means")
        shards.add(name, tensor.to(dtype) if change and tensor.is_floating_point() else tensor)
    shards.finish()
    content = {key: value for key, value in config.items() if key not in (NAME, "torch_dtype")}
    content["dtype" if "dtype" in config else "torch_dtype"] = dtype_name(dtype)
    (target / "config.json").write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    num_widened = len(bundles) + checkpoint.num_in_blocks
    return f"{len(shards.places)} tensors, {num_widened} of them widened to {dtype_name(dtype)}: {target}"


class _Shards:
    """Files of at most SHARD_BYTES, or of one tensor; an index where there is more than one."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._held, self._num_bytes, self._total = folder, dict[str, Tensor](), 0, 0
        self.places: dict[str, int] = {}  # tensor -> number of its file
        self._files: list[Path] = []

    def add(self, name: str, tensor: Tensor) -> None:
        if self._held and self._num_bytes + tensor.nbytes > SHARD_BYTES:
            self._save()
        shares = any(tensor.data_ptr() == other.data_ptr() for other in self._held.values())
        is_part = tensor.untyped_storage().nbytes() > tensor.nbytes
        self._held[name] = tensor.clone(memory_format=torch.contiguous_format) if shares or is_part else tensor
        self._num_bytes += tensor.nbytes

    def _save(self) -> None:
        path = self._folder / f"part-{len(self._files)}.safetensors"
        save_file({name: tensor.contiguous() for name, tensor in self._held.items()}, path, {"format": "pt"})
        self.places |= dict.fromkeys(self._held, len(self._files))
        self._files.append(path)
        self._total += self._num_bytes
        self._held, self._num_bytes = {}, 0

    def finish(self) -> None:
        """Under the names that Hugging Face gives them."""
        self._save()
        if len(self._files) == 1:
            self._files[0].rename(self._folder / SINGLE)
            return
        names = [f"model-{i + 1:05}-of-{len(self._files):05}.safetensors" for i in range(len(self._files))]
        for path, name in zip(self._files, names, strict=True):
            path.rename(self._folder / name)
        weight_map = {tensor: names[i] for tensor, i in self.places.items()}
        index = {"metadata": {"total_size": self._total}, "weight_map": weight_map}
        (self._folder / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser("ramet convert", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("source", type=Path, help="model folder (safetensors or pickles) or .gguf file")
    parser.add_argument("target", type=Path, help="folder that is not there yet")
    parser.add_argument(
        "--dtype", choices=DTYPE_NAMES, help="of all weights; else of those that are widened, by config.json"
    )
    parser.add_argument(
        "--json-model-override-args",
        default="",
        help="JSON object whose keys take the place of config.json's; a key of a GGUF file that is null is left out",
    )
    args = parser.parse_args(argv)
    say, overrides = lambda text: print(f"ramet: {text}", file=sys.stderr), args.json_model_override_args
    convert(args.source, args.target, args.dtype, say, overrides)
    return 0
