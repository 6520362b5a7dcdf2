"""Prompts with parallel contexts equal transformers given their positions and their 4D mask, in float32.

The oracle computes each prompt in one forward pass, without a cache and without parts.
"""

import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from context_prompts import generate, layout, without_known_logprob
from samples import sampled

from ramet.ipc.content import Contexts
from ramet.runtime.llm import LLM

sys.path.insert(0, str(Path(__file__).resolve().parent))
from oracle import TIE

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
from tiny_families import VOCABULARY, make_family

NUM_NEW, NEAR = 8, 1e-4
GREEDY = {"temperature": 0, "max_new_tokens": NUM_NEW, "ignore_eos": True}
# number of tokens, groups
SHAPES: list[tuple[int, Contexts]] = [
    (60, ((20, 10, 15, 7),)),
    (40, ((0, 13, 16),)),  # nothing before
    (90, ((16, 16, 32), (70, 3, 9, 1))),  # whole pages, then a second group
    (80, ((9, 20, 20), (49, 11, 5), (66, 4, 4))),  # groups that follow each other
    (50, ((10, 1, 1, 1, 30),)),
    (50, ((30, 12),)),  # a single context is text
    (200, ((30, 20, 20, 120),)),  # longer than what the kernel does alone
    (201, ((30, 20, 20, 120),)),  # the same but for the first context: see `prompts_of`
]


def prompts_of(seed: int) -> list[tuple[list[int], Contexts]]:
    rng = np.random.default_rng(seed)
    made = [(rng.integers(0, VOCABULARY, num).tolist(), contexts) for num, contexts in SHAPES]
    ids = made[-2][0]
    made[-1] = ([*ids[:30], *made[-1][0][30:50], *ids[50:], 5], made[-1][1])
    return made


class Oracle:
    def __init__(self, folder: Path) -> None:
        from transformers import AutoModelForCausalLM

        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    @torch.inference_mode()
    def logits(self, ids: list[int], contexts: Contexts) -> torch.Tensor:
        """[L, V]"""
        positions, sees = layout(len(ids), contexts)
        hidden = torch.zeros(sees.shape).masked_fill(torch.from_numpy(~sees), torch.finfo(torch.float32).min)
        asked = {"position_ids": torch.from_numpy(positions)[None], "attention_mask": hidden[None, None]}
        return self.model(torch.tensor([ids]), use_cache=False, **asked).logits[0]

    def check_greedy(self, ids: list[int], contexts: Contexts, output: list[int]) -> None:
        """Each token is the best one after those before it, or as good."""
        rows = self.logits(ids + output, contexts)[len(ids) - 1 : -1]
        chosen = rows.gather(1, torch.tensor(output)[:, None])[:, 0]
        assert bool((rows.max(dim=1).values - chosen < TIE).all()), output


@pytest.fixture(scope="module", params=["llama", "mistral", "qwen2", "qwen3"])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Oracle]:
    more: dict[str, Any] = {"sliding_window": None} if request.param == "mistral" else {}
    folder = make_family(tmp_path_factory.mktemp("contexts"), request.param, **more)
    return folder, Oracle(folder)


def make_llm(folder: Path, **options: Any) -> LLM:
    settled = {"dtype": "float32", "check_invariants": True, "random_seed": 0, "max_total_tokens": 2048}
    return LLM(model_path=str(folder), **{**settled, **options})


OPTIONS = [
    {"attention_backend": backend, "page_size": page, "chunked_prefill_size": chunk, "disable_radix_cache": off}
    for backend in ("cpu", "reference")
    for page in (1, 16)
    for chunk in (7, -1)
    for off in (False, True)
]


@pytest.mark.parametrize("options", sampled(OPTIONS, 2, seed=1))
def test_greedy_output_is_the_oracles_cold_and_warm(case: tuple[Path, Oracle], options: dict[str, Any]):
    folder, oracle = case
    prompts = prompts_of(1)
    with make_llm(folder, **options) as llm:
        for _ in range(2):
            for (ids, contexts), reply in zip(prompts, generate(llm, prompts, GREEDY), strict=True):
                oracle.check_greedy(ids, contexts, reply["output_ids"])


@pytest.mark.parametrize(
    ("options", "start"),
    sampled(product(({}, {"page_size": 16, "overlap": "on"}, {"disable_radix_cache": True}), (0, 25, 47)), 1, seed=2),
)
def test_log_probabilities_of_prompt_and_output_are_the_oracles(
    case: tuple[Path, Oracle], options: dict[str, Any], start: int
):
    folder, oracle = case
    prompts = [each for each in prompts_of(2) if len(each[0]) > start]
    asked = dict(return_logprob=True, logprob_start_len=start, top_logprobs_num=2, token_ids_logprob=[7])
    with make_llm(folder, chunked_prefill_size=16, **options) as llm:
        for _ in range(2):
            for (ids, contexts), reply in zip(prompts, generate(llm, prompts, GREEDY, **asked), strict=True):
                check_logprobs(oracle, ids, contexts, reply, start)


def check_logprobs(oracle: Oracle, ids: list[int], contexts: Contexts, reply: dict[str, Any], start: int) -> None:
    meta, output = reply["meta_info"], reply["output_ids"]
    rows = torch.log_softmax(oracle.logits(ids + output, contexts), dim=-1)
    _, sees = layout(len(ids), contexts)
    bare = without_known_logprob(contexts) | {start}
    told = zip(meta["input_token_logprobs"], meta["input_top_logprobs"], meta["input_token_ids_logprobs"], strict=True)
    assert len(meta["input_token_logprobs"]) == len(ids) - start
    for at, (token, top, chosen) in enumerate(told, start):
        assert token[1] == ids[at]
        if at in bare:
            assert token[0] is top is chosen is None, at
            continue
        row = rows[int(np.flatnonzero(sees[at, :at])[-1])]  # of the last token before it that it sees
        assert token[0] == pytest.approx(float(row[ids[at]]), abs=NEAR), at
        assert [value for value, _, _ in top] == pytest.approx(torch.topk(row, 2).values.tolist(), abs=NEAR)
        assert chosen[0][0] == pytest.approx(float(row[7]), abs=NEAR)
    for at, (value, token, _) in enumerate(meta["output_token_logprobs"], len(ids) - 1):
        assert value == pytest.approx(float(rows[at][token]), abs=NEAR)


def test_hidden_states_are_the_oracles(case: tuple[Path, Oracle]):
    folder, oracle = case
    (ids, contexts) = prompts_of(3)[2]
    with make_llm(folder, page_size=16) as llm:
        generate(llm, [(ids, contexts)], GREEDY)  # a warm cache must not shorten them
        (reply,) = generate(llm, [(ids, contexts)], GREEDY, return_hidden_states=True)
    positions, sees = layout(len(ids), contexts)
    hidden = torch.zeros(sees.shape).masked_fill(torch.from_numpy(~sees), torch.finfo(torch.float32).min)
    with torch.inference_mode():
        states = oracle.model.model(
            torch.tensor([ids]), position_ids=torch.from_numpy(positions)[None], attention_mask=hidden[None, None]
        ).last_hidden_state[0]
    np.testing.assert_allclose(np.array(reply["meta_info"]["hidden_states"][0]), states, atol=1e-3, rtol=1e-3)


def test_a_model_with_a_window_refuses_contexts_by_name(tmp_path: Path):
    with make_llm(make_family(tmp_path, "gemma2")) as llm:
        ids, contexts = prompts_of(1)[0]
        (reply,) = generate(llm, [(ids, contexts)], GREEDY)
        reason = reply["meta_info"]["finish_reason"]
        assert reason["type"] == "abort" and reason["status_code"] == 400
        assert "contexts" in reason["message"] and "sliding window" in reason["message"]
        (single,) = generate(llm, [(ids, ((20, 32),))], GREEDY)  # one context is text, whatever the layers see
        (plain,) = generate(llm, [(ids, ())], GREEDY)
        assert single["output_ids"] == plain["output_ids"]


def test_the_languages_calls_compute_contexts_apart(case: tuple[Path, Oracle]):
    folder, oracle = case
    texts, before, after = ["the sea is blue", "on the hill", "a ship that sails on the sea"], "It was so:", "\nIt was"
    prompt = [before, {"contexts": texts}, after]
    choices = [" the sea", " a hill on the"]
    with make_llm(folder) as llm:
        asked = {"prompt": prompt, "token_healing": False}
        greedy = {"sampling_params": GREEDY, "return_logprob": True}
        generated = llm.language.wait(llm.language.generate({**asked, **greedy}))
        selected = llm.language.wait(llm.language.select({**asked, "choices": choices}))
        first, *rest = (llm.tokenize(text, i == 0) for i, text in enumerate([before, *texts, after]))
    ids = [*first, *(token for piece in rest for token in piece)]
    contexts = ((len(first), *map(len, rest[:-1])),)
    assert generated["meta_info"]["prompt_tokens"] == selected["meta_info"]["prompt_tokens"] == len(ids)
    oracle.check_greedy(ids, contexts, generated["output_ids"])
    for choice in selected["meta_info"]["choices"]:
        own = [token for _, token, _ in choice["token_logprobs"]]
        rows = torch.log_softmax(oracle.logits(ids + own, contexts), dim=-1)[len(ids) - 1 : -1]
        expected = [float(row[token]) for row, token in zip(rows, own, strict=True)]
        assert [value for value, _, _ in choice["token_logprobs"]] == pytest.approx(expected, abs=NEAR)
