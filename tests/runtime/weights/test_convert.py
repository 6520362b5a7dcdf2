"""`ramet convert`: what it writes is the plain form of every format, and a model folder; what it refuses is named."""

import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf_checkpoints import write_gguf
from quantised_checkpoints import Kind, quantise_folder
from safetensors.torch import load_file, save_file
from stored_checkpoints import Stored, store_folder
from tiny_families import make_composite, make_family
from tiny_model import make_tiny
from tiny_others import make_other

from ramet.__main__ import main
from ramet.runtime.weights import convert as module
from ramet.runtime.weights.containers import INDEX, opened

Tensors = dict[str, torch.Tensor]
FORMS: dict[str, Any] = {
    "awq": Kind("awq"),
    "gptq": Kind("gptq", ordered=True),
    "gptq v2 that says gptq": Kind("gptq", symmetric=True, stored_as="gptq_v2"),
    "int4": Stored("packed", 32, symmetric=False, ordered=True),
    "int8": Stored("int8"),
    "fp8": Stored("fp8"),
    "fp8 blocks": Stored("fp8_inverse", "block"),
}


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    return make_tiny(tmp_path / "plain", hidden=64, intermediate=96, vocab=300, tied=False)


def converted(source: Path, target: Path, *options: str) -> Tensors:
    assert main(["convert", str(source), str(target), *options]) == 0
    return dict(opened(target).tensors(torch.float32))


@pytest.mark.parametrize("name", FORMS)
def test_few_bits_become_the_weights_that_they_mean(plain: Path, tmp_path: Path, name: str) -> None:
    form, make = FORMS[name], quantise_folder if isinstance(FORMS[name], Kind) else store_folder
    make(plain, tmp_path / "few", tmp_path / "meant", form)
    found, wanted = converted(tmp_path / "few", tmp_path / "target"), load_file(tmp_path / "meant/model.safetensors")
    assert found.keys() == wanted.keys() and all(torch.equal(found[each], wanted[each]) for each in wanted)
    config = json.loads((tmp_path / "target/config.json").read_text())
    assert "quantization_config" not in config and config["torch_dtype"] == "float32"
    assert (tmp_path / "target/tokenizer.json").read_bytes() == (plain / "tokenizer.json").read_bytes()


@pytest.mark.parametrize("family", ["llama", "mixtral", "gemma3"])
def test_a_gguf_file_becomes_the_folder_that_it_was(tmp_path: Path, family: str) -> None:
    more = {} if family != "gemma3" else {"query_pre_attn_scalar": 32, "num_hidden_layers": 6, "layer_types": None}
    folder = make_tiny(tmp_path / "model") if family == "llama" else make_family(tmp_path / "model", family, **more)
    found = converted(write_gguf(folder, tmp_path / "model.gguf"), tmp_path / "target")
    wanted = load_file(folder / "model.safetensors")
    assert found.keys() == wanted.keys()
    lost = 0.0 if family != "gemma3" else 1e-6  # one is added to norms, and taken away again
    assert all(torch.allclose(found[each], wanted[each].float(), rtol=0, atol=lost) for each in wanted)
    assert {path.name for path in (tmp_path / "target").iterdir()} == {
        "config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip


def as_pickle(plain: Path, **more: Any) -> Tensors:
    tensors = load_file(plain / "model.safetensors")
    (plain / "model.safetensors").unlink()
    torch.save({**tensors, **more}, plain / "pytorch_model.bin")
    return tensors


def test_a_pickle_is_read_with_a_warning(plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = as_pickle(plain)
    found = converted(plain, tmp_path / "target")
    assert found.keys() == wanted.keys() and all(torch.equal(found[each], wanted[each]) for each in wanted)
    assert "a pickle may execute code" in capsys.readouterr().err


class Attack:
    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return print, ("executed",)


def test_a_pickle_that_executes_code_is_refused(
    plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    as_pickle(plain)
    (plain / "pytorch_model.bin").write_bytes(pickle.dumps({"model.norm.weight": Attack()}))
    assert main(["convert", str(plain), str(tmp_path / "target")]) == 2
    seen = capsys.readouterr()
    assert "cannot be read as weights alone" in seen.err and "executed" not in seen.out
    assert not (tmp_path / "target").exists()


def test_a_pickle_is_not_served_and_the_command_is_named(plain: Path, capsys: pytest.CaptureFixture[str]) -> None:
    as_pickle(plain)
    assert main(["run", "x", "--model-path", str(plain)]) == 2
    assert f"`ramet convert {plain} TARGET`" in capsys.readouterr().err


def test_shards_and_another_dtype(plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHARD_BYTES", 50_000)
    found, wanted = converted(plain, tmp_path / "target", "--dtype", "bfloat16"), load_file(plain / "model.safetensors")
    assert all(torch.equal(found[each], wanted[each].bfloat16()) for each in wanted)
    files = set(json.loads((tmp_path / "target" / INDEX).read_text())["weight_map"].values())
    assert len(files) > 3 and files == {path.name for path in (tmp_path / "target").glob("*.safetensors")}
    assert json.loads((tmp_path / "target/config.json").read_text())["torch_dtype"] == "bfloat16"


def test_what_cannot_be_converted_is_named(plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(source: Path, target: Path) -> str:
        assert main(["convert", str(source), str(target)]) == 2
        return capsys.readouterr().err

    assert "is there already" in refused(plain, plain)
    assert "is not there" in refused(tmp_path / "nowhere", tmp_path / "target")
    assert "must be a model folder or a .gguf file" in refused(plain / "tokenizer.json", tmp_path / "target")
    tensors = load_file(plain / "model.safetensors")
    save_file({**tensors, "model.norm.weight": torch.zeros(64, dtype=torch.int8)}, plain / "model.safetensors")
    assert "model.norm.weight is int8, and nothing says what it means" in refused(plain, tmp_path / "target")
    assert not (tmp_path / "target").exists()


def a_head_alone(folder: Path) -> Path:
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = tensors.pop("model.embed_tokens.weight")
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


MAKERS: dict[str, Callable[[Path], Path]] = {
    "a tied head alone": lambda folder: a_head_alone(make_family(folder, "gemma3")),
    "through transformers": lambda folder: make_other(folder, "olmo2"),
    "experts through transformers": lambda folder: make_other(folder, "granitemoe"),
    "with a tower": make_composite,
}


@pytest.mark.parametrize("kind", MAKERS)
def test_what_is_written_can_be_loaded(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = MAKERS[kind](tmp_path / "model")
    assert converted(folder, tmp_path / "target").keys() == load_file(folder / "model.safetensors").keys()
    assert f"tensors, 0 of them widened to float32: {tmp_path / 'target'}" in capsys.readouterr().err


LAYER = "model.layers.1.self_attn.q_proj.weight"
TOWER = "encoder.layers.0.mlp.fc1.weight"


@pytest.mark.parametrize(
    ("kind", "name", "value", "why"),
    [
        ("a tied head alone", LAYER, None, r"1 tensors are missing, among them model\.layers\.1\.self_attn\.q_proj"),
        ("a tied head alone", LAYER, float("nan"), r"q_proj\.weight is nan at \[0, 0\]"),
        ("through transformers", LAYER, None, r"1 tensors are missing, among them model\.layers\.1\.self_attn\.q_proj"),
        ("through transformers", LAYER, float("inf"), r"q_proj\.weight is inf at \[0, 0\]"),
        ("with a tower", TOWER, None, "1 tensors are missing, among them .*fc1.weight"),
        ("with a tower", TOWER, float("nan"), r"fc1\.weight is nan at \[0, 0\]"),
    ],
)
def test_a_folder_that_could_not_be_loaded_is_not_left(
    tmp_path: Path, kind: str, name: str, value: float | None, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = MAKERS[kind](tmp_path / "model")
    tensors = load_file(folder / "model.safetensors")
    [found] = [each for each in tensors if each.endswith(name)]
    if value is None:
        del tensors[found]
    else:
        tensors[found][0, 0] = value
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    assert main(["convert", str(folder), str(tmp_path / "target")]) == 2
    seen = capsys.readouterr().err
    assert re.search(f"cannot be served, and was removed: .*{why}", seen) and "widened" not in seen
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize(
    ("file", "content", "why"),
    [
        ("tokenizer.json", "{}", r"tokenizer\.json cannot be read"),
        ("tokenizer_config.json", '{"eos_token": 7}', "eos_token is 7, must be the text of a token"),
        ("generation_config.json", "[1", r"generation_config\.json"),
        ("chat_template.jinja", "{% if", "chat template .*does not compile"),
    ],
)
def test_files_of_text_are_loaded_too(
    plain: Path, tmp_path: Path, file: str, content: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (plain / file).write_text(content)
    assert main(["convert", str(plain), str(tmp_path / "target")]) == 2
    assert re.search(f"cannot be served, and was removed: .*{why}", capsys.readouterr().err)
    assert not (tmp_path / "target").exists()


def test_a_folder_without_a_tokenizer_is_written_and_says_what_to_do(
    plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (plain / "tokenizer.json").unlink()
    converted(plain, tmp_path / "target")
    assert "has no tokenizer.json: name a folder that has one with --tokenizer-path" in capsys.readouterr().err


def test_a_model_that_nothing_serves_is_not_written(
    plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = json.loads((plain / "config.json").read_text())
    (plain / "config.json").write_text(json.dumps({**config, "architectures": ["NoSuchForCausalLM"]}))
    assert main(["convert", str(plain), str(tmp_path / "target")]) == 2
    assert "architecture NoSuchForCausalLM is not supported" in capsys.readouterr().err
    assert not (tmp_path / "target").exists()


def test_overrides_are_written_into_the_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a head that differs from the embedding that config.json ties it to: the error names what makes it right."""
    folder = make_family(tmp_path / "model", "gemma3")
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"] * 2
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    assert main(["convert", str(folder), str(tmp_path / "target")]) == 2
    change = '{"tie_word_embeddings": false}'
    assert f"--json-model-override-args '{change}'" in capsys.readouterr().err
    found = converted(folder, tmp_path / "target", "--json-model-override-args", change)
    assert torch.equal(found["lm_head.weight"], tensors["lm_head.weight"])
    assert json.loads((tmp_path / "target/config.json").read_text())["tie_word_embeddings"] is False
