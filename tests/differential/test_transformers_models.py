"""Models of transformers' modules equal transformers itself on the same files: in steps of many rows, however cut.

Every class of `tiny_others.SERVED` in float32: logits of chunks, of mixed batches and of decoding rows, cold and over a
prefix that another row has computed, in slots of pages of 1 and of 16 tokens. All of them run as slow tests, some of
each kind always. Sequences are longer than windows.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from oracle import Oracle
from steps import make_batch
from tiny_others import SERVED, VOCABULARY, make_other

from ramet.runtime.config import Args, CacheArgs, ExecArgs, ModelArgs, ScheduleArgs
from ramet.runtime.engine.extras import SlotUpdate
from ramet.runtime.engine.runner import ModelRunner
from ramet.runtime.llm import LLM

NEAR, NUM_NEW = 1e-4, 8
IMPLEMENTATIONS = ("native", "transformers")
LENGTHS = {1: 41, 2: 23, 3: 12, 4: 34}
SHARED = 32  # tokens that rows 1 and 4 have in common, two pages of 16
ALWAYS = ["gpt2", "cohere2", "deepseek_v2", "gemma4", "gpt_oss", "granitemoe", "opt", "olmo3", "stablelm"]
STEPS = [  # of a step: tokens of rows 1, 2 and 3
    (9, 14, 1), (1, 0, 8), (7, 0, 1), (1, 1, 1), (19, 1, 0), (1, 1, 1), (1, 1, 0), (1, 5, 0), (1, 0, 0)
]  # fmt: skip


class Case:
    def __init__(self, folder: Path, page_size: int) -> None:
        rng = np.random.RandomState(7)
        self.tokens = {row: rng.randint(3, VOCABULARY, length) for row, length in LENGTHS.items()}
        self.tokens[4][:SHARED] = self.tokens[1][:SHARED]
        pages = iter(1 + rng.permutation(16 * sum(-(-n // 16) for n in LENGTHS.values()) // page_size))
        self.slots = {row: slots_of(pages, length, page_size) for row, length in LENGTHS.items()}
        self.slots[4][:SHARED] = self.slots[1][:SHARED]
        args = Args(
            model=ModelArgs(model_path=str(folder), dtype="float32", model_impl="transformers"),
            cache=CacheArgs(max_total_tokens=256, page_size=page_size),
            schedule=ScheduleArgs(max_running_requests=8),
            execute=ExecArgs(num_threads=1),
        )
        self.runner = ModelRunner(args, lambda name, seconds: None)
        self.positions = self.ties = 0
        model = Oracle.load(folder).model
        with torch.inference_mode():
            self.want = {row: model(torch.from_numpy(ids)[None]).logits[0].float() for row, ids in self.tokens.items()}

    def step(self, parts: list[tuple[int, int, int]], *updates: SlotUpdate) -> None:
        """(row, first new position, end) of each row; every row draws."""
        batch = make_batch(parts, self.tokens, self.slots, slot_updates=updates)
        logits = self.runner.forward(batch).drawn()
        assert logits is not None
        for row, length, got in zip(batch.rows, batch.seq_lens, logits, strict=True):
            self.check(got, self.want[int(row)][int(length) - 1], f"row {row}, token {length - 1}")

    def check(self, got: torch.Tensor, want: torch.Tensor, named: str) -> None:
        distance = (torch.log_softmax(got, -1) - torch.log_softmax(want, -1)).abs().max()
        assert distance < NEAR, f"{named}: log-probabilities are {distance:.1e} away"
        gap = want.topk(2).values
        self.positions += 1
        if int(got.argmax()) != int(want.argmax()):
            assert gap[0] - gap[1] < NEAR, f"{named}: another token is the best one"
            self.ties += 1


def slots_of(pages: Iterator[int], length: int, page_size: int) -> np.ndarray:
    own = [next(pages) for _ in range(-(-length // page_size))]
    return np.concatenate([page * page_size + np.arange(page_size) for page in own])[:length]


def check(folder: Path, page_size: int) -> None:
    case = Case(folder, page_size)
    done = dict.fromkeys((1, 2, 3), 0)
    for step in STEPS:
        parts = [(row, done[row], done[row] + num) for row, num in enumerate(step, 1) if num]
        case.step(parts)
        done = {row: done[row] + step[row - 1] for row in done}
    assert all(done[row] == LENGTHS[row] for row in done)
    shared = SlotUpdate(row=4, start=0, slots=case.slots[4][:SHARED].astype(np.int32))
    case.step([(4, SHARED, SHARED + 1)], shared)
    case.step([(4, SHARED + 1, LENGTHS[4]), (1, LENGTHS[1] - 1, LENGTHS[1])])
    assert case.positions > 20 and case.ties < 0.1 * case.positions


@pytest.mark.parametrize("name", ALWAYS)
def test_any_cut_of_rows_gives_what_transformers_computes(tmp_path: Path, name: str) -> None:
    check(make_other(tmp_path, name), 16 if name in ("gpt2", "gemma4") else 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", SERVED)
def test_every_class_gives_what_transformers_computes(tmp_path: Path, name: str) -> None:
    folder = make_other(tmp_path, name)
    for page_size in (1, 16):
        check(folder, page_size)


class Served:
    """A folder, and transformers' greedy tokens for some prompts, the last of which share 30 tokens."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.oracle = folder, Oracle.load(folder)
        rng = np.random.RandomState(1)
        self.prompts = [rng.randint(3, VOCABULARY, n).tolist() for n in (1, 9, 33, 40, 41)]
        self.prompts[-1][:30] = self.prompts[-2][:30]
        self.expected = [self.oracle.greedy(prompt, NUM_NEW) for prompt in self.prompts]

    def llm(self, **options: Any) -> LLM:
        settled = {"dtype": "float32", "check_invariants": True, "random_seed": 0, "max_total_tokens": 1024}
        return LLM(model_path=str(self.folder), **{**settled, **options})

    def check(self, llm: LLM) -> None:
        """Cold and together, then over what is cached."""
        for _ in range(2):
            for prompt, output, expected in zip(
                self.prompts, self.greedy(llm, self.prompts), self.expected, strict=True
            ):
                self.oracle.check(prompt, output, expected, lambda p, n: self.greedy(llm, [p], n)[0])
        assert self.oracle.ties < 0.01 * self.oracle.positions

    @staticmethod
    def greedy(llm: LLM, prompts: list[list[int]], num_new: int = NUM_NEW) -> list[list[int]]:
        replies = llm.generate(prompts, {"temperature": 0, "max_new_tokens": num_new, "ignore_eos": True})
        return [reply["output_ids"] for reply in replies]


@pytest.fixture(scope="module")
def olmo(tmp_path_factory: pytest.TempPathFactory) -> Served:
    return Served(make_other(tmp_path_factory.mktemp("olmo3"), "olmo3"))


@pytest.mark.parametrize(("page_size", "chunk"), [(1, 7), (16, -1)])
def test_requests_are_chunked_batched_and_cached_as_any(olmo: Served, page_size: int, chunk: int) -> None:
    llm = olmo.llm(page_size=page_size, chunked_prefill_size=chunk)
    olmo.check(llm)
    outputs = {tuple(tokens) for tokens, _ in olmo.expected}
    assert len(outputs) == len(olmo.prompts) and np.mean([len(set(output)) for output in outputs]) > NUM_NEW / 2


def test_logprobs_embeddings_of_tokens_and_states_are_those_of_transformers(olmo: Served) -> None:
    llm, prompt = olmo.llm(chunked_prefill_size=7), olmo.prompts[2]
    params = {"temperature": 0, "max_new_tokens": 1, "ignore_eos": True}
    (reply,) = llm.generate([prompt], params, return_logprob=True, logprob_start_len=0, return_hidden_states=True)
    with torch.inference_mode():
        out = olmo.oracle.model(torch.tensor([prompt]), output_hidden_states=True)
        embedded = olmo.oracle.model.get_input_embeddings()(torch.tensor(prompt)).numpy()
    want = torch.log_softmax(out.logits[0], -1)[range(len(prompt) - 1), prompt[1:]].tolist()
    assert [value for value, _, _ in reply["meta_info"]["input_token_logprobs"][1:]] == pytest.approx(want, abs=NEAR)
    states = np.concatenate([np.atleast_2d(rows) for rows in reply["meta_info"]["hidden_states"]])
    assert states[: len(prompt)] == pytest.approx(out.hidden_states[-1][0].numpy(), abs=NEAR)
    (given,) = llm.generate(embedded[None], {**params, "max_new_tokens": NUM_NEW})
    assert given["output_ids"] == olmo.expected[2][0]


@pytest.mark.parametrize("form", ["int8", "int4"])
def test_weights_are_rounded_as_those_of_a_family(tmp_path: Path, form: str) -> None:
    """A Llama's linear layers and head, in the form that its family keeps them in, make the same tokens."""
    served = Served(make_other(tmp_path, "llama"))
    outputs = [
        Served.greedy(served.llm(quantization=form, model_impl=impl), served.prompts) for impl in IMPLEMENTATIONS
    ]
    assert outputs[0] == outputs[1] != [tokens for tokens, _ in served.expected]


def test_random_weights_need_no_checkpoint(tmp_path: Path, olmo: Served) -> None:
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((olmo.folder / name).read_bytes())
    outputs = [
        Served.greedy(
            LLM(model_path=str(tmp_path), load_format="dummy", random_seed=seed, dtype="float32"), [[5, 6, 7]]
        )
        for seed in (1, 1, 2)
    ]
    assert outputs[0] == outputs[1] != outputs[2]
