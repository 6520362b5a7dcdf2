"""Other weights for a model that runs: every output is that of its version's weights, whichever way they came."""

import json
import logging
import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from stored_checkpoints import Stored, store_folder
from tiny_model import make_tiny

from ramet.runtime.errors import ClientError, ServerError
from ramet.runtime.llm import LLM

Tokens = list[int]
PROMPTS: list[Tokens] = [[5, 9, 200, 31, 7], list(range(20, 60)), [100] * 9, [7, 8, 9] * 11]
PARAMS = {"temperature": 0, "max_new_tokens": 40, "ignore_eos": True}
OPTIONS: dict[str, Any] = {"max_total_tokens": 4096, "log_level": "error", "check_invariants": True}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    where = tmp_path_factory.mktemp("models")
    return str(make_tiny(where / "a", seed=1, tied=False)), str(make_tiny(where / "b", seed=2, tied=False))


def outputs_of(llm: LLM, prompts: list[Tokens] = PROMPTS) -> list[Tokens]:
    return [reply["output_ids"] for reply in llm.generate(prompts, PARAMS)]


@pytest.fixture(scope="module")
def expected(folders: tuple[str, str]) -> dict[str, list[Tokens]]:
    """What fresh engines say, by version."""
    found = {}
    for version, folder in zip("ab", folders, strict=True):
        with LLM(folder, **OPTIONS) as llm:
            found[version] = outputs_of(llm)
    assert all(a != b for a, b in zip(found["a"], found["b"], strict=True))
    return found


@pytest.fixture
def llm(folders: tuple[str, str]) -> Iterator[LLM]:
    with LLM(folders[0], **OPTIONS) as found:
        found._loop.run(renamed(found, "a"))
        yield found


async def renamed(llm: LLM, version: str) -> None:
    llm._handle.admin.weights.rename(version)


def test_every_reply_under_load_is_wholly_of_the_version_that_it_names(
    llm: LLM, folders: tuple[str, str], expected: dict[str, list[Tokens]]
) -> None:
    with ThreadPoolExecutor(8) as pool:
        seen, ended = list[dict[str, Any]](), False

        def ask() -> None:
            while not ended:
                seen.extend(zip(range(len(PROMPTS)), llm.generate(PROMPTS, PARAMS), strict=True))

        asking = [pool.submit(ask) for _ in range(4)]
        try:
            for version in "babab":
                before = len(seen)
                while len(seen) < before + 8:
                    pass
                llm.update_weights_from_disk(folders["ab".index(version)], version)
        finally:
            ended = True
        for each in asking:
            each.result()
    versions = [reply["meta_info"]["weight_version"] for _, reply in seen]
    assert set(versions) == {"a", "b"}
    for (at, reply), version in zip(seen, versions, strict=True):
        assert reply["output_ids"] == expected[version][at]
        assert "weight_versions" not in reply["meta_info"]


def paused(llm: LLM, pool: ThreadPoolExecutor, mode: str, least: int = 3) -> Future[Any]:
    """A call whose sequences have drawn some tokens each, when generation is paused."""
    params = {**PARAMS, "max_new_tokens": 400}
    call = pool.submit(llm.generate, PROMPTS, params)
    while llm.state()["generated_tokens"] < least * len(PROMPTS):
        pass
    llm.pause_generation(mode)
    return call


def test_sequences_that_keep_their_keys_say_where_the_version_changed(
    llm: LLM, folders: tuple[str, str], expected: dict[str, list[Tokens]]
) -> None:
    with ThreadPoolExecutor(8) as pool:
        call = paused(llm, pool, "in_place")
        llm.update_weights_from_disk(folders[1], "b")
        later = pool.submit(outputs_of, llm)
        llm.continue_generation()
        for at, reply in enumerate(call.result()):
            one, other = reply["meta_info"]["weight_versions"]
            assert (one["version"], one["start"], other["version"], other["end"]) == ("a", 0, "b", 400)
            assert one["end"] == other["start"] > 0
            common = min(one["end"], 40)
            assert reply["output_ids"][:common] == expected["a"][at][:common]
            assert reply["meta_info"]["weight_version"] == "b"
        assert later.result() == expected["b"]
    again = llm.generate(call.result()[1]["output_ids"][:40], {"max_new_tokens": 1})
    assert again[0]["meta_info"]["cached_tokens"] == 0
    assert outputs_of(llm) == expected["b"]  # nothing of what the old keys have computed is found


def test_retracted_sequences_go_on_as_the_other_weights_would(llm: LLM, folders: tuple[str, str]) -> None:
    with ThreadPoolExecutor(8) as pool:
        call = paused(llm, pool, "retract")
        llm.update_weights_from_disk(folders[1], "b")
        llm.continue_generation()
        replies = call.result()
    with LLM(folders[1], **OPTIONS) as other:
        for prompt, reply in zip(PROMPTS, replies, strict=True):
            start = reply["meta_info"]["weight_versions"][1]["start"]
            rest = {**PARAMS, "max_new_tokens": 400 - start}
            (expected,) = other.generate([prompt + reply["output_ids"][:start]], rest)
            assert reply["output_ids"][start:] == expected["output_ids"]


def test_what_an_abort_pause_ends_is_of_the_old_weights_and_what_follows_of_the_new(
    llm: LLM, folders: tuple[str, str], expected: dict[str, list[Tokens]]
) -> None:
    with ThreadPoolExecutor(8) as pool:
        call = paused(llm, pool, "abort")
        llm.update_weights_from_disk(folders[1], "b")
        later = pool.submit(outputs_of, llm)
        llm.continue_generation()
        for at, reply in enumerate(call.result()):
            common = reply["output_ids"][:40]
            assert common == expected["a"][at][: len(common)] and reply["meta_info"]["weight_version"] == "a"
        assert later.result() == expected["b"]


def test_a_prompt_that_was_half_computed_is_refused_where_its_numbers_would_be_of_both(
    llm: LLM, folders: tuple[str, str]
) -> None:
    with ThreadPoolExecutor(8) as pool:
        call = pool.submit(llm.embed, [[i + 1, *range(100)] for i in range(400)])
        while llm.state()["finished_requests"] == 0:
            pass
        llm.pause_generation("in_place")
        llm.update_weights_from_disk(folders[1], "b")
        llm.continue_generation()
        with pytest.raises(ServerError, match="send it again"):
            call.result()


def changed(folder: str, where: Path, how: str) -> str:
    """A copy of a checkpoint in which something is wrong."""
    copy = where / how.replace(" ", "-")
    shutil.copytree(folder, copy)
    tensors = load_file(copy / "model.safetensors")
    config = json.loads((copy / "config.json").read_text())
    match how:
        case "a tensor is missing":
            del tensors["model.norm.weight"]
        case "a tensor has another shape":
            tensors["model.norm.weight"] = torch.ones(63)
        case "a number is no weight":
            tensors["model.layers.1.mlp.down_proj.weight"][3, 5] = torch.nan
        case "another config":
            config["rope_theta"] = 5e5
    (copy / "config.json").write_text(json.dumps(config))
    save_file(tensors, copy / "model.safetensors")
    if how == "no weights":
        (copy / "model.safetensors").unlink()
    return str(copy)


WRONG = {
    "a tensor is missing": "model.norm.weight",
    "a tensor has another shape": r"\[63\]",
    "a number is no weight": "nan",
    "another config": "another model.*layers",
    "no weights": "safetensors",
}


@pytest.mark.parametrize("how", WRONG)
def test_what_cannot_be_served_is_refused_and_changes_nothing(
    llm: LLM, folders: tuple[str, str], expected: dict[str, list[Tokens]], tmp_path: Path, how: str
) -> None:
    with pytest.raises(ClientError, match=WRONG[how]):
        llm.update_weights_from_disk(changed(folders[1], tmp_path, how), "b")
    assert outputs_of(llm) == expected["a"]
    assert llm.generate([1, 2], {"max_new_tokens": 1})[0]["meta_info"]["weight_version"] == "a"


class Cutting(logging.Handler):
    """Makes a file shorter at the line that is logged when its headers have been read and its tensors have not."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file

    def emit(self, record: logging.LogRecord) -> None:
        if "are widened" in record.getMessage():
            with self._file.open("rb+") as opened:
                opened.truncate(5000)


def test_a_file_that_becomes_shorter_while_it_is_read_changes_nothing(folders: tuple[str, str], tmp_path: Path) -> None:
    store_folder(Path(folders[0]), tmp_path / "stored", tmp_path / "meant", Stored("fp8_inverse", "block"))
    shutil.copytree(tmp_path / "stored", tmp_path / "cut")
    cutting = Cutting(tmp_path / "cut" / "model.safetensors")
    with LLM(str(tmp_path / "stored"), **{**OPTIONS, "log_level": "warning"}) as llm:
        before = outputs_of(llm)
        logging.getLogger("ramet").addHandler(cutting)
        try:
            with pytest.raises(ClientError, match=r"cut/model\.safetensors was changed while it was read"):
                llm.update_weights_from_disk(str(tmp_path / "cut"), "b")
        finally:
            logging.getLogger("ramet").removeHandler(cutting)
        assert outputs_of(llm) == before


def test_a_folder_that_is_not_there_is_refused(llm: LLM) -> None:
    with pytest.raises(ClientError, match=r"model_path is refused: nowhere has no config\.json"):
        llm.update_weights_from_disk("nowhere")


def test_an_operators_mistake_is_no_traceback(llm: LLM, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ClientError, match=r"xxx\.\.\. cannot be read: File name too long"):
        llm.update_weights_from_disk("x" * 5000)
    (tmp_path / "config.json").write_bytes(b"\xff\xfe{}")
    with pytest.raises(ClientError, match=r"config\.json is not UTF-8 text: invalid start byte at byte 0"):
        llm.update_weights_from_disk(str(tmp_path))
    assert not [record for record in caplog.records if record.exc_info]
