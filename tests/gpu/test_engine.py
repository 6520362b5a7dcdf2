"""On a CUDA device the engine gives what transformers gives on the same checkpoint, whatever runs its steps."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "differential"))
from oracle import Oracle
from tiny_families import make_family
from tiny_model import make_tiny

from ramet.runtime.llm import LLM

pytestmark = pytest.mark.gpu
NUM_NEW = 20
WAYS: dict[str, dict[str, Any]] = {
    "usual": {},
    "without graphs": {"disable_cuda_graph": True},
    "without overlap": {"overlap": "off"},
    "in small chunks": {"chunked_prefill_size": 7, "page_size": 16},
    "by the reference": {"attention_backend": "reference"},
}


def prompts_of(seed: int, num: int, longest: int, vocab: int = 250) -> list[list[int]]:
    chance = np.random.default_rng(seed)
    prompts = [chance.integers(5, vocab, int(n)).tolist() for n in chance.integers(1, longest, num)]
    for i in range(2, num, 3):
        prompts[i] = prompts[i - 2][:40] + prompts[i]
    return prompts


class Model:
    """A checkpoint, its oracle on the CPU in float32, and prompts of which every third shares a prefix."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.oracle = Oracle.load(folder, attn_implementation="eager")  # others leave out Gemma 2's cap of scores
        self.prompts = prompts_of(1, 33, 90)
        self.expected = [self.oracle.greedy(prompt, NUM_NEW) for prompt in self.prompts]

    def llm(self, **options: Any) -> LLM:
        usual = {"dtype": "float32", "max_total_tokens": 8192, "log_level": "error", "random_seed": 0}
        return LLM(model_path=str(self.folder), device="cuda", check_invariants=True, **(usual | options))


@pytest.fixture(
    scope="module",
    params=["llama", "gemma2", "gemma3", "qwen3", "deepseek-v2", "deepseek-v3", "qwen3-next", "qwen3.5"],
)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    folder = tmp_path_factory.mktemp(request.param)
    yield Model(make_tiny(folder) if request.param == "llama" else make_family(folder, request.param))


def tokens(llm: LLM, prompts: list[list[int]], **params: Any) -> list[list[int]]:
    asked = {"temperature": 0, "max_new_tokens": NUM_NEW, "ignore_eos": True} | params
    return [reply["output_ids"] for reply in llm.generate(prompts, asked)]


@pytest.mark.parametrize("way", WAYS)
def test_greedy_equals_the_oracle(model: Model, way: str) -> None:
    with model.llm(**WAYS[way]) as llm:
        for which in (range(33), range(0, 33, 2)):  # the second time with a warm cache
            outputs = tokens(llm, [model.prompts[i] for i in which])
            for i, output in zip(which, outputs, strict=True):
                again = lambda prompt, num: tokens(llm, [prompt], max_new_tokens=num)[0]  # noqa: E731
                model.oracle.check(model.prompts[i], output, model.expected[i], again)


SAMPLED: list[dict[str, Any]] = [
    {"temperature": 0.8},
    {"temperature": 1.0, "top_p": 0.9, "top_k": 20},
    {"temperature": 1.0, "min_p": 0.05},
    {"temperature": 0.7, "frequency_penalty": 0.5, "presence_penalty": 0.3, "repetition_penalty": 1.2},
    {"temperature": 1.0, "regex": "[a-z ]{5,40}"},
]


def test_draws_are_the_same_whatever_runs_them(tmp_path: Path) -> None:
    """The numbers of logits differ in their last bits from way to way, so now and then a draw falls otherwise."""
    folder = make_tiny(tmp_path)
    found: dict[str, list[list[int]]] = {}
    for way in ("usual", "without graphs", "without overlap"):
        usual = {"dtype": "float32", "max_total_tokens": 8192, "log_level": "error", "random_seed": 0}
        with LLM(model_path=str(folder), device="cuda", **usual, **WAYS[way]) as llm:
            found[way] = []
            for params in SAMPLED:
                asked = params | {"max_new_tokens": 16, "sampling_seed": 5, "ignore_eos": "regex" not in params}
                replies = llm.generate(prompts_of(2, 20, 60), asked)
                assert all(reply["meta_info"]["finish_reason"]["type"] != "abort" for reply in replies)
                found[way] += [reply["output_ids"] for reply in replies]
    usual_tokens = [token for output in found["usual"] for token in output]
    for way, outputs in found.items():
        same = sum(a == b for a, b in zip(outputs, found["usual"], strict=True))
        assert same >= 0.95 * len(outputs), (way, same, len(outputs))
    assert len(set(usual_tokens)) > 50


def test_many_requests_that_come_and_go(tmp_path: Path) -> None:
    """More rows than the largest graph, retraction, and rows that end at different steps."""
    folder = make_tiny(tmp_path)
    prompts = prompts_of(3, 200, 60)
    options = {"dtype": "float32", "log_level": "error", "random_seed": 0, "max_running_requests": 64}
    outputs = []
    for more in ({"cuda_graph_max_bs": 16, "max_total_tokens": 2048}, {"overlap": "off", "max_total_tokens": 16384}):
        with LLM(model_path=str(folder), device="cuda", check_invariants=True, **options, **more) as llm:
            lengths = [{"temperature": 0, "max_new_tokens": 1 + i % 40, "ignore_eos": True} for i in range(200)]
            outputs.append([reply["output_ids"] for reply in llm.generate(prompts, lengths)])
            assert [len(output) for output in outputs[-1]] == [1 + i % 40 for i in range(200)]
    assert sum(a == b for a, b in zip(*outputs, strict=True)) >= 198  # a tie may fall otherwise


def test_no_step_waits_for_the_device_but_for_its_tokens(tmp_path: Path) -> None:
    """torch refuses everything that would wait in between."""
    options = {"dtype": "bfloat16", "log_level": "error", "max_total_tokens": 8192, "random_seed": 0}
    plain: dict[str, Any] = {"max_new_tokens": 12, "ignore_eos": True}
    with LLM(model_path=str(make_tiny(tmp_path)), device="cuda", **options) as llm:
        for seed, debug in ((1, "default"), (2, "error")):
            torch.cuda.set_sync_debug_mode(debug)
            try:
                for params in (plain, plain | SAMPLED[1], plain | SAMPLED[3]):
                    replies = llm.generate(prompts_of(seed, 20, 60), params)
                    assert [len(reply["output_ids"]) for reply in replies] == [12] * 20
            finally:
                torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_halves_are_as_close_to_float32_as_transformers(dtype: str, tmp_path: Path) -> None:
    """Root of the mean square of log-probabilities of prompts, beside that of transformers on the same device."""
    from transformers import AutoModelForCausalLM

    folder = make_tiny(tmp_path, hidden=256, layers=4, heads=8, kv_heads=2, intermediate=512, vocab=512)
    prompts = prompts_of(4, 20, 300)

    @torch.inference_mode()
    def of_transformers(kind: torch.dtype) -> np.ndarray:
        network = AutoModelForCausalLM.from_pretrained(folder, dtype=kind).eval().to("cuda")
        found = []
        for ids in prompts:
            at = torch.tensor([ids], device="cuda")
            logs = torch.log_softmax(network(at).logits[0].float(), -1)
            found.append(logs[:-1].gather(1, at[0, 1:, None])[:, 0].cpu().numpy())
        return np.concatenate(found)

    with LLM(model_path=str(folder), device="cuda", dtype=dtype, log_level="error", max_total_tokens=8192) as llm:
        asked: dict[str, Any] = {"max_new_tokens": 0}
        replies = llm.generate(prompts, asked, return_logprob=True, logprob_start_len=0)
    ours = np.array([value for r in replies for value, *_ in r["meta_info"]["input_token_logprobs"][1:]])
    exact = of_transformers(torch.float32)
    theirs = of_transformers(getattr(torch, dtype))
    distance = [float(np.sqrt(np.mean((each - exact) ** 2))) for each in (ours, theirs)]
    assert distance[0] <= 1.1 * distance[1], distance
