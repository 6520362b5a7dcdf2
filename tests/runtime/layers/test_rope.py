"""Rotary tables against transformers, to the last bit, and the rotation against its complex form."""

import math
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest
import torch

from ramet.kernels import reference
from ramet.runtime.errors import ConfigError
from ramet.runtime.layers.rope import AxesRope, RopeShape, inverse_frequencies, rope_tables

CPU = torch.device("cpu")
PLAIN = RopeShape(kind="default", theta=10000.0, rotary_dim=64, original_context=256)
LLAMA3 = replace(PLAIN, kind="llama3", theta=5e5, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0)
KINDS: dict[str, tuple[RopeShape, dict[str, Any]]] = {
    "default": (PLAIN, {"rope_type": "default", "rope_theta": 10000.0}),
    "linear": (
        replace(PLAIN, kind="linear", factor=4.0),
        {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0},
    ),
    "dynamic": (
        replace(PLAIN, kind="dynamic", factor=4.0),
        {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 256},
    ),
    "llama3": (
        LLAMA3,
        {
            "rope_type": "llama3",
            "rope_theta": 5e5,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 256,
        },
    ),
    "yarn": (
        replace(PLAIN, kind="yarn", factor=4.0, original_context=64, attention_factor=0.1 * math.log(4) + 1),
        {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64},
    ),
    "yarn as GPT-OSS": (
        replace(
            PLAIN, kind="yarn", theta=1.5e5, factor=32.0, original_context=128, whole_bounds=False, fast_turns=8.0,
            slow_turns=2.0, attention_factor=1.25,
        ),
        {
            "rope_type": "yarn", "rope_theta": 1.5e5, "factor": 32.0, "original_max_position_embeddings": 128,
            "truncate": False, "beta_fast": 8.0, "beta_slow": 2.0, "attention_factor": 1.25,
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_tables_equal_transformers(kind: str) -> None:
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    rope, parameters = KINDS[kind]
    config = LlamaConfig(
        hidden_size=256, num_attention_heads=4, max_position_embeddings=256, rope_parameters=dict(parameters)
    )
    cos, sin = LlamaRotaryEmbedding(config)(torch.zeros(1, 256, 1), torch.arange(256)[None])
    ours = rope_tables(rope, 256, CPU)
    assert torch.equal(ours[0], cos[0, :, :32]) and torch.equal(ours[1], sin[0, :, :32])


LONGROPE = replace(
    PLAIN, kind="longrope", original_context=64, factor=4.0, attention_factor=math.sqrt(1 + math.log(4) / math.log(64)),
    short_factors=tuple(1 + i / 32 for i in range(32)), long_factors=tuple(1 + i / 2 for i in range(32)),
)  # fmt: skip


AXES = {
    "qwen2_vl": ("Qwen2VL", (4, 16, 12), False),
    "qwen2_5_vl": ("Qwen2_5_VL", (16, 8, 8), False),
    "qwen3_vl": ("Qwen3VLText", (12, 11, 9), True),
}


@pytest.mark.parametrize("module", AXES)
def test_tables_of_tokens_in_three_axes_equal_transformers(module: str) -> None:
    models = import_module(f"transformers.models.{module}")
    name, sections, interleaved = AXES[module]
    parameters = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": list(sections)}
    config = getattr(models, f"{name.removesuffix('Text')}TextConfig")(
        hidden_size=256, num_attention_heads=4, head_dim=64, rope_parameters=parameters
    )
    positions = torch.randint(0, 100_000, (3, 50), generator=torch.Generator().manual_seed(0))
    made = getattr(import_module(f"transformers.models.{module}.modeling_{module}"), f"{name}RotaryEmbedding")(config)
    cos, sin = made(torch.zeros(1, 50, 1), positions[:, None])
    rope = replace(PLAIN, theta=1e6, sections=sections, interleaved=interleaved)
    ours = AxesRope(rope, CPU).tables(positions)
    assert torch.equal(ours[0], cos[0, :, :32]) and torch.equal(ours[1], sin[0, :, :32])
    assert ours[0].is_contiguous() and ours[1].is_contiguous()  # as kernels read them
    text = positions[:1].expand(3, -1) % 256
    plain = rope_tables(rope, 256, CPU)
    assert all(torch.equal(one, other[text[0]]) for one, other in zip(AxesRope(rope, CPU).tables(text), plain))


def test_a_longrope_has_two_tables_one_behind_the_other() -> None:
    from transformers import Phi3Config
    from transformers.models.phi3.modeling_phi3 import Phi3RotaryEmbedding

    factors = {"short_factor": list(LONGROPE.short_factors), "long_factor": list(LONGROPE.long_factors)}
    config = Phi3Config(
        hidden_size=256, num_attention_heads=4, max_position_embeddings=256, original_max_position_embeddings=64,
        rope_parameters={"rope_type": "longrope", "rope_theta": 10000.0, **factors}, pad_token_id=0,
    )  # fmt: skip
    theirs = Phi3RotaryEmbedding(config)
    ours = rope_tables(LONGROPE, 256, CPU)
    for num, start in ((64, 0), (256, 64)):
        for own, table in zip(ours, theirs(torch.zeros(1, num, 1), torch.arange(num)[None]), strict=True):
            assert torch.equal(own[start : start + num], table[0, :, :32])
    assert len(ours[0]) == 64 + 256 and LONGROPE.longrope_limit(256) == 64
    assert len(rope_tables(LONGROPE, 64, CPU)[0]) == 64 and LONGROPE.longrope_limit(64) is None


def test_rotation_is_a_complex_product() -> None:
    cos, sin = rope_tables(PLAIN, 50, CPU)
    x = torch.randn(3, 2, 64, dtype=torch.float32)
    positions = torch.tensor([0, 7, 49])
    turned = torch.complex(x[..., :32], x[..., 32:]) * torch.complex(cos, sin)[positions][:, None]
    reference.rotate(x, cos, sin, positions)
    torch.testing.assert_close(x, torch.cat((turned.real, turned.imag), -1))


def test_llama3_keeps_short_waves_and_slows_long_ones() -> None:
    plain, scaled = inverse_frequencies(replace(LLAMA3, kind="default")), inverse_frequencies(LLAMA3)
    assert scaled[0] == plain[0]
    assert torch.isclose(scaled[-1], plain[-1] / 8)


def test_dynamic_beyond_its_trained_context_is_refused() -> None:
    with pytest.raises(ConfigError, match="--context-length is 257, must be at most 256"):
        rope_tables(KINDS["dynamic"][0], 257, CPU)
