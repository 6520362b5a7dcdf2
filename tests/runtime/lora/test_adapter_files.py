"""An adapter's folder that is wrong is refused by the name of what is wrong there, before anything changes."""

import json
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_model import make_tiny
from torch import Tensor

from ramet.runtime.config import make_args
from ramet.runtime.errors import ConfigError
from ramet.runtime.lora.config import read_config
from ramet.runtime.lora.reading import FILE, Adapter, check_model_rows, read_adapter
from ramet.runtime.lora.targets import Target, Targets, targets_of
from ramet.runtime.models.registry import read_shape
from ramet.runtime.options.adapter_paths import wrong_path

Q, DOWN = "base_model.model.model.layers.0.self_attn.q_proj", "base_model.model.model.layers.1.mlp.down_proj"
EMBED = "base_model.model.model.embed_tokens"


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Targets:
    return targets_of(read_shape(make_tiny(tmp_path_factory.mktemp("model"))))


def sizes(targets: Targets, tensor: str) -> tuple[int, int]:
    found = targets.find(tensor.removeprefix("base_model.model."))
    assert found is not None
    return found.num_out, found.num_in


def write(folder: Path, targets: Targets, change: Callable[[dict[str, Tensor], dict[str, Any]], None]) -> Path:
    tensors: dict[str, Tensor] = {}
    for name in (Q, DOWN):
        num_out, num_in = sizes(targets, name)
        tensors[f"{name}.lora_A.weight"], tensors[f"{name}.lora_B.weight"] = (
            torch.ones(2, num_in),
            torch.ones(num_out, 2),
        )
    config: dict[str, Any] = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "bias": "none"}
    change(tensors, config)
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def read(folder: Path, targets: Targets) -> Adapter:
    adapter = read_adapter(folder, targets, torch.float32, 64)
    return check_model_rows(adapter, lambda target, at: torch.zeros(len(at), target.num_in))


def test_factors_are_scaled_and_by_our_names(tmp_path: Path, targets: Targets) -> None:
    adapter = read(write(tmp_path, targets, lambda tensors, config: None), targets)
    assert set(adapter.changes) == {"layers.0.attention.qkv", "layers.1.mlp.down"} and adapter.rank == 2
    (change,) = adapter.changes["layers.1.mlp.down"]
    assert torch.equal(change.up, torch.full_like(change.up, 2.0))  # alpha / r


def renamed(before: str, after: str) -> Callable[[dict[str, Tensor], dict[str, Any]], None]:
    def change(tensors: dict[str, Tensor], config: dict[str, Any]) -> None:
        for name in [name for name in tensors if before in name]:
            tensors[name.replace(before, after)] = tensors.pop(name)

    return change


def with_tensor(name: str, *shape: int) -> Callable[[dict[str, Tensor], dict[str, Any]], None]:
    return lambda tensors, config: tensors.update({name: torch.ones(*shape)})


def with_config(**values: Any) -> Callable[[dict[str, Tensor], dict[str, Any]], None]:
    return lambda tensors, config: config.update(values)


def without(key: str) -> Callable[[dict[str, Tensor], dict[str, Any]], None]:
    def change(tensors: dict[str, Tensor], config: dict[str, Any]) -> None:
        config.pop(key, None)
        tensors.pop(key, None)

    return change


REFUSED = {
    "a layer that is not there": (renamed("layers.1", "layers.9"), ("layers.9.mlp.down_proj", "belongs to no layer")),
    "an unknown tensor": (with_tensor(f"{Q}.lora_C.weight", 2), ("lora_C", "belongs to no layer")),
    "no prefix": (renamed("base_model.model.", ""), ("model.layers", "belongs to no layer")),
    "a norm": (with_tensor("base_model.model.model.norm.weight", 8), ("model.norm", "belongs to no layer")),
    "another model's sizes": (with_tensor(f"{Q}.lora_A.weight", 2, 7), ("lora_A", "[2, 7]", "another model")),
    "another rank": (with_tensor(f"{Q}.lora_B.weight", 7, 3), ("lora_B", "[7, 3]", "another rank")),
    "one factor alone": (without(f"{Q}.lora_B.weight"), ("q_proj", "lora_B is missing")),
    "no number": (with_tensor(f"{Q}.lora_A.weight", 2), ("lora_A", "[2]")),
    "added tokens": (with_tensor(f"{EMBED}.weight", 9, 9), ("embed_tokens", "[9, 9]", "adds tokens")),
    "a larger vocabulary": (with_tensor(f"{EMBED}.base_layer.weight", 9, 9), ("base_layer", "adds tokens")),
    "magnitudes": (with_tensor(f"{Q}.lora_magnitude_vector", 7), ("lora_magnitude_vector", "DoRA", "not built")),
    "experts": (with_tensor("base_model.model.model.layers.0.mlp.experts.lora_A.weight", 2), ("experts", "not built")),
    "dora": (with_config(use_dora=True), ("use_dora", "not built")),
    "biases": (with_config(bias="all"), ("bias", "'all'", "not built")),
    "single tokens": (with_config(trainable_token_indices=[1]), ("trainable_token_indices", "[1]", "not built")),
    "parameters": (with_config(target_parameters=["x"]), ("target_parameters", "not built")),
    "a key of the future": (with_config(use_wonder=True), ("use_wonder", "True", "not built")),
    "pissa": (with_config(init_lora_weights="pissa"), ("init_lora_weights", "'pissa'")),
    "no rank": (without("r"), ("adapter_config.json", "r is missing")),
    "no alpha": (without("lora_alpha"), ("adapter_config.json", "lora_alpha is missing")),
    "a rank of none": (with_config(r=0), ("r is 0", ">= 1")),
    "another method": (with_config(peft_type="IA3"), ("peft_type", "'IA3'")),
    "a pattern": (with_config(rank_pattern={"(": 2}), ("rank_pattern", "'('", "regular expression")),
    "a pattern that is tried for ever": (
        with_config(rank_pattern={"^(([a-z._0-9])+)+$X": 4}), ("rank_pattern", "repeats a group")
    ),
    "a pattern of many parts": (with_config(alpha_pattern={"a*b*c*d*": 4}), ("alpha_pattern", "3 repetitions")),
    "a deep pattern": (with_config(rank_pattern={"(" * 5000: 2}), ("rank_pattern", "4096 characters")),
    "a pattern's absurd count": (with_config(rank_pattern={"a{99999999999999999999}": 4}), ("regular expression",)),
    "an alpha of no float": (with_config(lora_alpha=10**400), ("lora_alpha", "must be a number")),
    "an alpha of a pattern": (with_config(alpha_pattern={"q_proj": 10**400}), ("alpha_pattern", "object of numbers")),
    "a rank of no int32": (with_config(r=1 << 40), ("r is 1099511627776", ">= 1")),
    "a flag that is a number": (with_config(use_rslora=1), ("use_rslora is 1", "true or false")),
    "a large rank": (with_config(r=65), ("rank 65", "at most 64", "--max-lora-rank")),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_is_named(tmp_path: Path, targets: Targets, name: str) -> None:
    change, pieces = REFUSED[name]
    folder = write(tmp_path, targets, change)
    with pytest.raises(ConfigError) as error:
        read(folder, targets)
    assert all(piece in str(error.value) for piece in pieces), error.value


def test_a_copy_of_other_embeddings_is_another_model(tmp_path: Path, targets: Targets) -> None:
    num, size = sizes(targets, EMBED)
    folder = write(tmp_path, targets, with_tensor(f"{EMBED}.base_layer.weight", num, size))
    with pytest.raises(ConfigError, match="another model"):
        read(folder, targets)
    folder = write(tmp_path, targets, lambda t, c: t.update({f"{EMBED}.base_layer.weight": torch.zeros(num, size)}))
    assert "embed" not in read(folder, targets).changes


def test_an_adapter_that_changes_nothing_is_refused(tmp_path: Path, targets: Targets) -> None:
    with pytest.raises(ConfigError, match="no tensor that changes a layer"):
        read(write(tmp_path, targets, lambda tensors, config: tensors.clear()), targets)


@pytest.mark.parametrize("name, number, why", [
    ("lora_A", math.nan, "nan"), ("lora_A", -math.inf, "-inf"), ("lora_A", 7e4, "float16 cannot hold"),
    ("lora_B", math.nan, "nan"), ("lora_B", math.inf, "inf"),
    ("lora_B", 4e4, "float16 cannot hold"),  # it can, but not twice that: the changes are scaled by 2
])  # fmt: skip
def test_numbers_that_are_none_are_refused(
    tmp_path: Path, targets: Targets, name: str, number: float, why: str
) -> None:
    """A product of one of these with the zeros that other rows have would be NaN."""
    folder = write(tmp_path, targets, lambda tensors, config: None)
    tensors = load_file(folder / "adapter_model.safetensors")
    tensors[f"{Q}.{name}.weight"][0, 0] = number
    save_file(tensors, folder / "adapter_model.safetensors")
    with pytest.raises(ConfigError, match=f"{name}.*{why}"):
        read_adapter(folder, targets, torch.float16, 64)


def test_files_that_are_not_there_or_not_whole(tmp_path: Path, targets: Targets) -> None:
    with pytest.raises(ConfigError, match=r"adapter_config\.json cannot be read"):
        read(tmp_path, targets)
    folder = write(tmp_path, targets, lambda tensors, config: None)
    file = folder / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(ConfigError, match="not a readable safetensors file"):
        read(folder, targets)
    file.rename(folder / "adapter_model.bin")
    with pytest.raises(ConfigError, match="pickle"):
        read(folder, targets)


@dataclass(frozen=True)
class Cutting(Targets):
    """Makes the file shorter as soon as its header has been read."""

    file: Path = Path()

    def find(self, module: str) -> Target | None:
        with self.file.open("rb+") as opened:
            opened.truncate(1000)
        return super().find(module)


def test_a_file_that_becomes_shorter_while_it_is_read_is_an_error(tmp_path: Path, targets: Targets) -> None:
    folder = write(tmp_path, targets, lambda tensors, config: None)
    cutting = Cutting(**{each.name: getattr(targets, each.name) for each in fields(targets)}, file=folder / FILE)
    with pytest.raises(ConfigError, match=r"adapter_model\.safetensors was changed while it was read"):
        read(folder, cutting)


def test_the_first_pattern_that_matches_counts(tmp_path: Path) -> None:
    config = {
        "peft_type": "LORA", "r": 4, "lora_alpha": 8, "use_rslora": True,
        "rank_pattern": {"q_proj": 9, r".*\.1\..*": 16}, "alpha_pattern": {"layers.1.mlp.up_proj": 2},
    }  # fmt: skip
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    read_one = read_config(tmp_path)
    assert read_one.rank_of("model.layers.1.self_attn.q_proj") == 9
    assert read_one.rank_of("model.layers.1.mlp.up_proj") == 16
    assert read_one.rank_of("model.layers.0.xq_proj") == 4
    assert read_one.scale_of("model.layers.1.mlp.up_proj") == 2 / 4
    assert read_one.scale_of("model.layers.0.mlp.up_proj") == 8 / 2


PATHS = [
    (["a=/no/such/folder"], "is not a folder"),
    (["{dir}"] * 2, "two adapters have the name"),
    (["a:b={dir}"], "colon"),
    ([f"a{i}={{dir}}" for i in range(10_000)], r"10000 adapters, must have at most 128 \(--max-loaded-loras\)"),
    (['{{"lora_name": "a"}}'], "lora_path"),
    (['{{"lora_name": "a", "lora_path": "{dir}", "pin": 1}}'], "pinned"),
    (['{{"lora_name": '], "not valid JSON"),
    ([f'{{{{"lora_name": "a{i}", "lora_path": "{{dir}}", "pinned": true}}}}' for i in range(8)], "pins 8 adapters"),
]


@pytest.mark.parametrize(("entries", "why"), PATHS)
def test_lora_paths_that_cannot_be_are_named(tmp_path: Path, entries: list[str], why: str) -> None:
    args = make_args(lora_paths=[entry.format(dir=tmp_path) for entry in entries])
    with pytest.raises(ConfigError, match=why):
        args.named_adapters  # noqa: B018


def test_paths_outside_of_lora_dir_are_refused(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir(), (tmp_path / "out").mkdir()
    with pytest.raises(ConfigError, match="outside of --lora-dir"):
        make_args(lora_paths=[f"a={tmp_path}/in/../out"], lora_dir=str(tmp_path / "in")).named_adapters  # noqa: B018
    assert make_args(lora_paths=[f"a={tmp_path}/in"], lora_dir=str(tmp_path)).named_adapters[0].name == "a"


@pytest.mark.parametrize("content", [b"[" * 100_000, b"\xff", b"[1]"], ids=["deep", "bytes", "a list"])
def test_a_config_that_is_none_is_named(tmp_path: Path, targets: Targets, content: bytes) -> None:
    folder = write(tmp_path, targets, lambda tensors, config: None)
    (folder / "adapter_config.json").write_bytes(content)
    with pytest.raises(ConfigError, match=r"adapter_config\.json (is not valid JSON|holds list)"):
        read(folder, targets)


def test_a_pipe_in_the_place_of_a_config_is_no_file(tmp_path: Path, targets: Targets) -> None:
    folder = write(tmp_path, targets, lambda tensors, config: None)
    (folder / "adapter_config.json").unlink()
    os.mkfifo(folder / "adapter_config.json")
    with pytest.raises(ConfigError, match=r"adapter_config\.json cannot be read: it is not a file"):
        read(folder, targets)


def test_links_lead_out_of_the_folder_of_adapters_neither_as_folders_nor_as_files(tmp_path: Path) -> None:
    inside, outside = tmp_path / "adapters", tmp_path / "other"
    for folder in (inside / "a", inside / "b", outside):
        folder.mkdir(parents=True)
        (folder / "adapter_config.json").write_text("{}")
    (inside / "c").symlink_to(outside)
    (inside / "b" / "adapter_model.safetensors").symlink_to(outside / "adapter_config.json")
    (inside / "a" / "adapter_model.safetensors").symlink_to(inside / "a" / "adapter_config.json")
    assert wrong_path(str(inside / "a"), str(inside)) == ""
    for name in ("b", "c"):
        assert wrong_path(str(inside / name), str(inside)) == f"is outside of --lora-dir {inside}"
        assert wrong_path(str(inside / name), "") == ""


@pytest.mark.parametrize("path", ["a\0b", "z" * 5000, "a/" * 5000], ids=["null", "long", "deep"])
@pytest.mark.parametrize("folder", ["", "/"])
def test_a_name_that_no_folder_can_have_is_no_folder(path: str, folder: str) -> None:
    assert "is not a folder on this machine" in wrong_path(path, folder)
