"""A Llama in plain torch for training: RMSNorm, rotary attention with grouped keys, SwiGLU, tied embeddings.

Decides the shape of the demo model and the arithmetic of its training. Parameter names are those of a Hugging Face
checkpoint, so saving is a rename of nothing. Knows no corpus and no optimizer.
B rows, T tokens a row, D hidden size, H query heads, G key heads, E head size, V vocabulary.
"""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from scripts.demo_model.document_attention import attend


@dataclass(frozen=True)
class Shape:
    """Sizes of the network; the defaults are the bundled model's."""

    vocab: int = 4096
    hidden: int = 256
    layers: int = 6
    heads: int = 4
    kv_heads: int = 2
    intermediate: int = 704
    context: int = 4096
    rope_theta: float = 10000.0
    norm_eps: float = 1e-5

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads

    def config(self, **token_ids: Any) -> dict[str, Any]:
        """config.json of a Hugging Face folder."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": self.vocab,
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "intermediate_size": self.intermediate,
            "max_position_embeddings": self.context,
            "hidden_act": "silu",
            "rms_norm_eps": self.norm_eps,
            "rope_theta": self.rope_theta,
            "rope_scaling": None,
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": True,
            "torch_dtype": "bfloat16",
            **token_ids,
        }

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Attention(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = shape.heads, shape.kv_heads, shape.head_dim
        width, kv_width = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        self.q_proj = nn.Linear(shape.hidden, width, bias=False)
        self.k_proj = nn.Linear(shape.hidden, kv_width, bias=False)
        self.v_proj = nn.Linear(shape.hidden, kv_width, bias=False)
        self.o_proj = nn.Linear(width, shape.hidden, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, documents: Tensor | None) -> Tensor:
        """x [B, T, D]; cos, sin [T, E]; documents [B, T]: a token sees those before it that have its number."""
        rows, length, _ = x.shape
        weight = torch.cat((self.q_proj.weight, self.k_proj.weight, self.v_proj.weight))
        qkv = F.linear(x, weight).view(rows, length, -1, self.head_dim).transpose(1, 2)  # [B, H+2G, T, E]
        q, k, v = qkv.split((self.heads, self.kv_heads, self.kv_heads), dim=1)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        group = self.heads // self.kv_heads
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        out = (
            F.scaled_dot_product_attention(q, k, v, is_causal=True) if documents is None else attend(q, k, v, documents)
        )
        return self.o_proj(out.transpose(1, 2).reshape(rows, length, -1))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding in Hugging Face's layout: element i pairs with i + E/2."""
    left, right = x.chunk(2, dim=-1)
    return x * cos.to(x.dtype) + torch.cat((-right, left), dim=-1) * sin.to(x.dtype)


class Mlp(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.intermediate, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.intermediate, bias=False)
        self.down_proj = nn.Linear(shape.intermediate, shape.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = F.linear(x, torch.cat((self.gate_proj.weight, self.up_proj.weight))).chunk(2, dim=-1)
        return self.down_proj(F.silu(gate) * up)


class Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(shape.hidden, eps=shape.norm_eps)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = nn.RMSNorm(shape.hidden, eps=shape.norm_eps)
        self.mlp = Mlp(shape)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, documents: Tensor | None) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, documents)
        return x + self.mlp(self.post_attention_layernorm(x))


class Network(nn.Module):
    """The decoder; `forward` gives the weighted next-token loss. Weights are drawn from torch's global seed."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(shape.vocab, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.hidden, eps=shape.norm_eps)
        frequencies = shape.rope_theta ** (-torch.arange(0, shape.head_dim, 2) / shape.head_dim)
        angles = torch.outer(torch.arange(shape.context).float(), frequencies).repeat(1, 2)  # [context, E]
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        self._draw_weights()

    def _draw_weights(self) -> None:
        nn.init.normal_(self.embed_tokens.weight, std=0.02)
        for name, parameter in self.layers.named_parameters():
            if parameter.dim() == 2:
                last = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(parameter, std=0.02 / (2 * self.shape.layers) ** 0.5 if last else 0.04)

    def matrices(self) -> list[nn.Parameter]:
        """Those for Muon."""
        return [parameter for parameter in self.layers.parameters() if parameter.dim() == 2]

    def hidden(self, tokens: Tensor, documents: Tensor | None) -> Tensor:
        """tokens [B, T] int64 -> [B, T, D] after the last norm."""
        x = self.embed_tokens(tokens)
        cos, sin = self.cos[: tokens.shape[1]], self.sin[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x, cos, sin, documents)
        return self.norm(x)

    def forward(self, tokens: Tensor, targets: Tensor, weights: Tensor, documents: Tensor | None) -> Tensor:
        """Mean cross-entropy in nats over `targets` [B, T], weighted by `weights` [B, T] float32.

        `documents` [B, T] numbers the documents of a row: a token sees only its own; None: the row is one document.
        """
        hidden = self.hidden(tokens, documents)
        logits = F.linear(hidden, self.embed_tokens.weight).flatten(0, 1)  # [B*T, V]
        losses = F.cross_entropy(logits.float(), targets.flatten(), reduction="none")
        return (losses * weights.flatten()).sum() / weights.sum()

    def checkpoint(self) -> dict[str, Tensor]:
        """Weights by Hugging Face name, bfloat16."""
        return {f"model.{name}": value.detach().to(torch.bfloat16) for name, value in self.state_dict().items()}
