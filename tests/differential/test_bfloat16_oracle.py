"""bfloat16 is as close to float32 as transformers' own bfloat16 is, with each arithmetic that this CPU has.

On the bundled model: its log-probabilities of the texts that it was made for.
"""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from compiled import compiled_kernels

from ramet.kernels.cpu.declarations import native
from ramet.kernels.cpu.measured import ARITHMETICS
from ramet.runtime.config import BUNDLED_MODEL
from ramet.runtime.engine.devices.cpu_kernels import machine, use
from ramet.runtime.llm import LLM
from scripts.demo_model.cases import all_cases

PROMPTS = [case.prompt for case in all_cases()[::40]]
SLACK = 1.05  # two samples of rounding: neither is the smallest possible

Values = npt.NDArray[np.float64]


@torch.inference_mode()
def of_transformers(dtype: torch.dtype, ids: list[list[int]]) -> Values:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(BUNDLED_MODEL, dtype=dtype).eval()
    found = []
    for each in ids:
        rows = torch.log_softmax(model(torch.tensor([each])).logits[0].float(), -1)
        found.append(rows[:-1].gather(1, torch.tensor(each[1:])[:, None])[:, 0].numpy())
    return np.concatenate(found).astype(np.float64)


def of_ramet(dtype: str, ids: list[list[int]]) -> Values:
    params: dict[str, Any] = {"max_new_tokens": 0}
    with LLM(dtype=dtype, random_seed=0, log_level="error") as llm:
        replies = llm.generate(ids, params, return_logprob=True, logprob_start_len=0)
    return np.array([value for r in replies for value, *_ in r["meta_info"]["input_token_logprobs"][1:]])


@pytest.fixture(scope="module")
def ids() -> list[list[int]]:
    from tokenizers import Tokenizer

    assert json.loads((BUNDLED_MODEL / "config.json").read_text())["model_type"] == "llama"
    return [each.ids for each in Tokenizer.from_file(str(BUNDLED_MODEL / "tokenizer.json")).encode_batch(PROMPTS)]


@pytest.fixture(scope="module")
def exact(ids: list[list[int]]) -> Values:
    return of_transformers(torch.float32, ids)


@pytest.fixture(scope="module")
def theirs(ids: list[list[int]], exact: Values) -> float:
    return distance(of_transformers(torch.bfloat16, ids), exact)


@pytest.fixture
def measured_again() -> Iterator[None]:
    yield
    ops = compiled_kernels()
    use(ops.library, machine(ops.library, ops.threads))


def distance(found: Values, exact: Values) -> float:
    """Root of the mean square."""
    return float(np.sqrt(np.mean((found - exact) ** 2)))


@pytest.mark.parametrize("arithmetic", ARITHMETICS)
def test_bfloat16_is_as_close_to_float32_as_transformers(
    arithmetic: str,
    ids: list[list[int]],
    exact: Values,
    theirs: float,
    monkeypatch: pytest.MonkeyPatch,
    measured_again: None,
) -> None:
    library, number = compiled_kernels().library, ARITHMETICS.index(arithmetic)
    if not library.ramet_has_arithmetic(number):
        pytest.skip("this CPU would compute in float32 again")
    monkeypatch.setattr("ramet.runtime.engine.devices.cpu_kernels.use", lambda *_: None)
    native(library, "choose_linear")(number, number, 0)
    native(library, "choose_attention")(int(arithmetic == "dots"), int(arithmetic == "tiles"))
    found = of_ramet("bfloat16", ids)
    assert len(found) > 1000 and 0 < distance(found, exact) <= SLACK * theirs, (distance(found, exact), theirs)


def test_float32_is_float32(ids: list[list[int]], exact: Values) -> None:
    np.testing.assert_allclose(of_ramet("float32", ids), exact, atol=1e-4)
