"""The table of a CUDA card: limits of a step by its shapes, what the page shows, and what is said without a card."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ramet.bench.figures import gpu as page
from ramet.bench.figures import records
from ramet.bench.gpu.card import GpuCard
from ramet.bench.gpu.experts import MIXTRAL, ExpertShape, Layers
from ramet.bench.gpu.peer import ROUNDS, Transformers, compare
from ramet.bench.gpu.steps import kv_bytes_per_token, prompts, starts, weights_of
from ramet.bench.loads import SHAPE_8B

ROOT = Path(__file__).resolve().parents[2]
LINES = [json.loads(line) for line in (ROOT / "bench" / "results" / "gpu.jsonl").read_text().splitlines()]
WHOLE = next(line for line in LINES if all(part in line for part in page.PARTS))  # one call made it all


def test_weights_of_the_measured_shape_are_those_of_its_parameters():
    layer, head = weights_of(SHAPE_8B)
    whole = layer * SHAPE_8B["num_hidden_layers"] + head
    assert 7.4e9 < whole < 7.6e9  # of 8.03e9, less the embedding, which a step does not read
    assert kv_bytes_per_token(SHAPE_8B) == 131072


def test_prompts_of_a_number_and_of_its_negative_differ():
    assert prompts(1, 20, 5) != prompts(1, 20, -5) and prompts(2, 20, 5) == prompts(2, 20, 5)


def test_the_page_shows_the_newest_whole_run_of_each_card():
    shown = page.tables(LINES)
    newest = [line for line in LINES if "headline" in line][-1]
    assert shown.count("### ") == len({line["card"]["name"] for line in LINES})
    (plain,) = newest["headline"].values()
    assert f"{plain['output_tokens_per_s']:,}" in shown and newest["commit"][:10] in shown
    later = json.loads(json.dumps(WHOLE)) | {"commit": "later"}
    later["headline"]["headline"]["output_tokens_per_s"] = 98765
    assert "98,765" in page.tables([*LINES, later])
    later["peer"] = {"256 x (256 + 256)": {"ramet_tokens_per_s": 4321, "transformers_tokens_per_s": 1234, "times": 3.5}}
    assert "| 256 x (256 + 256) | 4,321 | 1,234 | 3.50 |" in page.tables([*LINES, later])
    later["experts"] = {"experts Mixtral 8x7B, 32 tokens": {"us": 812.5, "torch_us": 900.0, "of_limit": 0.77}}
    assert "| experts Mixtral 8x7B, 32 tokens | 812.5 | 900.0 | 77% |" in page.tables([*LINES, later])
    later["steps"] |= starts([("import runner", 3.0), ("graphs", 2.34)])
    shown = page.tables([*LINES, later])
    assert "| start: graphs | 2.3 |" in shown and "import runner" not in shown
    del later["steps"]
    assert "98,765" not in page.tables([*LINES, later])


def test_calls_at_one_commit_are_one_run():
    """Each part is its newest call's; options of the engine are in the names, and sensors beside the figures."""
    parts = [{name: WHOLE[name]} for name in page.PARTS]
    same = {name: each for name, each in WHOLE.items() if name not in page.PARTS}
    faster = {"headline": {"output_tokens_per_s": 54321, "seconds": 9.0, "itl_ms": 5.0, "failed": 0}}
    more = {
        "headline": faster, "sensors": {"headline": {"mhz": 1234.0, "watts": 567.4}},
        "options": {"max_running": 1024, "quantization": "fp8", "kv_cache_dtype": "auto"},
        "card": WHOLE["card"] | {"flops_per_s": 6.5e14},
    }  # fmt: skip
    shown = page.tables([same | {"commit": "a1"} | part for part in (*parts, more)])
    assert "commit `a1`" in shown and shown.count("- `python -m ramet bench gpu") == 5
    assert "product makes 650 to 709 TFLOP/s" in shown
    assert "| headline | 19,532 | 40.0 | 23.4 | 0 |  |  |" in shown
    assert "| headline, 1,024 rows, fp8 weights | 54,321 | 9.0 | 5.0 | 0 | 1,234 | 567 |" in shown
    assert not page.tables([same | {"commit": "a1"} | part for part in parts[1:]])


def test_the_table_of_kernels_has_of_each_capability_the_newest_run():
    older, newer = records.read(ROOT / "bench" / "results")["gpu_kernels"][:2]
    of_hopper = [each | {"registers": 99} for each in newer["kernels"] if each["capability"] == 90]
    shown = page.kernels([older, newer, newer | {"kernels": of_hopper, "command": "some more"}])
    assert all(("| 99 |" in line) == ("| 9.0 |" in line) for line in shown.splitlines() if line[:3] in ("| 8", "| 9"))
    whole = page.kernels([older, newer])
    assert [line[:12] for line in shown.splitlines()[:-2]] == [line[:12] for line in whole.splitlines()[:-1]]
    assert shown.endswith("`some more`") and newer["time"][:10] in shown


def test_the_table_of_kernels_is_of_plain_attention():
    record = records.read(ROOT / "bench" / "results")["gpu_kernels"][1]
    ahead = [each | {"AHEAD": True, "registers": 254} for each in record["kernels"] if each["kernel"] == "_extend"]
    assert ahead and page.kernels([record | {"kernels": record["kernels"] + ahead}]) == page.kernels([record])


def test_experts_of_both_are_the_same_layer():
    layers = Layers(ExpertShape("small", 4, 2, 32, 48), 9, min_bytes=1, device="cpu")
    ours, theirs = layers.ours(*layers.layers[0]), layers.of_torch(*layers.layers[0])
    assert (ours.float() - theirs.float()).norm() < 0.02 * theirs.float().norm()


def test_the_limit_of_experts_is_what_is_read_or_what_is_multiplied():
    assert MIXTRAL.num_experts * MIXTRAL.expert_bytes * 32 == pytest.approx(90.2e9, rel=1e-3)  # of Mixtral's 93 GB
    layers = Layers(ExpertShape("small", 4, 2, 32, 48), 9, min_bytes=1, device="cpu")
    read = GpuCard("reads slowly", 1.0, 1.0, 1e30)
    assert layers.limit(read) == 4 * 3 * 32 * 48 * 2  # all experts have tokens
    assert layers.limit(GpuCard("multiplies slowly", 1.0, 1e30, 1.0)) == 9 * 2 * 6 * 32 * 48


class Engine:
    """Takes as long as it is told; its first call, which sets up what stays, a thousand times as long."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self.asked = seconds, list[list[list[int]]]()

    def seconds(self, asked: list[list[int]], num_new: int) -> float:
        self.asked.append(asked)
        return self._seconds * (1 if len(self.asked) > 1 else 1000)


def test_two_engines_get_the_same_new_prompts_in_turn():
    ours, theirs = Engine(2.0), Engine(5.0)
    found = compare(ours, theirs, num=4, length=8, new=10)
    assert found == {"ramet_tokens_per_s": 20, "transformers_tokens_per_s": 8, "times": 2.5}
    assert ours.asked == theirs.asked and len({str(each) for each in ours.asked}) == ROUNDS + 1


def test_transformers_makes_as_many_tokens_as_are_asked_for():
    """On the host: the calls are the same."""
    small = dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2
    )
    theirs = Transformers(
        SHAPE_8B | small | {"vocab_size": 512}, "cpu", torch.float32, num_blocks=8, max_batch_tokens=64
    )
    try:
        for num_new in (5, 3):
            assert theirs.seconds([[7] * 9, [3, 4], [5] * 40], num_new) > 0
    finally:
        theirs.close()


@pytest.mark.parametrize("argv", [[], ["--part", "steps"]])
def test_without_a_card_it_says_so(argv: list[str]):
    done = subprocess.run([sys.executable, "-m", "ramet", "bench", "gpu", *argv], capture_output=True, text=True)
    assert done.returncode == 2 and "no CUDA device" in done.stderr and "Traceback" not in done.stderr
