"""The models and the loads of `ramet bench offline` and `peers`: shapes and lengths, no measuring."""

import random
from dataclasses import dataclass

SHAPE = {  # 160M class
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 768, "num_hidden_layers": 12,
    "num_attention_heads": 12, "num_key_value_heads": 12, "intermediate_size": 2048, "vocab_size": 32000,
    "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
    "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "bfloat16",
}  # fmt: skip

SHAPE_1B = SHAPE | {
    "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 8192, "vocab_size": 128256, "tie_word_embeddings": True, "rope_theta": 500000.0,
}  # fmt: skip

SHAPE_8B = SHAPE_1B | {
    "hidden_size": 4096, "num_hidden_layers": 32, "intermediate_size": 14336, "max_position_embeddings": 16384,
    "tie_word_embeddings": False,
}  # fmt: skip


@dataclass(frozen=True)
class Load:
    name: str
    requests: int
    shared: int  # tokens that all prompts begin with
    own: int
    output: int
    target: float  # ratio to transformers that must hold
    their_batch: int  # requests that transformers gets at once
    cached: bool = False  # whether the prompts are computed before the clock starts

    def prompts(self, seed: int) -> list[list[int]]:
        draw = random.Random(f"{self.name} {seed}")
        head = self._ids(draw, self.shared)
        return [head + self._ids(draw, self.own) for _ in range(self.requests)]

    @staticmethod
    def _ids(draw: random.Random, num: int) -> list[int]:
        return draw.choices(range(3, int(str(SHAPE["vocab_size"]))), k=num)


LOADS = (
    Load("single", 1, 0, 256, 128, 1.0, their_batch=1),
    Load("batch", 32, 0, 256, 128, 1.0, their_batch=32),
    Load("shared", 64, 1024, 128, 16, 5.0, their_batch=8),
)
GROWN_SHAPE = SHAPE | {"max_position_embeddings": 16384}
LENGTHS = (128, 256, 512, 1024, 2048, 4096, 8192)
GROWTH = (
    *(Load(f"batch of {num}", num, 0, 256, 128, 1.0, num) for num in (1, 2, 4, 8, 16, 32, 64)),
    *(Load(f"prompt of {num}", 1, 0, num, 1, 1.0, 1) for num in LENGTHS),
    *(Load(f"context of {num}", 1, 0, num, 64, 1.0, 1, cached=True) for num in LENGTHS),
)
PEER_LOADS = (
    Load("single", 1, 0, 128, 128, 1.0, 1),
    Load("batch", 32, 0, 256, 128, 1.0, 32),
    Load("shared", 64, 1024, 32, 16, 1.0, 8),
)
