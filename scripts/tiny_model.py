"""Seeded, untrained Llama checkpoints in Hugging Face format, each with a tokenizer: for tests and speed.

Decides shapes, weights and the tokenizer's training text; same arguments, same bytes. Imports no transformers.
Weights are scaled so that the layers outweigh the embedding in the residual stream: greedy output then depends on the
context and does not repeat its input.

    python scripts/tiny_model.py FOLDER --hidden 64 --layers 2
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIAL_TOKENS = (
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|pad|>",
    "<|tool_call|>",
    "<|tool_result|>",
    "<|think|>",
)
BOS, EOS, TURN_END, PAD = 0, 1, 3, 4

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

ONSETS = ["b", "c", "d", "f", "g", "h", "l", "m", "n", "p", "r", "s", "t", "v", "w"]
ONSETS += ["st", "tr", "ch", "sh", "th", "gr", "pl", ""]
NUCLEI = ["a", "e", "i", "o", "u", "ea", "ou", "ai", "io"]
CODAS = ["", "", "n", "r", "s", "t", "l", "nd", "ng", "st"]
COMMON = [
    "the",
    "of",
    "and",
    "to",
    "in",
    "is",
    "that",
    "it",
    "for",
    "as",
    "with",
    "on",
    "are",
    "this",
    "by",
    "be",
    "at",
]
COMMON += ["from", "or", "an", "was", "not", "which", "we", "can", "has"]


def make_tiny(
    folder: str | Path,
    *,
    seed: int = 0,
    hidden: int = 64,
    layers: int = 2,
    heads: int = 4,
    kv_heads: int = 2,
    intermediate: int = 128,
    vocab: int = 512,
    context: int = 2048,
    tied: bool = True,
    rope_scaling: dict[str, Any] | None = None,
    dtype: str = "float32",
    head_dim: int | None = None,
    attention_bias: bool = False,
    mlp_bias: bool = False,
) -> Path:
    """Write the folder (made if missing) and return it."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocab,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim or hidden // heads,
        "intermediate_size": intermediate,
        "max_position_embeddings": context,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "rope_scaling": rope_scaling,
        "attention_bias": attention_bias,
        "mlp_bias": mlp_bias,
        "tie_word_embeddings": tied,
        "torch_dtype": dtype,
        "bos_token_id": BOS,
        "eos_token_id": [EOS, TURN_END],
        "pad_token_id": PAD,
    }
    write_json(folder / "config.json", config)
    weights = {name: tensor.to(getattr(torch, dtype)) for name, tensor in _weights(config, seed)}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    write_tokenizer(folder, vocab, seed, context)
    generation = {"bos_token_id": BOS, "eos_token_id": [EOS, TURN_END], "pad_token_id": PAD, "do_sample": False}
    write_json(folder / "generation_config.json", generation)
    return folder


def _weights(config: dict[str, Any], seed: int) -> Iterator[tuple[str, torch.Tensor]]:
    """(name, float32 tensor) of every weight. RandomState's stream is frozen for good, unlike Generator's."""
    random = np.random.RandomState(seed)

    def normal(std: float, *shape: int) -> torch.Tensor:
        return torch.from_numpy((random.standard_normal(shape) * std).astype(np.float32))

    hidden, width = config["hidden_size"], config["intermediate_size"]
    queries = config["num_attention_heads"] * config["head_dim"]
    keys = config["num_key_value_heads"] * config["head_dim"]
    yield "model.embed_tokens.weight", normal(0.3, config["vocab_size"], hidden)
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}."
        yield at + "input_layernorm.weight", 1 + normal(0.1, hidden)
        for name, rows, columns, gain in (
            ("self_attn.q_proj", queries, hidden, 1.5),
            ("self_attn.k_proj", keys, hidden, 1.5),
            ("self_attn.v_proj", keys, hidden, 1.5),
            ("self_attn.o_proj", hidden, queries, 1.5),
            ("mlp.gate_proj", width, hidden, 1.5),
            ("mlp.up_proj", width, hidden, 1.0),
            ("mlp.down_proj", hidden, width, 1.5),
        ):
            yield at + name + ".weight", normal(gain / columns**0.5, rows, columns)
            if config["attention_bias" if "attn" in name else "mlp_bias"]:
                yield at + name + ".bias", normal(0.2, rows)
        yield at + "post_attention_layernorm.weight", 1 + normal(0.1, hidden)
    yield "model.norm.weight", 1 + normal(0.1, hidden)
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", normal(0.3, config["vocab_size"], hidden)


def _training_text(seed: int, lines: int) -> Iterator[str]:
    """Invented words, numbers, JSON and code-like lines: enough repetition for merges, nothing copied."""
    random = np.random.RandomState(seed + 1)

    def pick(options: list[str]) -> str:
        return options[random.randint(len(options))]

    words = [
        "".join(pick(ONSETS) + pick(NUCLEI) + pick(CODAS) for _ in range(1 + random.randint(3))) for _ in range(3000)
    ]
    words += COMMON * 20
    for _ in range(lines):
        sentence = " ".join(pick(words) for _ in range(4 + random.randint(9)))
        match random.randint(4):
            case 0:
                yield f"{sentence.capitalize()}. {random.randint(10000)} + {random.randint(100)} = ?\n"
            case 1:
                yield f'{{"{pick(words)}": "{pick(words)}", "{pick(words)}": [{random.randint(1000)}, true, null]}}\n'
            case 2:
                yield f"def {pick(words)}({pick(words)}, {pick(words)}):\n"
                yield f"    return {pick(words)}[{random.randint(10)}]\n"
            case _:
                yield f"{sentence.capitalize()}, {pick(words)} {pick(words)}. Été, naïve, 東京, Москва, 😀.\n"


def write_tokenizer(folder: Path, vocab: int, seed: int, context: int) -> None:
    tokenizer = Tokenizer(models.BPE(byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    specials = [AddedToken(text, special=True, normalized=False) for text in SPECIAL_TOKENS]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=specials,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_training_text(seed, lines=max(400, 2 * vocab)), trainer)
    assert tokenizer.get_vocab_size() <= vocab, f"{tokenizer.get_vocab_size()} entries do not fit --vocab {vocab}"
    tokenizer.save(str(folder / "tokenizer.json"))
    names = dict(bos_token=SPECIAL_TOKENS[BOS], eos_token=SPECIAL_TOKENS[TURN_END], pad_token=SPECIAL_TOKENS[PAD])
    settings = {
        **names,
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
        "model_max_length": context,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    write_json(folder / "tokenizer_config.json", settings)


def write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="write a seeded, untrained Llama folder")
    parser.add_argument("folder")
    defaults = dict(seed=0, hidden=64, layers=2, heads=4, kv_heads=2, intermediate=128, vocab=512, context=2048)
    for name, value in defaults.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=value)
    parser.add_argument("--untied", action="store_true")
    parser.add_argument("--rope-scaling", type=json.loads, default=None, help="JSON object")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    args = parser.parse_args()
    sizes = {name: vars(args)[name] for name in defaults}
    print(make_tiny(args.folder, **sizes, tied=not args.untied, rope_scaling=args.rope_scaling, dtype=args.dtype))


if __name__ == "__main__":
    main()
