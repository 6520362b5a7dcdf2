"""Parts of the table of a CUDA card, with small shapes on the host: each runs, and limits are sums by hand."""

import sys
from importlib import import_module
from math import inf

import pytest

from ramet.bench.gpu import attention, headline, linears, offline_headline, products, sampling, tune
from ramet.bench.gpu.attention import Shape
from ramet.bench.gpu.card import GpuCard
from ramet.bench.gpu.lines import LineOptions
from ramet.bench.gpu.sensors import Sensors
from ramet.bench.gpu.steps import StepModel, limit_s
from ramet.bench.gpu.table import MODULES
from ramet.bench.loads import SHAPE_8B
from ramet.kernels.tuned import ExtendTuning

CARD = GpuCard("made up", 3e12, 4e12, 7e14)
SMALL = SHAPE_8B | {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 128, "vocab_size": 100_000, "max_position_embeddings": 1024,
}  # fmt: skip
DECODE = Shape(2, 40, heads=4, kv_heads=2, head_dim=16)
EXTEND = Shape(1, 40, 9, heads=4, kv_heads=2, head_dim=16)
PROMPT = Shape(1, 20, 20, heads=4, kv_heads=2, head_dim=16)


@pytest.mark.parametrize("part", ["attention", "prompts", "short-extends", "few-kv-heads", "float8-cache"])
def test_parts_of_attention_run(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = import_module(f"ramet.bench.gpu.{MODULES.get(part, part.replace('-', '_'))}")
    shapes = {
        "attention": {"DECODES": [DECODE], "EXTENDS": [EXTEND]},
        "prompts": {"SHAPES": [PROMPT]},
        "short-extends": {"SHAPES": [EXTEND]},
        "few-kv-heads": {"SHAPES": [DECODE]},
        "float8-cache": {"SHAPES": [DECODE, EXTEND]},
    }
    for name, value in shapes[part].items():
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(attention, "MIN_BYTES", 1)
    lines = list(module.figures(CARD, LineOptions()))
    assert lines and all(0 <= share < inf for _, found in lines for share in found.values())


def test_products_and_packed_layers_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (products, linears):
        monkeypatch.setattr(module, "SHAPE_8B", SMALL | {"hidden_size": 128})
        monkeypatch.setattr(module, "TOKENS", (1, 70))
        monkeypatch.setattr(module, "MIN_BYTES", 1 << 17)
        for _, found in module.figures(CARD, LineOptions()):
            assert found["us"] > 0
    (weight,) = linears._copies(linears.MAKERS["int4"], "int4", 128, 64)[:1]
    same = linears.copied(weight)
    assert same.words.data_ptr() != weight.words.data_ptr() and same.words.equal(weight.words)


def test_parts_that_measure_an_engine_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "ROWS", (2,))
    monkeypatch.setattr(offline_headline, "TRACED_S", 0.01)
    monkeypatch.setattr(offline_headline, "TRACED_AFTER_S", 0.01)
    monkeypatch.setattr(offline_headline, "LONGEST_OUTPUT", 6)
    monkeypatch.setattr(offline_headline, "WARM", 2)
    model = StepModel(SMALL, max_total_tokens=4096)
    try:
        (_, found), *_ = sampling.figures(CARD, LineOptions(), model)
        assert found["times"] > 0
        lines = offline_headline.figures(CARD, LineOptions(num_prompts=6), model)
        (_, whole) = next(lines)
        assert whole["steps"] > 5 and whole["tokens_a_step"] > 1
    finally:
        model.close()


def test_time_in_which_nothing_runs_is_not_busy() -> None:
    assert offline_headline.busy_share([(10, 20), (15, 18), (40, 60), (19, 25)]) == (15 + 20) / 50


def test_limits_by_hand() -> None:
    layer = 2 * (4096 * 6144 + 4096 * 4096 + 3 * 4096 * 14336)
    assert sum(products.limit_s(CARD, 1, *size) for size in products.sizes_of(SHAPE_8B).values()) == pytest.approx(
        layer / 4e12
    )
    assert products.limit_s(CARD, 1024, 4096, 4096) == 2 * 1024 * 4096**2 / 7e14
    assert products.limit_s(CARD, 1024, 4096, 4096, 1.0, 2.0) == 1024 * 4096**2 / 7e14
    packed = LineOptions(quantization="fp8", kv_cache_dtype="fp8")
    head = 2 * 4096 * 128256
    assert limit_s(SHAPE_8B, CARD, 1, 1000, options=packed) == pytest.approx(
        (32 * layer / 2 + head + 1000 * 65536) / 4e12
    )
    contexts = offline_headline.contexts_of([5, 1], [3, 1])
    assert contexts == 5 + 6 + 7 + 1
    many = offline_headline.draw(20_000, 3)
    lengths = [len(prompt) for prompt in many[0]], many[1]
    assert offline_headline.contexts_of(*lengths) == pytest.approx(headline.mean_contexts(20_000), rel=0.02)
    whole = headline.load_limit_s(CARD, LineOptions(), SHAPE_8B, 10, 2, 100)
    assert whole == pytest.approx((12 * 32 * layer + 2 * head) / 7e14 + 100 * 131072 / 4e12)


def test_the_engine_and_the_server_have_the_same_options() -> None:
    options = LineOptions(max_running=7, quantization="fp8", kv_cache_dtype="fp8")
    words = "--quantization fp8 --kv-cache-dtype fp8 --max-running-requests 7 --cuda-graph-max-bs 7"
    assert options.flags == words.split()


def test_sensors_give_medians_since_the_last_lap() -> None:
    lines = "1000, 300.5, 40\\n[N/A], 1, 2\\n2000, 500, 50\\n1200, 400, 41\\n"
    sensors = Sensors([sys.executable, "-c", f"print('{lines}', end='')"])
    sensors._thread.join()
    assert sensors.lap() == {"mhz": 1200, "watts": 400, "celsius": 41} and sensors.lap() == {}
    sensors.close()


def test_wide_heads_have_ways_of_their_own() -> None:
    assert ExtendTuning(128, 32, 8, 2) in tune.extend_tunings(256)
    assert ExtendTuning(128, 32, 8, 2) not in tune.extend_tunings(128)
