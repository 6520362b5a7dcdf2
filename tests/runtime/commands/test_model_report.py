"""What `ramet doctor --model-path` says of models, sound ones and broken ones, before their weights are read."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from adapters import make_adapter
from gguf_checkpoints import write_gguf
from msgspec.structs import replace
from quantised_checkpoints import Kind, quantise_folder
from safetensors.torch import load_file, save_file
from tiny_families import make_composite, make_family
from tiny_model import make_tiny
from tiny_others import make_other

from ramet.runtime.commands import doctor
from ramet.runtime.commands.findings import Finding
from ramet.runtime.commands.model_report import examine_model
from ramet.runtime.config import make_args
from ramet.runtime.engine.devices.cpu import CpuDevice
from ramet.runtime.engine.startup import plan_of
from ramet.runtime.models.registry import read_shape


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    names = ("qwen2", "qwen3-moe", "gemma3", "phi3-longrope")
    return {name: make_family(tmp_path_factory.mktemp("model") / name, name) for name in names}


def report(folder: Path, contexts: tuple[int, ...] = (), **options: Any) -> dict[str, Finding]:
    """By what was looked at."""
    return {found.what: found for found in examine_model(make_args(model_path=str(folder), **options), contexts)}


def broken(folder: Path, to: Path, **keys: Any) -> Path:
    """A copy with other keys in its config.json."""
    shutil.copytree(folder, to)
    config = json.loads((to / "config.json").read_text())
    (to / "config.json").write_text(json.dumps({**config, **keys}))
    return to


def test_a_family_says_what_it_is_and_that_every_tensor_is_there(folders: dict[str, Path]) -> None:
    found = report(folders["qwen3-moe"])
    assert [f for f in found.values() if f.kind == "missing"] == []
    assert found["model"].found == "Qwen3MoeForCausalLM, natively: models/qwen3_moe.py"
    assert "6 experts in layers 0-1, 2 for each token" in found["layers"].found
    assert "context of 256" in found["layers"].found and "experts" not in found
    assert "in 1 file, every tensor is there" in found["files"].found
    assert " files, every tensor is there" in report(folders["qwen2"])["files"].found


def test_pictures_are_refused_where_the_tower_is_not_read(tmp_path: Path) -> None:
    assert "pictures" in report(make_composite(tmp_path / "text", generation=4))
    assert "pictures" not in report(make_composite(tmp_path / "seen", generation=3))


def test_memory_is_what_a_start_plans(folders: dict[str, Path]) -> None:
    """At each length that is asked for; the plan of a start counts the same bytes."""
    folder = folders["qwen2"]
    found = report(folder, (64, 128), dtype="bfloat16", max_running_requests=4)
    per_token = 2 * 2 * 2 * 16 * 2  # keys and values of 2 layers with 2 heads of 16 numbers in two bytes
    assert found["keys and values"].found == f"{per_token / 1024:.1f} KiB for each token"
    for length in (64, 128, 256):
        assert found[f"at {length} tokens"].found.startswith(f"{length * per_token / 1024:.1f} KiB for one sequence")
        assert found[f"at {length} tokens"].found.endswith("256 such sequences fit here")
    args = make_args(model_path=str(folder), dtype="bfloat16", max_running_requests=4)
    plan = plan_of(args, read_shape(folder), torch.bfloat16, CpuDevice())
    assert plan.max_total_tokens == 256 * 256 and plan.needs.bytes_per_token == per_token
    halved = report(folder, (64,), dtype="bfloat16", kv_cache_dtype="int8")
    assert halved["keys and values"].found == f"{2 * 2 * 2 * (16 + 4) / 1024:.1f} KiB for each token"


def test_a_length_beyond_the_model_and_one_beyond_memory_are_told(folders: dict[str, Path]) -> None:
    found = report(folders["qwen2"], (512,), max_total_tokens=64)
    assert found["at 512 tokens"].found == "refused: the model's context is 256"
    assert found["at 256 tokens"].kind == "note" and "the pool here holds 64 tokens" in found["at 256 tokens"].found
    args = make_args(model_path=str(folders["qwen2"]))
    args = replace(args, cache=replace(args.cache, max_total_tokens=1 << 40))  # more than the option takes
    (taken,) = (found for found in examine_model(args, ()) if found.what == "at 256 tokens")
    assert taken.kind == "missing" and "--max-total-tokens" in taken.found


def test_what_requests_cannot_ask_is_told(folders: dict[str, Path]) -> None:
    windowed, longrope = report(folders["gemma3"]), report(folders["phi3-longrope"])
    assert "some layers have a sliding window" in windowed["contexts"].found
    assert "keys are others beyond 48 tokens" in longrope["contexts"].found
    assert "contexts" not in report(folders["qwen2"])
    assert "--enable-return-routed-experts is refused" in windowed["experts"].found


@pytest.mark.parametrize(("what", "keys", "options", "said"), [
    ("model", {"architectures": ["MambaForCausalLM"]}, {"model_impl": "native"}, "MambaForCausalLM"),
    ("model", {"architectures": ["NoSuchForCausalLM"]}, {}, "NoSuchForCausalLM"),
    ("model", {"architectures": None}, {}, "architectures is None"),
    ("model", {"hidden_size": "x"}, {}, "hidden_size is 'x'"),
    ("model", {"new_gate": True}, {"model_impl": "native"}, "new_gate is True"),
    ("model", {"quantization_config": {"quant_method": "aqlm"}}, {}, "quant"),
    ("files", {"num_hidden_layers": 3, "layer_types": None}, {}, "tensors are missing"),
    ("files", {"intermediate_size": 80}, {}, "config.json asks for"),
    ("options", {}, {"quantization": "awq"}, "--quantization is awq"),
    ("options", {}, {"enable_return_routed_experts": True}, "has no experts"),
    ("options", {}, {"context_length": 4096}, "--context-length is 4096"),
    ("chat template", {}, {"chat_template": "no-such"}, "no-such"),
    ("tokenizer", {}, {"tokenizer_path": "/no/such"}, "there is no /no/such/tokenizer.json"),
])  # fmt: skip
def test_what_would_be_refused_is_named(
    folders: dict[str, Path], tmp_path: Path, what: str, keys: dict[str, Any], options: dict[str, Any], said: str
) -> None:
    found = report(broken(folders["qwen2"], tmp_path / "broken", **keys), **options)
    assert found[what].kind == "missing" and said in found[what].found


def test_a_template_that_does_not_compile_is_named(folders: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(folders["qwen2"], tmp_path / "model")
    (tmp_path / "model/chat_template.jinja").write_text("{% if")
    found = report(tmp_path / "model")["chat template"]
    assert found.kind == "missing" and "does not compile" in found.found and "--chat-template" in found.remedy


def test_a_tokenizer_whose_files_disagree_is_told(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = broken(folders["qwen2"], tmp_path / "files")
    settings = json.loads((folder / "tokenizer_config.json").read_text())

    def found(**keys: Any) -> dict[str, Finding]:
        (folder / "tokenizer_config.json").write_text(json.dumps({**settings, **keys}))
        return report(folder)

    new = {"content": "<|new|>", "special": True}
    assert "'<|new|>' has the id 999" in found(added_tokens_decoder={"999": new})["tokenizer"].found
    assert found(added_tokens_decoder={"999": new})["tokenizer"].kind == "missing"
    told = found(add_prefix_space=True, tokenizer_class="PreTrainedTokenizerFast")["tokenizer files"]
    assert told.kind == "note" and "add_prefix_space is true: tokenizer.json says otherwise" in told.found
    assert "tokenizer files" not in found()


def test_a_missing_shard_a_truncated_one_and_a_pickle_are_named(folders: dict[str, Path], tmp_path: Path) -> None:
    shards = sorted(path.name for path in folders["qwen2"].glob("*.safetensors"))
    without = broken(folders["qwen2"], tmp_path / "without")
    (without / shards[1]).unlink()
    assert shards[1] in report(without)["files"].found
    short = broken(folders["qwen2"], tmp_path / "short")
    (short / shards[0]).write_bytes((short / shards[0]).read_bytes()[:-100])
    assert report(short)["files"].kind == "missing" and shards[0] in report(short)["files"].found
    pickled = broken(folders["phi3-longrope"], tmp_path / "pickled")
    torch.save(load_file(pickled / "model.safetensors"), pickled / "pytorch_model.bin")
    (pickled / "model.safetensors").unlink()
    assert report(pickled)["files"].kind == "missing"


def test_tensors_of_a_wrong_shape_or_name_are_named(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = broken(folders["phi3-longrope"], tmp_path / "wrong")
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"] = torch.ones(3)
    save_file(tensors, folder / "model.safetensors")
    assert "model.norm.weight is [3], config.json asks for [64]" in report(folder)["files"].found


def test_a_quantised_checkpoint_is_told_with_its_size(folders: dict[str, Path], tmp_path: Path) -> None:
    quantise_folder(folders["qwen3-moe"], tmp_path / "4", tmp_path / "meant", Kind("awq"), modules="self_attn")
    found = report(tmp_path / "4")
    assert [f for f in found.values() if f.kind == "missing"] == []
    assert "as awq has them" in found["files"].found and " as awq, " in found["weights"].found


def test_a_model_of_transformers_modules_says_why_and_is_measured_too(tmp_path: Path) -> None:
    found = report(make_other(tmp_path, "olmo2"))
    assert found["model"].kind == "note"
    assert found["model"].found.startswith("Olmo2ForCausalLM, through transformers, slower: ")
    assert [f for f in found.values() if f.kind == "missing"] == []
    assert "weights" in found and "keys and values" in found
    assert "those of transformers' modules are not kept" in found["experts"].found


def test_the_command_answers_for_a_model_alone(folders: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--contexts", "32,64", "--quantization", "int8"]
    assert doctor.main(["--model-path", str(folders["qwen2"]), *options], {}) == 0
    printed = capsys.readouterr().out
    assert "at 32 tokens" in printed and "as int8" in printed and "`ramet serve` will serve it" in printed
    assert "packages" not in printed
    assert doctor.main(["--model-path", "/no/such"], {}) == 1
    assert "serving cannot work: model" in capsys.readouterr().out


@pytest.mark.parametrize("argv", [["--port", "3"], ["--contexts", "4"], ["--contexts", "0", "--model-path", "x"]])
def test_options_without_a_model_are_refused(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        doctor.main(argv, {})
    assert caught.value.code == 2 and argv[0] in capsys.readouterr().err


def test_a_gguf_file_is_reported_as_the_folder_that_is_made_of_it(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = write_gguf(make_tiny(tmp_path / "model"), tmp_path / "model.gguf")
    found = report(file)
    assert [f for f in found.values() if f.kind == "missing"] == []
    assert found["model"].found.startswith("LlamaForCausalLM, natively")
    file.write_bytes(file.read_bytes()[:2000])
    assert "it is cut off" in report(file)["model"].found


@pytest.mark.parametrize(
    ("name", "says"),
    [("nowhere", "is not a folder on this machine (models are not downloaded"), ("empty", "has no config.json")],
)
def test_a_folder_that_is_none_is_told_as_a_start_tells_it(tmp_path: Path, name: str, says: str) -> None:
    (tmp_path / "empty").mkdir()
    assert says in report(tmp_path / name)["model"].found


def test_adapters_are_looked_at_by_their_own_files(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = folders["qwen2"]
    good = make_adapter(folder, tmp_path / "good", 0, r=4, target_modules=["q_proj", "down_proj"]).folder
    bad = shutil.copytree(good, tmp_path / "bad")
    config = json.loads((bad / "adapter_config.json").read_text())
    (bad / "adapter_config.json").write_text(json.dumps({**config, "use_dora": True}))
    found = report(folder, lora_paths=[f"good={good}", f"bad={bad}"])
    assert found["adapter good"].kind == "ok" and "rank 4" in found["adapter good"].found
    assert found["adapter bad"].kind == "missing" and "use_dora" in found["adapter bad"].found
    other = report(make_other(tmp_path / "olmo", "olmo"), lora_paths=[f"good={good}"])
    assert "is served by transformers' modules" in other["adapter good"].found


def test_a_classifier_says_that_it_generates_nothing(tmp_path: Path) -> None:
    folder = make_family(
        tmp_path / "model", "qwen3", kind="AutoModelForSequenceClassification", num_labels=1, pad_token_id=4
    )
    assert "no head that predicts tokens" in report(folder)["output"].found


ABSURD = {
    "num_hidden_layers": ((1 << 31) - 1, 10**400),
    "max_position_embeddings": (1 << 31, 10**30, 10**400),
    "hidden_size": (1 << 40,),
}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in ABSURD.items() for value in values])
def test_sizes_that_no_model_has_are_named_at_once(
    folders: dict[str, Path], tmp_path: Path, key: str, value: int
) -> None:
    assert f"{key} is " in report(broken(folders["qwen2"], tmp_path / "model", **{key: value}))["model"].found


def test_a_context_of_one_token_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    found = report(broken(folders["qwen2"], tmp_path / "model", max_position_embeddings=1))
    assert "context is 1 tokens, must be at least 2" in found["options"].found


INDICES = [
    b'{"weight_map": {"a": 1}}',
    b'{"weight_map": {"a": "../other/model.safetensors"}}',
    b'{"weight_map": {"a": "/etc/passwd"}}',
    b'{"weight_map": {"a": "' + b"z" * 5000 + b'"}}',
    b"[" * 100_000,
]


@pytest.mark.parametrize("content", INDICES, ids=["number", "out", "root", "long", "deep"])
def test_an_index_that_names_no_file_beside_it_is_named(
    folders: dict[str, Path], tmp_path: Path, content: bytes
) -> None:
    folder = shutil.copytree(folders["qwen3-moe"], tmp_path / "model")
    (folder / "model.safetensors.index.json").write_bytes(content)
    found = report(folder)["files"]
    assert found.kind == "missing" and "model.safetensors.index.json" in found.found
