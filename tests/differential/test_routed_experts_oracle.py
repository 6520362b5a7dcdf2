"""Returned experts equal those that hooks in transformers record, whichever way a token came to be computed."""

import base64
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
from oracle import Oracle
from tiny_families import VOCABULARY, make_family

from ramet.runtime.errors import ClientError, ConfigError
from ramet.runtime.llm import LLM

NUM_NEW, SHARED = 9, 24
LENGTHS = [1, 7, 19, 33, 40]  # the last two share 24 tokens
PARAMS = {"temperature": 0, "max_new_tokens": NUM_NEW, "ignore_eos": True}
Routes = np.ndarray[Any, np.dtype[np.int32]]


class Recorded:
    """transformers, with a hook before the experts of each layer that has some."""

    def __init__(self, folder: Path) -> None:
        self.model = Oracle.load(folder).model
        config = self.model.config
        self.layers, self.per_token = config.num_hidden_layers, config.num_experts_per_tok
        self.sparse = [i for i, layer in enumerate(self.model.model.layers) if hasattr(layer.mlp, "experts")]
        self._chosen: list[Routes] = []
        for i in self.sparse:
            self.model.model.layers[i].mlp.experts.register_forward_pre_hook(self._keep)

    def _keep(self, module: Any, args: tuple[Any, ...]) -> None:
        self._chosen.append(args[1].reshape(-1, self.per_token).numpy().astype(np.int32))

    @torch.inference_mode()
    def routes(self, ids: list[int]) -> Routes:
        """[tokens, layers, per token], each token's in ascending order; zeros in layers without experts."""
        self._chosen.clear()
        self.model(torch.tensor([ids]))
        found = np.zeros((len(ids), self.layers, self.per_token), np.int32)
        found[:, self.sparse] = np.sort(np.stack(self._chosen, 1), axis=-1)
        return found


def read(meta: dict[str, Any], recorded: Recorded) -> Routes:
    """As SGLang's clients do: flat int32, whose shape they know."""
    flat = np.frombuffer(base64.b64decode(meta["routed_experts"].encode("utf-8")), dtype=np.int32)
    return np.sort(flat.reshape(-1, recorded.layers, recorded.per_token), axis=-1)


class Case:
    def __init__(self, folder: Path) -> None:
        self.folder, self.recorded = folder, Recorded(folder)
        rng = np.random.default_rng(3)
        self.prompts = [rng.integers(0, VOCABULARY, n).tolist() for n in LENGTHS]
        self.prompts[-1][:SHARED] = self.prompts[-2][:SHARED]

    def llm(self, **options: Any) -> LLM:
        settled = {"dtype": "float32", "check_invariants": True, "random_seed": 0, "max_total_tokens": 1024}
        return LLM(
            model_path=str(self.folder), enable_return_routed_experts=True, **{"num_threads": 1, **settled, **options}
        )

    def check(self, prompt: list[int], reply: dict[str, Any], start: int = 0) -> None:
        ids = prompt + reply["output_ids"]
        got = read(reply["meta_info"], self.recorded)
        assert len(got) == len(ids) - 1 - start
        np.testing.assert_array_equal(got, self.recorded.routes(ids)[start:-1])

    def check_all(self, llm: LLM, **extras: Any) -> list[dict[str, Any]]:
        replies: list[dict[str, Any]] = llm.generate(self.prompts, PARAMS, return_routed_experts=True, **extras)
        for prompt, reply in zip(self.prompts, replies, strict=True):
            self.check(prompt, reply)
        return replies


@pytest.fixture(scope="module", params=["qwen3-moe", "mixtral", "qwen2-moe", "glm4-moe"])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(make_family(tmp_path_factory.mktemp("routed"), request.param))


@pytest.fixture(scope="module")
def llm(case: Case) -> LLM:
    return case.llm()


def test_of_whole_prompts_and_replayed_steps(case: Case) -> None:
    case.check_all(case.llm(chunked_prefill_size=-1))


def test_of_steps_that_are_computed_call_by_call(case: Case) -> None:
    case.check_all(case.llm(disable_cuda_graph=True, attention_backend="reference"))


def test_of_overlapped_steps(case: Case) -> None:
    case.check_all(case.llm(num_threads=2, overlap="on"))


def test_of_chunks_and_cached_prefixes_on_pages(case: Case) -> None:
    """Cold, then again over what is cached."""
    llm = case.llm(page_size=16, chunked_prefill_size=7)
    for cached in (False, True):
        replies = case.check_all(llm)
        assert (sum(reply["meta_info"]["cached_tokens"] for reply in replies) > 2 * SHARED) is cached


def test_of_prefixes_that_are_copied(case: Case) -> None:
    """A list of prefixes gives each request slots of its own, and copies what is in others into them."""
    llm = case.llm(prefix_cache="list", page_size=16)
    case.check_all(llm)
    replies = case.check_all(llm)
    assert sum(reply["meta_info"]["cached_tokens"] for reply in replies) > SHARED


def test_of_a_prefix_that_a_request_without_experts_has_computed(case: Case) -> None:
    llm = case.llm()
    llm.generate([case.prompts[-2]], PARAMS)
    (reply,) = llm.generate([case.prompts[-1]], PARAMS, return_routed_experts=True)
    assert reply["meta_info"]["cached_tokens"] == SHARED
    case.check(case.prompts[-1], reply)


def test_of_requests_that_were_retracted(case: Case) -> None:
    """Memory for three of the five: some are computed again, over whatever stayed cached."""
    params, prompts = {**PARAMS, "max_new_tokens": 40}, case.prompts[1:]
    llm = case.llm(max_total_tokens=160, schedule_conservativeness=0.01)
    replies = llm.generate(prompts, params, return_routed_experts=True)
    assert sum(reply["meta_info"]["num_retractions"] for reply in replies) > 0
    for prompt, reply in zip(prompts, replies, strict=True):
        case.check(prompt, reply)


def test_of_several_samples(case: Case, llm: LLM) -> None:
    params = {**PARAMS, "temperature": 1.0, "n": 3}
    replies = llm.generate([case.prompts[2]], params, return_routed_experts=True)
    assert len({tuple(reply["output_ids"]) for reply in replies}) > 1
    for reply in replies:
        case.check(case.prompts[2], reply)


def test_of_a_stream_with_its_last_reply(case: Case, llm: LLM) -> None:
    *others, last = llm.stream(case.prompts[3], PARAMS, return_routed_experts=True)
    assert not any("routed_experts" in reply["meta_info"] for reply in others)
    case.check(case.prompts[3], last)


@pytest.mark.parametrize("start", [0, 1, 18, 19])
def test_from_a_token_of_the_prompt_on(case: Case, llm: LLM, start: int) -> None:
    prompt = case.prompts[2]
    extras: dict[str, Any] = {"return_routed_experts": True, "routed_experts_start_len": start}
    for _ in range(2):
        (reply,) = llm.generate([prompt], PARAMS, **extras)
        case.check(prompt, reply, start)


def test_of_a_prompt_without_output(case: Case, llm: LLM) -> None:
    (reply,) = llm.generate([case.prompts[2]], {"max_new_tokens": 0}, return_routed_experts=True)
    case.check(case.prompts[2], reply)
    assert len(read(reply["meta_info"], case.recorded)) == LENGTHS[2] - 1


def test_of_an_output_that_a_stop_token_and_a_constraint_end(case: Case, llm: LLM) -> None:
    """Of what a constraint forces every token has a step of its own."""
    (free,) = llm.generate([case.prompts[2]], PARAMS)
    params = {**PARAMS, "stop_token_ids": [free["output_ids"][4]]}
    (reply,) = llm.generate([case.prompts[2]], params, return_routed_experts=True)
    assert reply["meta_info"]["finish_reason"]["type"] == "stop"
    case.check(case.prompts[2], reply)
    forced = {"temperature": 0, "max_new_tokens": 30, "regex": "abcdefgh(i|j)"}
    (reply,) = llm.generate([case.prompts[2]], forced, return_routed_experts=True)
    case.check(case.prompts[2], reply)


def test_none_where_none_are_asked_for(case: Case, llm: LLM) -> None:
    replies = llm.generate(case.prompts[:2], PARAMS, return_routed_experts=[True, False])
    assert ["routed_experts" in reply["meta_info"] for reply in replies] == [True, False]


def test_a_start_beyond_the_prompt_is_refused(case: Case, llm: LLM) -> None:
    with pytest.raises(ClientError, match=r"routed_experts_start_len is 20, must be in \[0, 19\]"):
        llm.generate([case.prompts[2]], PARAMS, return_routed_experts=True, routed_experts_start_len=20)


def test_a_server_that_keeps_none_refuses_them(case: Case) -> None:
    llm = LLM(model_path=str(case.folder), max_total_tokens=256, num_threads=1)
    with pytest.raises(ClientError, match=r"return_routed_experts is set, but .*--enable-return-routed-experts"):
        llm.generate([case.prompts[1]], PARAMS, return_routed_experts=True)


def test_a_model_without_experts_cannot_keep_any(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--enable-return-routed-experts is on, but LlamaForCausalLM has no experts"):
        LLM(model_path=str(make_family(tmp_path, "llama")), enable_return_routed_experts=True)
