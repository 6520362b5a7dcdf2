"""Checkpoints whole and sharded into packed parameters; what is wrong with one is named; dummy weights by seed."""

import json
import re
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from tiny_families import FAMILIES, make_composite, make_family
from tiny_model import make_tiny

from ramet.kernels import reference
from ramet.runtime.errors import ConfigError
from ramet.runtime.models.decoder import Decoder
from ramet.runtime.models.registry import family_of, read_shape
from ramet.runtime.weights.containers import INDEX, opened
from ramet.runtime.weights.files import load_weights
from ramet.runtime.weights.random import fill_random
from ramet.runtime.weights.safetensors_file import DTYPES, open_safetensors

Tensors = dict[str, torch.Tensor]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_tiny(tmp_path / "model", hidden=32, heads=4, kv_heads=2, intermediate=48, vocab=300, tied=False)


def build(folder: Path) -> Decoder:
    shape = read_shape(folder)
    return family_of(shape.architecture).decoder(shape, torch.float32, reference)


def rewrite(folder: Path, change: Tensors, without: tuple[str, ...] = ()) -> None:
    tensors = {**load_file(folder / "model.safetensors"), **change}
    save_file({n: t for n, t in tensors.items() if n not in without}, folder / "model.safetensors")


def test_projections_are_packed_in_order(folder: Path) -> None:
    model, theirs = build(folder), load_file(folder / "model.safetensors")
    load_weights(model, folder)
    at = "model.layers.1."
    qkv = torch.cat([theirs[f"{at}self_attn.{x}_proj.weight"] for x in "qkv"])
    gate_up = torch.cat([theirs[f"{at}mlp.{x}_proj.weight"] for x in ("gate", "up")])
    assert torch.equal(model.get_parameter("layers.1.attention.qkv.weight"), qkv)
    assert torch.equal(model.get_parameter("layers.1.mlp.gate_up.weight"), gate_up)
    assert torch.equal(model.get_parameter("head.weight"), theirs["lm_head.weight"])


def test_shards_equal_the_single_file(folder: Path) -> None:
    whole, sharded = build(folder), build(folder)
    load_weights(whole, folder)
    tensors = load_file(folder / "model.safetensors")
    weight_map: dict[str, str] = {}
    for i in range(3):
        part = {name: tensors[name] for name in sorted(tensors)[i::3]}
        save_file(part, folder / f"part-{i}.safetensors")
        weight_map |= dict.fromkeys(part, f"part-{i}.safetensors")
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    load_weights(sharded, folder)
    for (name, one), (_, other) in zip(whole.named_parameters(), sharded.named_parameters(), strict=True):
        assert torch.equal(one, other), name
    (folder / "part-1.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"not there: part-1\.safetensors"):
        load_weights(build(folder), folder)


def test_a_missing_tensor_is_named(folder: Path) -> None:
    rewrite(folder, {}, without=("model.layers.0.self_attn.k_proj.weight",))
    with pytest.raises(ConfigError, match=r"1 tensors are missing.*layers\.0\.self_attn\.k_proj"):
        load_weights(build(folder), folder)


def test_an_unknown_tensor_is_named(folder: Path) -> None:
    rewrite(folder, {"model.layers.7.mlp.up_proj.weight": torch.zeros(2, 2)})
    with pytest.raises(ConfigError, match=r"layers\.7\.mlp\.up_proj\.weight does not belong"):
        load_weights(build(folder), folder)


def test_a_tensor_of_another_shape_is_named(folder: Path) -> None:
    rewrite(folder, {"model.norm.weight": torch.zeros(31)})
    with pytest.raises(ConfigError, match=r"model\.norm\.weight is \[31\], config\.json asks for \[32\]"):
        load_weights(build(folder), folder)


def test_rotary_buffers_of_old_checkpoints_are_passed_over(folder: Path) -> None:
    rewrite(folder, {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(4)})
    load_weights(build(folder), folder)


def test_a_file_that_is_no_safetensors(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"version https://example.org/lfs\n")
    with pytest.raises(ConfigError, match="not a readable safetensors file"):
        load_weights(build(folder), folder)


def stored(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(start: int, end: int, shape: list[int], dtype: str = "F32") -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


DAMAGED: dict[str, bytes] = {
    "nothing": b"",
    "half a length": b"\x02\x00",
    "a header that is longer than the file": (1 << 40).to_bytes(8, "little") + b"{}",
    "no JSON": stored(b"\xff\xfe{}"),
    "no object": stored([]),
    "a cut tensor": stored({"a": entry(0, 8, [2])}, bytes(7)),
    "more bytes": stored({"a": entry(0, 8, [2])}, bytes(9)),
    "a hole": stored({"a": entry(0, 8, [2]), "b": entry(12, 16, [1])}, bytes(16)),
    "an overlap": stored({"a": entry(0, 8, [2]), "b": entry(4, 8, [1])}, bytes(8)),
    "backwards": stored({"a": entry(0, 8, [2]), "b": entry(8, 4, [0]), "c": entry(4, 8, [1])}, bytes(8)),
    "another shape": stored({"a": entry(0, 8, [3])}, bytes(8)),
    "a negative shape": stored({"a": entry(0, 8, [-1, -2])}, bytes(8)),
    "no shape": stored({"a": {"dtype": "F32", "data_offsets": [0, 4]}}, bytes(4)),
    "a tensor that is text": stored({"a": "F32"}),
}


@pytest.mark.parametrize("how", DAMAGED)
def test_what_the_library_does_not_read_is_no_safetensors(tmp_path: Path, how: str) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(DAMAGED[how])
    with pytest.raises(SafetensorError), safe_open(file, framework="pt"):
        pass
    with pytest.raises(ConfigError, match=r"model\.safetensors is not a readable"), open_safetensors(file):
        pass


@pytest.mark.parametrize("mapped", [False, True])
def test_every_dtype_is_read_as_the_library_reads_it(tmp_path: Path, mapped: bool) -> None:
    file, numbers = tmp_path / "model.safetensors", torch.randint(0, 2, (3, 64), dtype=torch.uint8)
    tensors = {name: numbers.clone().view(dtype) for name, dtype in DTYPES.items()}
    save_file({**tensors, "none": torch.empty(0, 3), "one": torch.tensor(1.5)}, file, {"format": "pt"})
    with safe_open(file, framework="pt") as theirs, open_safetensors(file, mapped=mapped) as ours:
        assert list(ours.entries) == list(theirs.keys())
        for name in ours.entries:
            one, other = ours.tensor(name), theirs.get_tensor(name)
            assert one.dtype == other.dtype and one.shape == other.shape
            assert one.flatten().view(torch.uint8).equal(other.flatten().view(torch.uint8))


def test_a_dtype_that_torch_does_not_have_is_named(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(stored({"a": entry(0, 1, [2], "F4")}, bytes(1)))
    with pytest.raises(ConfigError, match=r"tensor a is 'F4', must be one of BOOL"), open_safetensors(file):
        pass


@pytest.mark.parametrize("how", ["becomes shorter", "is written anew"])
def test_a_file_that_changes_while_it_is_read_is_an_error(folder: Path, how: str) -> None:
    """Of a mapped file, a process that touches what is gone is ended by SIGBUS."""
    file, checkpoint = folder / "model.safetensors", opened(folder)
    facts = dict(checkpoint.facts())
    tensors = checkpoint.tensors(torch.float32)
    _, first = next(tensors)
    if how == "becomes shorter":
        file.write_bytes(file.read_bytes()[:4000])
    else:
        other = folder / "other"
        save_file({name: torch.zeros(facts[name].shape) for name in facts}, other)
        file.write_bytes(other.read_bytes())
    assert first.isfinite().all()
    for rest in (tensors, checkpoint.tensors(torch.float32)):
        with pytest.raises(ConfigError, match=r"model\.safetensors was changed while it was read"):
            next(rest)


def test_no_weights_at_all_points_to_dummy(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match="--load-format dummy"):
        load_weights(build(folder), folder)


def test_shards_without_their_index_are_named(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    named = r"1 safetensors files, such as model-00001-of-00002\.safetensors.*: download model\.safetensors\.index"
    with pytest.raises(ConfigError, match=named):
        load_weights(build(folder), folder)


def test_a_family_says_what_its_tensors_are_called(tmp_path: Path) -> None:
    """Gemma 3 beside a vision tower, in the two forms of prefix that are about."""
    folder = make_composite(tmp_path)
    whole = load_file(folder / "model.safetensors")
    assert any(name.startswith("vision_tower.") for name in whole) and not any("lm_head" in name for name in whole)
    one, other = build(folder), build(folder)
    load_weights(one, folder)
    moved = {name.replace("language_model.model.", "model.language_model."): tensor for name, tensor in whole.items()}
    save_file(moved, folder / "model.safetensors")
    load_weights(other, folder)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    name = "language_model.model.layers.0.post_feedforward_layernorm.weight"
    assert torch.equal(one.get_parameter("layers.0.mlp_out_norm.weight"), whole[name])


def test_a_head_in_the_file_of_a_composite_is_used(tmp_path: Path) -> None:
    """An InternVL's class ties where its file says nothing, also where it has a head that is another."""
    folder = make_composite(tmp_path)
    assert read_shape(folder).tied_head
    head = load_file(folder / "model.safetensors")["language_model.model.embed_tokens.weight"] * 2
    rewrite(folder, {"language_model.lm_head.weight": head})
    model = build(folder)
    load_weights(model, folder)
    assert torch.equal(model.get_parameter("head.weight"), head)


@pytest.mark.parametrize("family", ["qwen2", "gemma2"])
def test_shards_of_a_family_with_a_tied_head(tmp_path: Path, family: str) -> None:
    folder = make_family(tmp_path, family)
    index = json.loads((folder / INDEX).read_text())["weight_map"]
    assert len(set(index.values())) > 2 and "lm_head.weight" not in index
    model = build(folder)
    load_weights(model, folder)
    assert model.head is None and all(bool(tensor.isfinite().all()) for tensor in model.parameters())


def test_a_tied_head_may_be_in_the_file_only_if_it_is_the_embedding(tmp_path: Path) -> None:
    """transformers does not tie a head that differs, whatever config.json says; who wrote it meant one or the other."""
    folder = make_family(tmp_path, "gemma3")
    embedding = load_file(folder / "model.safetensors")["model.embed_tokens.weight"]
    rewrite(folder, {"lm_head.weight": embedding.clone()})
    load_weights(build(folder), folder)
    rewrite(folder, {"lm_head.weight": embedding * 2})
    with pytest.raises(ConfigError, match=r"lm_head\.weight differs.*tie_word_embeddings.: false"):
        load_weights(build(folder), folder)


STAND_FOR_MANY = {"gpt-oss": r"\.experts\.", "gemma4-moe": r"\.experts\.|k_proj"}  # tensors, by family


@pytest.mark.parametrize("family", FAMILIES)
def test_a_tensor_too_few_or_too_many_is_named_in_every_family(tmp_path: Path, family: str) -> None:
    folder = make_family(tmp_path, family)
    for path in sorted(folder.glob("*.safetensors")):
        tensors = load_file(path)
        for name in list(tensors)[::7]:
            save_file({n: t for n, t in tensors.items() if n != name}, path)
            stands_for_many = re.search(STAND_FOR_MANY.get(family, "^$"), name)
            num = r"\d+" if stands_for_many else "1"
            of = name[: name.index("experts")] + "experts" if stands_for_many and "experts" in name else name
            named = f"{num} tensors are missing, among them {re.escape(of)}"
            with pytest.raises(ConfigError, match=named):
                load_weights(build(folder), folder)
        save_file({**tensors, "model.layers.0.self_attn.spare": torch.zeros(4)}, path)
        with pytest.raises(ConfigError, match=r"model\.layers\.0\.self_attn\.spare does not belong"):
            load_weights(build(folder), folder)
        save_file(tensors, path)


def test_dummy_norms_of_every_family_do_not_scale(tmp_path: Path) -> None:
    models = {family: build(make_family(tmp_path / family, family)) for family in ("qwen3", "gemma3")}
    for family, neutral in (("qwen3", 1.0), ("gemma3", 0.0)):
        fill_random(models[family], 1)
        for name, tensor in models[family].named_parameters():
            assert "norm" not in name or bool((tensor == neutral).all()), name


def test_dummy_weights_depend_on_the_seed_and_the_name_alone(folder: Path) -> None:
    models = [build(folder) for _ in range(3)]
    for model, seed in zip(models, (1, 1, 2), strict=True):
        fill_random(model, seed)
    same, again, other = (dict(model.named_parameters()) for model in models)
    assert all(torch.equal(same[name], again[name]) for name in same)
    assert not torch.equal(same["embed.weight"], other["embed.weight"])
    assert not torch.equal(same["layers.0.mlp.down.weight"], same["layers.1.mlp.down.weight"])
    assert bool((same["norm.weight"] == 1).all())
