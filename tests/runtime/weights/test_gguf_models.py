"""GGUF files, served directly: the tokens, likelihoods and tokenizer of the folder that each was written from."""

import json
import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf_checkpoints import write_gguf
from safetensors.torch import load_file, save_file
from samples import sampled
from tiny_families import make_family
from tiny_model import make_tiny

from ramet.runtime.config import Args, make_args, resolve
from ramet.runtime.errors import ConfigError
from ramet.runtime.gguf.config import config_of
from ramet.runtime.gguf.file import read_header
from ramet.runtime.llm import LLM
from ramet.runtime.weights.containers import opened

PROMPTS = [[5, 9, 200, 31, 7], list(range(20, 60)), [100] * 9]
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {"sliding_window": None},
    "mixtral": {},
    "qwen2": {},
    "qwen2-moe": {"norm_topk_prob": False, "mlp_only_layers": []},
    "qwen3": {},
    "qwen3-moe": {"norm_topk_prob": True, "mlp_only_layers": [], "decoder_sparse_step": 1},
    "gemma2": {"query_pre_attn_scalar": 32},
    "gemma3": {"query_pre_attn_scalar": 32, "num_hidden_layers": 6, "layer_types": None},
    "phi3": {},
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def made(folder: Path, family: str) -> Path:
    if family == "llama":
        return make_tiny(folder, rope_scaling=None, tied=False)
    return make_family(folder, family, **FAMILIES[family])


def answers(path: Path) -> tuple[list[list[int]], torch.Tensor]:
    """Greedy tokens, and the log-probabilities of prompts."""
    with LLM(model_path=str(path), dtype="float32", random_seed=0, log_level="error") as llm:
        greedy = llm.generate(PROMPTS, {"max_new_tokens": 12, "temperature": 0, "ignore_eos": True})
        asked = llm.generate(PROMPTS, {"max_new_tokens": 0}, return_logprob=True, logprob_start_len=0)
    found = [v for reply in asked for v, *_ in reply["meta_info"]["input_token_logprobs"] if v is not None]
    return [reply["output_ids"] for reply in greedy], torch.tensor(found)


@pytest.mark.parametrize("family", sampled(FAMILIES, len(FAMILIES) // 2))
def test_a_file_in_float32_gives_the_tokens_of_its_folder(tmp_path: Path, family: str) -> None:
    folder = made(tmp_path / "model", family)
    tokens, likely = answers(write_gguf(folder, tmp_path / "model.gguf"))
    wanted_tokens, wanted = answers(folder)
    assert tokens == wanted_tokens
    assert (likely - wanted).abs().max() < 1e-4


def blocks_only(folder: Path, kind: str) -> None:
    """WRITES the matrices of the folder: rounded as the blocks of `kind` are."""
    chosen = gguf.GGMLQuantizationType[kind]
    tensors = load_file(folder / "model.safetensors")
    for name, tensor in tensors.items():
        if tensor.ndim > 1:
            rows = gguf.quants.quantize(tensor.numpy(), chosen)
            tensors[name] = torch.from_numpy(np.array(gguf.quants.dequantize(rows, chosen)))
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_0", "Q5_1", "Q4_1"])
def test_rounded_weights_are_those_of_the_file(tmp_path: Path, kind: str) -> None:
    folder = make_tiny(tmp_path / "model", tied=False)
    file = write_gguf(folder, tmp_path / "model.gguf", kind)
    exact, found = answers(folder)[1], answers(file)
    blocks_only(folder, kind)
    wanted = answers(folder)
    assert found[0] == wanted[0] and (found[1] - wanted[1]).abs().max() < 1e-5
    if kind in ("F16", "BF16", "Q8_0"):
        assert (found[1] - exact).abs().mean() < 0.02 * exact.abs().mean()


def test_a_file_of_llama_3_has_its_rope(tmp_path: Path) -> None:
    rope = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192}  # fmt: skip
    folder = make_family(tmp_path / "model", "llama", rope_parameters=rope)
    file = write_gguf(folder, tmp_path / "model.gguf")
    assert config_of(read_header(file))["rope_scaling"]["factor"] == pytest.approx(8)
    (tokens, likely), (wanted_tokens, wanted) = answers(file), answers(folder)
    assert tokens == wanted_tokens and (likely - wanted).abs().max() < 1e-4


@pytest.mark.parametrize("name", ["vicuna", "qwen3-yarn"])
def test_a_rope_that_is_stretched(tmp_path: Path, name: str) -> None:
    more: dict[str, Any] = {}
    if name == "qwen3-yarn":  # llama.cpp has only the usual bounds
        more = {"rope_parameters": dict(rope_type="yarn", rope_theta=1e4, factor=8.0,
                                        original_max_position_embeddings=32)}  # fmt: skip
    folder = make_family(tmp_path / "model", name, **more)
    config = json.loads((folder / "config.json").read_text())
    config["rope_parameters"] = config.get("rope_parameters") or {**config["rope_scaling"], "rope_theta": 1e4}
    config["rope_parameters"].setdefault("rope_type", config["rope_parameters"].get("type"))
    (folder / "config.json").write_text(json.dumps({**config, "rope_scaling": None}))
    (tokens, likely), (wanted_tokens, wanted) = answers(write_gguf(folder, tmp_path / "m.gguf")), answers(folder)
    assert tokens == wanted_tokens and (likely - wanted).abs().max() < 1e-5


def test_matrices_are_mapped_and_blocks_come_in_the_dtype_of_the_model(tmp_path: Path) -> None:
    folder = make_family(tmp_path / "model", "qwen3")
    for kind in ("F16", "Q8_0"):
        args = resolved(write_gguf(folder, tmp_path / f"{kind}.gguf", kind))
        checkpoint = opened(args.model_folder, mapped=True)
        found = dict(checkpoint.tensors(torch.bfloat16))["model.layers.0.mlp.up_proj.weight"]
        assert found.dtype == {"F16": torch.float16, "Q8_0": torch.bfloat16}[kind]
        assert is_of_file(found, args.model_folder / "model.gguf") == (kind == "F16")


@pytest.mark.parametrize("kind", ["F16", "Q8_0"])
def test_a_file_that_becomes_shorter_while_it_is_read_is_an_error(tmp_path: Path, kind: str) -> None:
    file = write_gguf(make_family(tmp_path / "model", "qwen3"), tmp_path / "model.gguf", kind)
    tensors = opened(resolved(file).model_folder).tensors(torch.float32)
    _, first = next(tensors)
    file.write_bytes(file.read_bytes()[:5000])
    assert first.isfinite().all()
    with pytest.raises(ConfigError, match=r"model\.gguf was changed while it was read"):
        next(tensors)


def is_of_file(tensor: torch.Tensor, file: Path) -> bool:
    """Whether its memory is that of the mapped file."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith(str(file.resolve())):
            first, last = (int(at, 16) for at in line.split()[0].split("-"))
            if first <= tensor.data_ptr() < last:
                return True
    return False


def resolved(file: Path, **options: Any) -> Args:
    return resolve(make_args(model_path=str(file), **options))


def test_the_folder_is_made_once_and_bears_the_name_of_the_file(tmp_path: Path) -> None:
    file = write_gguf(make_tiny(tmp_path / "model"), tmp_path / "tiny.gguf")
    args = resolved(file)
    made = (args.model_folder / "config.json").stat().st_mtime_ns
    assert (resolved(file).model_folder / "config.json").stat().st_mtime_ns == made
    assert args.model_name == str(file)
    file.unlink()
    resolved(write_gguf(tmp_path / "model", tmp_path / "other.gguf"))
    assert not args.model_folder.is_dir()


def cut(content: bytes) -> bytes:
    return content[:-4096]


def lying(text: bytes, value: int, code: str = "<Q") -> Any:
    """What stands behind the first `text` is another number."""

    def change(content: bytes) -> bytes:
        at = content.index(text) + len(text)
        return content[:at] + struct.pack(code, value) + content[at + struct.calcsize(code) :]

    return change


def instead(text: bytes, other: bytes) -> Any:
    return lambda content: content.replace(text, other, 1)


WRONG: list[tuple[Any, str]] = [
    (cut, r"tensor .* ends at byte \d+, but the file has \d+: it is cut off"),
    (lambda content: content[:2000], "it ends in its header, at byte 2000: it is cut off"),
    (lambda content: b"GGML" + content[4:], "does not begin with GGUF"),
    (lambda content: b"", "not a readable GGUF file"),
    (lying(b"GGUF", 7, "<I"), "its version is 7, must be 2 or 3"),
    (lying(b"GGUF\x03\x00\x00\x00", 1 << 40), r"it says that it has \d+ tensors"),
    (lying(b"llama.block_count\x04\x00\x00\x00", 3, "<I"), r"tensors are missing, among them model\.layers\.2"),
    (lying(b"llama.embedding_length\x04\x00\x00\x00", 96, "<I"), r"is \[\d+, 64\], config\.json asks for"),
    (lying(b"llama.attention.head_count\x04\x00\x00\x00", 0, "<I"), "head_count is 0, must be an integer >= 1"),
    (lying(b"tokenizer.ggml.tokens\x09\x00\x00\x00\x08\x00\x00\x00", 1 << 50), "it ends in its header"),
    (lying(b"blk.0.ffn_up.weight\x02\x00\x00\x00", 1 << 60), "it is cut off"),
    (lying(b"blk.0.ffn_up.weight\x02\x00\x00\x00", 48), "begins at byte|is \\[128, 48\\]"),
    (lying(b"blk.0.ffn_up.weight", 9, "<I"), "has 9 dimensions, must have 1 to 4"),
    (instead(b"blk.0.ffn_up.w", b"blk.0.ffn_ux.w"), r"ffn_ux\.weight does not belong to a llama"),
    (instead(b"\x00llama", b"\x00lamma"), "general.architecture is 'lamma', must be one of"),
    (instead(b"llama.context_length", b"llama.context_lengtx"), "llama.context_length is None, must be"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "message"), WRONG, ids=[message for _, message in WRONG])
def test_a_file_that_is_cut_off_or_lies_is_named(tmp_path: Path, change: Any, message: str) -> None:
    file = write_gguf(make_tiny(tmp_path / "model", tied=False), tmp_path / "model.gguf")
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(ConfigError, match=message):
        LLM(model_path=str(file), log_level="error", max_total_tokens=64)


def test_a_key_that_may_change_the_model_is_named(tmp_path: Path) -> None:
    file = write_gguf(make_tiny(tmp_path / "model"), tmp_path / "model.gguf", **{"attention.scale": 0.5})
    with pytest.raises(ConfigError, match=r"llama\.attention\.scale is 0\.5, a key that ramet does not know"):
        resolved(file)


def test_metadata_that_do_not_go_together_are_named(tmp_path: Path) -> None:
    rope = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192}  # fmt: skip
    file = write_gguf(make_family(tmp_path / "model", "llama", rope_parameters=rope), tmp_path / "model.gguf")
    file.write_bytes(lying(b"llama.rope.freq_base\x06\x00\x00\x00", 0, "<I")(file.read_bytes()))
    with pytest.raises(ConfigError, match=r"model\.gguf: its metadata contradict each other: float division by zero"):
        resolved(file)


def test_another_file_is_no_model(tmp_path: Path) -> None:
    file = tmp_path / "model.bin"
    file.write_bytes(b"...")
    with pytest.raises(ConfigError, match=r"model\.bin is a file, must be a model folder or a \.gguf file"):
        resolved(file)
