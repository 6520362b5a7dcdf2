"""llama.cpp by its own library: a batch of sequences a step, on a GGUF file made once from the checkpoint.

As its server does, prompts go in batches of tokens of several sequences, a common prefix is computed once and copied
(`llama_memory_seq_cp`), and every decode step has a token of each sequence. A cache for each sequence is faster where
they share nothing, a cache for all (`kv_unified`) where they do, so there is a context of each. The quantized files are
made by `llama_model_quantize`, as its own tool does.
"""

import ctypes
import json
import os
import struct
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import llama_cpp as ll
import numpy as np
from protocol import arguments, serve, shared_length

FTYPES = {"q8_0": ll.LLAMA_FTYPE_MOSTLY_Q8_0, "q4_0": ll.LLAMA_FTYPE_MOSTLY_Q4_0}
NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}  # fmt: skip
TOP = {"model.embed_tokens": "token_embd", "lm_head": "output", "model.norm": "output_norm"}
MAX_BATCH = 2048
APART: dict[str, Any] = {"sequences": 32, "tokens": 32 * 512, "unified": False}
TOGETHER: dict[str, Any] = {"sequences": 64, "tokens": 8192, "unified": True}


def write_gguf(model: Path, path: Path) -> None:
    """The bfloat16 checkpoint as it is, norms in float32."""
    config = json.loads((model / "config.json").read_text())
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_rope_dimension_count(config["hidden_size"] // heads)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("no_vocab")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    for name, bits in _tensors(model / "model.safetensors"):
        *parts, _ = name.removeprefix("model.layers.").split(".")
        short = TOP.get(name.removesuffix(".weight"))
        target = f"{short or f'blk.{parts[0]}.' + NAMES['.'.join(parts[1:])]}.weight"
        if bits.ndim == 1:
            writer.add_tensor(target, (bits.astype(np.uint32) << 16).view(np.float32))
            continue
        if "q_proj" in name or "k_proj" in name:  # its rotation takes neighbours, not halves of a head
            num = heads if "q_proj" in name else kv_heads
            bits = bits.reshape(num, 2, -1, bits.shape[1]).swapaxes(1, 2).reshape(bits.shape)
        data = np.ascontiguousarray(bits).view(np.uint8)
        writer.add_tensor(target, data, raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _tensors(path: Path) -> list[tuple[str, Any]]:
    """Name and bits, uint16, of each bfloat16 tensor."""
    (size,) = struct.unpack("<Q", path.open("rb").read(8))
    header = json.loads(path.read_bytes()[8 : 8 + size])
    data = np.memmap(path, np.uint8, "r", 8 + size)
    header.pop("__metadata__", None)
    return [
        (name, data[slice(*each["data_offsets"])].view(np.uint16).reshape(each["shape"]))
        for name, each in header.items()
    ]


def quantize(source: Path, path: Path, kind: str) -> None:
    params = ll.llama_model_quantize_default_params()
    params.ftype = FTYPES[kind]
    if ll.llama_model_quantize(os.fsencode(source), os.fsencode(path), ctypes.byref(params)):
        raise SystemExit(f"llama.cpp could not quantize to {kind}")


class Engine:
    """A context of a model."""

    def __init__(self, model: Any, sequences: int, tokens: int, unified: bool, **settings: Any) -> None:
        """`tokens`: of all sequences together."""
        self.model = model
        params = ll.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_seq_max = tokens, MAX_BATCH, sequences
        params.n_threads = params.n_threads_batch = len(os.sched_getaffinity(0))
        params.kv_unified, params.no_perf = unified, True
        for name, value in settings.items():
            setattr(params, name, value)
        self.context = ll.llama_init_from_model(self.model, params)
        self.memory = ll.llama_get_memory(self.context)
        self.vocab = ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(self.model))
        heads, layers = ll.llama_model_n_head_kv(self.model), ll.llama_model_n_layer(self.model)
        head = ll.llama_model_n_embd(self.model) // ll.llama_model_n_head(self.model)
        self.pool_bytes = tokens * 2 * head * heads * layers * 2  # keys and values in float16
        self.batch = ll.llama_batch_init(MAX_BATCH, 0, 1)

    def generate(self, prompts: list[list[int]], output: int) -> list[list[int]]:
        """The most probable tokens of each prompt."""
        ll.llama_memory_clear(self.memory, False)
        shared = shared_length(prompts)
        if shared:
            self._prefill([(0, at, token, False) for at, token in enumerate(prompts[0][:shared])])
            for sequence in range(1, len(prompts)):
                ll.llama_memory_seq_cp(self.memory, 0, sequence, -1, -1)
        rest = [
            (sequence, at, ids[at], at == len(ids) - 1)
            for sequence, ids in enumerate(prompts)
            for at in range(shared, len(ids))
        ]
        found = self._prefill(rest)
        texts = [[token] for token in found]
        for step in range(output - 1):
            found = self._decode([(s, len(ids) + step, found[s], True) for s, ids in enumerate(prompts)])
            for text, token in zip(texts, found):
                text.append(token)
        return texts

    def _prefill(self, entries: list[tuple[int, int, int, bool]]) -> list[int]:
        return [
            token for at in range(0, len(entries), MAX_BATCH) for token in self._decode(entries[at : at + MAX_BATCH])
        ]

    def _decode(self, entries: list[tuple[int, int, int, bool]]) -> list[int]:
        """Entries are (sequence, position, token, whether what follows is asked for); the tokens that follow."""
        batch = self.batch
        batch.n_tokens = len(entries)
        for i, (sequence, at, token, wanted) in enumerate(entries):
            batch.token[i], batch.pos[i], batch.logits[i] = token, at, wanted
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
        if code := ll.llama_decode(self.context, batch):
            raise SystemExit(f"llama_decode gives {code}")
        return [
            int(np.ctypeslib.as_array(ll.llama_get_logits_ith(self.context, i), (self.vocab,)).argmax())
            for i, entry in enumerate(entries)
            if entry[3]
        ]


def load(path: Path) -> Any:
    ll.llama_backend_init()
    return ll.llama_model_load_from_file(os.fsencode(path), ll.llama_model_default_params())


def prepare(model: Path, work: Path, weights: str) -> Path:
    path = work / f"{model.name}-{weights}.gguf"
    if not path.exists():
        plain = work / f"{model.name}-bf16.gguf"
        if not plain.exists():
            write_gguf(model, plain)
        if weights != "bf16":
            quantize(plain, path, weights)
    return path


if __name__ == "__main__":
    o = arguments(weights="bf16")
    path = prepare(o.model, o.work, o.weights)
    if o.prepare:
        raise SystemExit
    model = load(path)
    apart = Engine(model, **APART)

    @cache
    def together() -> Engine:
        return Engine(model, **TOGETHER)

    def lengths(prompts: list[list[int]], output: int) -> list[int]:
        engine = together() if shared_length(prompts) else apart
        return [len(ids) for ids in engine.generate(prompts, output)]

    serve(ll.__version__, lengths, pool_bytes=apart.pool_bytes)
