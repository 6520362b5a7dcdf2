"""A tied model whose only matrix is stored as its head, not as its embedding: transformers ties them either way."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_families import FAMILIES, make_composite, make_family
from tiny_others import make_other

from ramet.kernels import reference
from ramet.runtime.errors import ConfigError
from ramet.runtime.models.decoder import Decoder
from ramet.runtime.models.registry import family_of, read_shape
from ramet.runtime.models.transformers.build import loaded_model
from ramet.runtime.models.transformers.implementation import read_model
from ramet.runtime.weights.containers import INDEX, opened
from ramet.runtime.weights.files import load_weights

EMBEDDING = "embed_tokens.weight"
TYPES = {kind: name for name, (kind, _, _) in reversed(FAMILIES.items())}  # one family of each model_type


def with_lone_head(folder: Path, name: str) -> torch.Tensor:
    """WRITES the folder: its embedding gets the name of its head. Returns the matrix."""
    tensors = {each: tensor for path in folder.glob("*.safetensors") for each, tensor in load_file(path).items()}
    [embedding] = [each for each in tensors if each.endswith(EMBEDDING)]
    assert name not in tensors
    tensors[name] = tensors.pop(embedding)
    for path in (*folder.glob("*.safetensors"), *folder.glob(INDEX)):
        path.unlink()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return tensors[name]


def loaded(folder: Path) -> Decoder:
    shape = read_shape(folder)
    model = family_of(shape.architecture).decoder(shape, torch.float32, reference)
    load_weights(model, folder)
    return model


@pytest.mark.parametrize("family", TYPES.values())
def test_a_lone_head_is_the_embedding_of_every_family(tmp_path: Path, family: str) -> None:
    matrix = with_lone_head(make_family(tmp_path, family, tie_word_embeddings=True), "lm_head.weight")
    model = loaded(tmp_path)
    assert model.head is None and torch.equal(model.get_parameter("embed.weight"), matrix)


@pytest.mark.parametrize("name", ["language_model.lm_head.weight", "lm_head.weight"])
def test_a_lone_head_beside_a_tower_is_the_embedding(tmp_path: Path, name: str) -> None:
    matrix = with_lone_head(make_composite(tmp_path), name)
    model = loaded(tmp_path)
    assert model.head is None and torch.equal(model.get_parameter("embed.weight"), matrix)


def test_a_lone_head_of_a_model_that_is_not_tied_is_no_embedding(tmp_path: Path) -> None:
    with_lone_head(make_family(tmp_path, "gemma3"), "lm_head.weight")
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}))
    with pytest.raises(ConfigError, match=r"1 tensors are missing, among them model\.embed_tokens\.weight"):
        loaded(tmp_path)


def test_a_lone_head_is_the_embedding_through_transformers(tmp_path: Path) -> None:
    matrix = with_lone_head(make_other(tmp_path, "gemma2"), "lm_head.weight")
    shape = read_model(tmp_path, "", "transformers")
    tensors = opened(tmp_path).tensors(torch.float32)
    model = loaded_model(shape, torch.float32, torch.device("cpu"), reference, tensors)
    found = [parameter for name, parameter in model.named_parameters() if name.endswith(EMBEDDING)]
    assert len(found) == 1 and torch.equal(found[0], matrix)
