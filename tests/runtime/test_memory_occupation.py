"""Memory that an engine gives back and takes again: the system has it meanwhile, and outputs are those before."""

import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from adapters import make_adapter
from quantised_checkpoints import Kind, quantise_folder
from samples import sampled
from tiny_families import make_family
from tiny_model import make_tiny

from ramet.runtime.errors import ClientError
from ramet.runtime.llm import LLM
from ramet.runtime.weights.ahead import SUFFIX

PROMPTS = [[5, 9, 200, 31, 7], list(range(20, 60)), [100] * 9]
PARAMS = {"temperature": 0, "max_new_tokens": 12, "ignore_eos": True}
OPTIONS: dict[str, Any] = {"max_total_tokens": 2048, "log_level": "error", "check_invariants": True}
Outputs = list[tuple[list[int], float]]


def outputs_of(llm: LLM, **more: Any) -> Outputs:
    """Tokens, and the log-probability of them all, to the last bit."""
    replies = llm.generate(PROMPTS, PARAMS, return_logprob=True, **more)
    return [(reply["output_ids"], reply["meta_info"]["output_token_logprobs"]) for reply in replies]


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_the_system_has_the_memory_until_it_is_resumed(tmp_path: Path) -> None:
    """Of weights from the checkpoint, and of those that an earlier start has kept and this one maps."""
    folder = make_tiny(tmp_path / "m", hidden=512, layers=3, intermediate=2048, vocab=6144, tied=False)
    kept = tmp_path / "kept"
    options = {**OPTIONS, "max_total_tokens": 16384, "max_itl_ms": 60000.0}  # which fills the pool
    gives_memory_back(folder, {**options, "weights_cache_dir": str(kept)})
    assert [each.stat().st_size > 64 << 20 for each in kept.iterdir() if each.suffix == SUFFIX] == [True]
    gives_memory_back(folder, {**options, "weights_cache_dir": str(kept)})


def gives_memory_back(folder: Path, options: dict[str, Any]) -> None:
    with LLM(folder, **options) as llm:
        expected = outputs_of(llm)
        size = sum(llm.resolved[name] for name in ("weight_bytes", "kv_pool_bytes"))
        before = resident_bytes()
        llm.release_memory_occupation()
        released = resident_bytes()
        assert before - released > 0.8 * size > 100 << 20
        llm.resume_memory_occupation()
        assert outputs_of(llm) == expected
        assert resident_bytes() - released > 0.8 * size


@pytest.mark.parametrize("tags", [["weights"], ["kv_cache"], ["cuda_graph"], ["weights", "kv_cache"], None], ids=str)
def test_outputs_are_the_same_afterwards(tmp_path: Path, tags: list[str] | None) -> None:
    with LLM(make_tiny(tmp_path / "m"), **OPTIONS) as llm:
        expected = outputs_of(llm)
        for _ in range(2):
            llm.flush_cache()  # a prompt that is found is rounded otherwise
            llm.release_memory_occupation(tags)
            llm.resume_memory_occupation(tags)
            assert outputs_of(llm) == expected


def test_the_cache_is_empty_after_its_memory_was_released_and_not_after_the_weights(tmp_path: Path) -> None:
    with LLM(make_tiny(tmp_path / "m"), **OPTIONS) as llm:
        for tag, is_cached in (("weights", True), ("cuda_graph", True), ("kv_cache", False)):
            llm.generate(PROMPTS, PARAMS)
            llm.release_memory_occupation([tag])
            llm.resume_memory_occupation([tag])
            (reply,) = llm.generate(PROMPTS[1], PARAMS)
            assert (reply["meta_info"]["cached_tokens"] > 0) is is_cached


FORMS: list[dict[str, Any]] = [
    {"quantization": "int8"}, {"quantization": "int4"}, {"kv_cache_dtype": "int8"}, {"load_format": "dummy"},
    {"overlap": "on"}, {"attention_backend": "reference"}, {"disable_cuda_graph": True},
]  # fmt: skip


@pytest.mark.parametrize("options", sampled(FORMS, 4), ids=str)
def test_in_every_form(tmp_path: Path, options: dict[str, Any]) -> None:
    comes_back_the_same(make_tiny(tmp_path / "m"), **options)


@pytest.mark.parametrize("family", ["qwen3-next", "gpt-oss", "deepseek-v2"])  # states, experts, latents
def test_of_every_kind_of_layer(tmp_path: Path, family: str) -> None:
    comes_back_the_same(make_family(tmp_path / "m", family, 1))


def test_a_quantised_checkpoint(tmp_path: Path) -> None:
    quantise_folder(make_tiny(tmp_path / "m"), tmp_path / "awq", tmp_path / "meant", Kind("awq"))
    comes_back_the_same(tmp_path / "awq")


def comes_back_the_same(folder: Path, **options: Any) -> None:
    with LLM(folder, **OPTIONS, **options) as llm:
        expected = outputs_of(llm)
        llm.release_memory_occupation()
        llm.resume_memory_occupation()
        assert outputs_of(llm) == expected


def test_heads_stay(tmp_path: Path) -> None:
    folder = make_family(tmp_path / "m", "qwen3", 1, "AutoModelForSequenceClassification")
    with LLM(folder, **OPTIONS) as llm:
        expected = llm.classify(PROMPTS, use_activation=False)
        llm.release_memory_occupation()
        llm.resume_memory_occupation()
        assert llm.classify(PROMPTS, use_activation=False) == expected


def test_adapters_stay_and_none_is_loaded_or_missed_meanwhile(tmp_path: Path) -> None:
    folder = make_tiny(tmp_path / "m", tied=False)
    adapter = make_adapter(folder, tmp_path / "adapter", 3, merges=False, r=4, target_modules=["q_proj", "down_proj"])
    with LLM(folder, **OPTIONS, lora_paths=(f"own={adapter.folder}", f"gone={adapter.folder}")) as llm:
        expected = outputs_of(llm), outputs_of(llm, lora_path="own")
        assert expected[1] == outputs_of(llm, lora_path="gone") != expected[0]
        llm.release_memory_occupation()
        with pytest.raises(ClientError, match="weights are released"):
            llm.load_lora_adapter("other", str(adapter.folder))
        llm.unload_lora_adapter("gone")
        llm.resume_memory_occupation()
        assert (outputs_of(llm), outputs_of(llm, lora_path="own")) == expected
        llm.load_lora_adapter("other", str(adapter.folder))
        assert outputs_of(llm, lora_path="other") == expected[1]


def later(llm: LLM, pool: ThreadPoolExecutor) -> Future[Any]:
    """A call whose sequences wait."""
    call = pool.submit(outputs_of, llm)
    while llm.state()["waiting_requests"] < len(PROMPTS):
        pass
    return call


def test_what_is_asked_meanwhile_waits_until_all_of_it_is_back(tmp_path: Path) -> None:
    with LLM(make_tiny(tmp_path / "m"), **OPTIONS) as llm, ThreadPoolExecutor(1) as pool:
        expected = outputs_of(llm)
        llm.release_memory_occupation()
        call, steps = later(llm, pool), llm.state()["steps"]
        llm.resume_memory_occupation(["weights", "cuda_graph"])
        state = llm.state()
        assert state["steps"] == steps and "/resume_memory_occupation" in state["paused"]
        llm.resume_memory_occupation()
        assert call.result() == expected and not llm.state()["paused"]


def test_a_pause_and_a_release_end_each_by_itself(tmp_path: Path) -> None:
    with LLM(make_tiny(tmp_path / "m"), **OPTIONS) as llm, ThreadPoolExecutor(1) as pool:
        expected = outputs_of(llm)
        llm.pause_generation("retract")
        call, steps = later(llm, pool), llm.state()["steps"]
        llm.release_memory_occupation()  # what waits during a pause does not run
        llm.continue_generation()
        assert llm.state()["steps"] == steps
        llm.pause_generation("retract")
        llm.resume_memory_occupation()
        assert llm.state()["steps"] == steps and not call.done()
        llm.continue_generation()
        assert call.result() == expected


def test_retracted_requests_go_on_where_they_were(tmp_path: Path) -> None:
    params = {**PARAMS, "max_new_tokens": 300}
    with LLM(make_tiny(tmp_path / "m"), **OPTIONS) as llm, ThreadPoolExecutor(1) as pool:
        expected = [reply["output_ids"] for reply in llm.generate(PROMPTS, params)]
        before = llm.state()["generated_tokens"]
        call = pool.submit(llm.generate, PROMPTS, params)
        while llm.state()["generated_tokens"] < before + 9:
            pass
        llm.pause_generation("retract")
        llm.release_memory_occupation()
        llm.resume_memory_occupation()
        llm.continue_generation()
        assert [reply["output_ids"] for reply in call.result()] == expected


@pytest.mark.parametrize("mode", [None, "in_place"])
def test_nothing_is_released_while_something_runs(tmp_path: Path, mode: str | None) -> None:
    params = {**PARAMS, "max_new_tokens": 500}
    with LLM(make_tiny(tmp_path / "m"), **OPTIONS) as llm, ThreadPoolExecutor(1) as pool:
        call = pool.submit(llm.generate, PROMPTS, params)
        while not llm.state()["running_requests"]:
            pass
        if mode:
            llm.pause_generation(mode)
        with pytest.raises(ClientError, match=r"tags are refused: .* running.*/pause_generation"):
            llm.release_memory_occupation()
        if mode:
            llm.continue_generation()
        assert len(call.result()) == len(PROMPTS)


def test_asking_twice_and_resuming_what_is_there_change_nothing(tmp_path: Path) -> None:
    with LLM(make_tiny(tmp_path / "m"), **OPTIONS) as llm:
        expected = outputs_of(llm)
        llm.resume_memory_occupation()
        for tags in (["weights"], ["weights", "kv_cache"], None, None):
            llm.release_memory_occupation(tags)
        for _ in range(2):
            llm.resume_memory_occupation(["kv_cache"])
        llm.resume_memory_occupation()
        assert outputs_of(llm) == expected


def test_files_that_are_gone_leave_it_released_until_they_are_back(tmp_path: Path) -> None:
    folder = make_tiny(tmp_path / "m")
    with LLM(folder, **OPTIONS) as llm, ThreadPoolExecutor(1) as pool:
        expected = outputs_of(llm)
        llm.release_memory_occupation()
        call = later(llm, pool)
        shutil.move(folder, tmp_path / "away")
        for _ in range(2):
            with pytest.raises(ClientError, match=r"tags are refused: .*config\.json"):
                llm.resume_memory_occupation()
        assert llm.state()["paused"] and not call.done()
        shutil.move(tmp_path / "away", folder)
        llm.resume_memory_occupation()
        assert call.result() == expected


def test_weights_that_were_updated_are_read_from_where_they_came(tmp_path: Path) -> None:
    a, b = (make_tiny(tmp_path / name, seed=seed) for seed, name in enumerate("ab"))
    with LLM(a, **OPTIONS) as llm:
        before = outputs_of(llm)
        llm.update_weights_from_disk(str(b))
        expected = outputs_of(llm)
        shutil.rmtree(a)
        llm.release_memory_occupation()
        llm.resume_memory_occupation()
        assert outputs_of(llm) == expected != before


def test_weights_are_updated_without_a_cache_and_not_while_they_are_released(tmp_path: Path) -> None:
    a, b = (make_tiny(tmp_path / name, seed=seed) for seed, name in enumerate("ab"))
    with LLM(b, **OPTIONS) as fresh:
        expected = outputs_of(fresh)
    with LLM(a, **OPTIONS) as llm:
        outputs_of(llm)
        llm.release_memory_occupation()
        with pytest.raises(ClientError, match="model_path is refused: the weights are released"):
            llm.update_weights_from_disk(str(b))
        llm.resume_memory_occupation(["weights"])
        llm.update_weights_from_disk(str(b))
        llm.resume_memory_occupation()
        assert outputs_of(llm) == expected


def test_weights_through_transformers_are_refused_by_name_and_the_pool_is_not(tmp_path: Path) -> None:
    with LLM(make_tiny(tmp_path / "m"), model_impl="transformers", **OPTIONS) as llm:
        expected = outputs_of(llm)
        with pytest.raises(ClientError, match="served through transformers"):
            llm.release_memory_occupation()
        llm.release_memory_occupation(["kv_cache", "cuda_graph"])
        llm.resume_memory_occupation()
        assert outputs_of(llm) == expected


def test_an_engine_is_closed_while_its_memory_is_released(tmp_path: Path) -> None:
    with LLM(make_tiny(tmp_path / "m"), **OPTIONS) as llm:
        llm.release_memory_occupation()


def test_an_unknown_tag_is_refused_by_name(tmp_path: Path) -> None:
    with (
        LLM(make_tiny(tmp_path / "m"), **OPTIONS) as llm,
        pytest.raises(ClientError, match="tags has 'weight', must be of weights, kv_cache, cuda_graph"),
    ):
        llm.release_memory_occupation(["weight"])
