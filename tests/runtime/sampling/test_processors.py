"""Logit processors: the built-in ones against a naive reading, those of users by file, name and entry point."""

import re
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ramet.runtime.errors import ConfigError
from ramet.runtime.sampling import processors
from ramet.runtime.sampling.columns import REQUEST, ProcessorRow, ProcessorRows
from ramet.runtime.sampling.processing import process
from ramet.runtime.sampling.processors import LogitProcessor, load, make_all

DOCS = Path(__file__).resolve().parents[3] / "docs" / "sampling.md"
VOCABULARY = 20


@pytest.fixture(autouse=True)
def only_the_built_in(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {name: kind for name, kind in LogitProcessor.registry.items() if kind.__module__ == processors.__name__}
    monkeypatch.setattr(LogitProcessor, "registry", own)


def left(name: str, params: dict[str, Any], output: list[int], memory: dict[str, Any] | None = None) -> list[int]:
    """Tokens that can still be drawn after this output."""
    logits = torch.arange(float(VOCABULARY)).repeat(3, 1)
    rows = ProcessorRows(name, (ProcessorRow(1, 7, params, np.zeros(0, np.int32), np.array(output, np.int32)),))
    assert process(logits, (rows,), make_all(), {} if memory is None else {7: memory}) == {}
    assert logits[0].tolist() == logits[2].tolist() == list(range(VOCABULARY))
    return torch.nonzero(logits[1] > -torch.inf).flatten().tolist()


def group(name: str, rows: list[int], *params: dict[str, Any]) -> ProcessorRows:
    """Rows of requests that have written nothing; their uids are those of the rows."""
    nothing = np.zeros(0, np.int32)
    return ProcessorRows(name, tuple(ProcessorRow(row, row, each, nothing, nothing) for row, each in zip(rows, params)))


EVERY = list(range(VOCABULARY))


def test_forced_tokens_come_first_and_in_order():
    params = {"token_ids": [7, 7, 3]}
    assert [left("force_tokens", params, [7, 7, 3][:n]) for n in range(4)] == [[7], [7], [3], EVERY]


def test_allowed_and_banned_tokens_hold_at_every_place():
    for output in ([], [4], [4, 5, 4]):
        assert left("allow_tokens", {"token_ids": [4, 5]}, output) == [4, 5]
        assert left("ban_tokens", {"token_ids": [0, 19]}, output) == EVERY[1:-1]


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_no_ngram_comes_twice_whether_it_is_read_at_once_or_step_by_step(size: int):
    output = np.random.default_rng(size).integers(0, 4, 60).tolist()
    memory: dict[str, Any] = {}
    for length in range(len(output)):
        own = output[:length]
        seen = {tuple(own[i : i + size]) for i in range(len(own) - size + 1)}
        naive = [t for t in EVERY if (*own[max(0, length - size + 1) :], t) not in seen or length < size - 1]
        params = {"ngram_size": size}
        assert left("no_repeat_ngram", params, own) == left("no_repeat_ngram", params, own, memory) == naive


def test_an_automaton_walks_and_is_free_where_a_state_has_no_transitions():
    params = {"transitions": [{"5": 1, "6": 0}, {"7": 2}, {}]}
    steps = [([], [5, 6]), ([6], [5, 6]), ([6, 5], [7]), ([6, 5, 7], EVERY), ([6, 5, 7, 1], EVERY)]
    memory: dict[str, Any] = {}
    for output, allowed in steps:
        name = "sequence_automaton"
        assert left(name, params, output) == left(name, params, output, memory) == allowed


def test_a_temperature_holds_from_its_place_on():
    for length, divisor in ((0, 1.0), (1, 1.0), (2, 0.5), (9, 0.5), (10, 4.0)):
        params = {"temperatures": [[2, 0.5], [10, 4.0]]}
        row = ProcessorRow(0, 1, params, np.zeros(0, np.int32), np.zeros(length, np.int32))
        logits = torch.arange(8.0)[None].clone()
        process(logits, (ProcessorRows("temperature_by_position", (row,)),), make_all(), {})
        assert logits[0].tolist() == (torch.arange(8.0) / divisor).tolist()


@pytest.mark.parametrize(("name", "params"), [
    ("force_tokens", {}), ("force_tokens", {"token_ids": [True]}), ("ban_tokens", {"token_ids": EVERY}),
    ("allow_tokens", {"token_ids": []}), ("allow_tokens", {"token_ids": [VOCABULARY]}),
    ("no_repeat_ngram", {"ngram_size": 65}), ("temperature_by_position", {"temperatures": [[2, 1.0], [1, 1.0]]}),
    ("sequence_automaton", {"transitions": [{"05": 0}]}), ("sequence_automaton", {"transitions": [{"5": 1}]}),
    ("sequence_automaton", {"transitions": []}),
])  # fmt: skip
def test_parameters_that_cannot_be_are_refused(name: str, params: dict[str, Any]):
    with pytest.raises(ValueError, match=r"must|has the key|leads to"):
        make_all()[name].check(params, VOCABULARY)


def test_the_example_of_the_documentation_works_from_a_file(tmp_path: Path):
    found = re.search(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert found is not None
    (tmp_path / "mine.py").write_text(found[1])
    load(str(tmp_path / "mine.py"))
    mine = make_all()["prefer_token"]
    assert mine.to_str() == "prefer_token"
    with pytest.raises(ValueError, match="token must be"):
        mine.check({"token": VOCABULARY}, VOCABULARY)
    assert mine(torch.zeros(2, 4), [{"token": 1}, {"token": 3}]).tolist() == [[0, 5, 0, 0], [0, 0, 0, 5]]


def test_a_module_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    code = "from ramet.runtime.sampling.processors import LogitProcessor\n\n"
    (tmp_path / "some_processors.py").write_text(code + "class Named(LogitProcessor):\n    name = 'x-1'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    load("some_processors")
    assert "x-1" in make_all()


@pytest.mark.parametrize("module", ["no_such_module_at_all", "/no/such/file.py"])
def test_a_module_that_is_not_there_is_told(module: str):
    with pytest.raises(ConfigError, match=r"--logit-processor-module is .*cannot be imported"):
        load(module)


def test_two_of_one_name_and_an_entry_point_of_another_kind_are_refused(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(ConfigError, match="two logit processors are named ban_tokens"):
        type("BanTokens", (LogitProcessor,), {})
    point = metadata.EntryPoint("odd", "os:getcwd", processors.GROUP)
    monkeypatch.setattr(processors, "entry_points", lambda group: [point])
    with pytest.raises(ConfigError, match=r"entry point odd .* must be a LogitProcessor"):
        load("")


def test_a_failure_ends_its_own_row_alone():
    class FailsAtOne(LogitProcessor):
        def __call__(self, logits: torch.Tensor, custom_param_list: list[dict[str, Any]]) -> torch.Tensor:
            assert not any(params["bad"] for params in custom_param_list), "told"
            return logits + 1

    class Empties(LogitProcessor):
        def __call__(self, logits: torch.Tensor, custom_param_list: list[dict[str, Any]]) -> torch.Tensor:
            return logits.fill_(-torch.inf)

    class Shrinks(LogitProcessor):
        def __call__(self, logits: torch.Tensor, custom_param_list: list[dict[str, Any]]) -> torch.Tensor:
            return logits[:, :2]

    rows = (
        group("fails_at_one", [0, 1, 2], {"bad": False}, {"bad": True}, {"bad": False}),
        group("empties", [3], {}),
        group("shrinks", [4], {}),
    )
    logits = torch.zeros(6, 4)
    failures = process(logits, rows, make_all(), {})
    assert logits[0].tolist() == logits[2].tolist() == [1.0] * 4 and logits[5].tolist() == [0.0] * 4
    assert failures.keys() == {1, 3, 4}
    assert "AssertionError: told" in failures[1].message and "must return" in failures[4].message
    assert "left no token" in failures[3].message
    assert [failures[row].status for row in (1, 3, 4)] == [500, 400, 500]


def test_what_a_failed_call_remembered_of_others_is_forgotten():
    class Steps(LogitProcessor):
        def __call__(self, logits: torch.Tensor, custom_param_list: list[dict[str, Any]]) -> torch.Tensor:
            for params in custom_param_list:
                memory = params[REQUEST].memory
                memory["steps"] = memory.get("steps", 0) + 1
            assert len(custom_param_list) == 1
            return logits

    rows = group("steps", [0, 1], {}, {})
    memories: dict[int, dict[str, Any]] = {}
    process(torch.zeros(2, 4), (rows,), make_all(), memories)
    assert memories == {0: {"steps": 1}, 1: {"steps": 1}}


class _NoWords(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


@pytest.mark.parametrize(
    "error", [RuntimeError("half \ud800 a pair"), _NoWords(), RuntimeError("x" * 10**6), SystemExit(0)]
)
def test_an_error_that_cannot_be_told_as_it_is_is_told_otherwise(error: BaseException):
    class Raises(LogitProcessor):
        def __call__(self, logits: torch.Tensor, custom_param_list: list[dict[str, Any]]) -> torch.Tensor:
            raise error

    (failure,) = process(torch.zeros(1, 4), (group("raises", [0], {}),), make_all(), {}).values()
    assert type(error).__name__ in failure.message and len(failure.message.encode()) < 1000


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_floats_are_taken(dtype: torch.dtype):
    class Converts(LogitProcessor):
        def __call__(self, logits: torch.Tensor, custom_param_list: list[dict[str, Any]]) -> torch.Tensor:
            return (logits + 2).to(dtype)

    logits = torch.zeros(2, 4)
    assert process(logits, (group("converts", [1], {}),), make_all(), {}) == {} and logits[1].tolist() == [2.0] * 4


@pytest.mark.parametrize("result", [torch.zeros(1, 4, dtype=torch.int64), torch.zeros(1, 4, device="meta"), None])
def test_what_are_no_logits_is_refused(result: Any):
    class Returns(LogitProcessor):
        def __call__(self, logits: torch.Tensor, custom_param_list: list[dict[str, Any]]) -> torch.Tensor:
            return result

    (failure,) = process(torch.zeros(1, 4), (group("returns", [0], {}),), make_all(), {}).values()
    assert "must return" in failure.message and failure.status == 500


def test_a_long_list_of_temperatures_is_refused_and_doubled_ids_do_not_matter():
    with pytest.raises(ValueError, match="at most 1024"):
        make_all()["temperature_by_position"].check({"temperatures": [[i, 1] for i in range(1025)]}, VOCABULARY)
    with pytest.raises(ValueError, match="at most 65536"):
        make_all()["sequence_automaton"].check({"transitions": [{"1": 0, "2": 0}] * (1 << 15) + [{"1": 0}]}, VOCABULARY)
    assert left("ban_tokens", {"token_ids": [3] * 1000 + [4]}, []) == [t for t in EVERY if t not in (3, 4)]


@pytest.mark.parametrize("code", ["x = (", "raise NameError('gone')", "import sys; sys.exit(0)"])
def test_a_module_that_fails_is_told(tmp_path: Path, code: str):
    (tmp_path / "bad.py").write_text(code)
    with pytest.raises(ConfigError, match=r"bad\.py, which cannot be imported: (SyntaxError|NameError|SystemExit)"):
        load(str(tmp_path / "bad.py"))


def test_a_processor_that_cannot_be_made_is_told():
    class Wants(LogitProcessor):
        def __init__(self, something: int) -> None:
            self.something = something

    with pytest.raises(ConfigError, match="logit processor wants cannot be made"):
        make_all()


def test_a_processor_cannot_write_a_requests_tokens():
    class Writes(LogitProcessor):
        def __call__(self, logits: torch.Tensor, custom_param_list: list[dict[str, Any]]) -> torch.Tensor:
            view = custom_param_list[0][REQUEST]
            view.prompt_ids[:], view.output_ids[:] = 7, 7
            return logits

    row = ProcessorRow(0, 1, {}, np.array([1, 2], np.int32), np.array([3], np.int32))
    process(torch.zeros(1, 4), (ProcessorRows("writes", (row,)),), make_all(), {})
    assert (row.prompt_ids.tolist(), row.output_ids.tolist()) == ([1, 2], [3])


WRONG_PARAMETERS = [
    ("force_tokens", {"tokens": [1]}, r"token_ids is missing, must be a list of at most 65536 token ids in \[0, 50\)"),
    ("force_tokens", {"token_ids": 3}, r"token_ids is 3, must be a list"),
    ("ban_tokens", {"token_ids": [1, 2, -7]}, r"token_ids\[2\] is -7, must be a token id in \[0, 50\)"),
    ("allow_tokens", {"token_ids": [50]}, r"token_ids\[0\] is 50, must be a token id in \[0, 50\)"),
    ("temperature_by_position", {}, "temperatures is missing, must be a list of at most 1024"),
    ("temperature_by_position", {"temperatures": [[0, 1], [2, 500]]}, r"temperatures\[1\] is \[2, 500\], must be"),
]


@pytest.mark.parametrize("name, params, fact", WRONG_PARAMETERS)
def test_a_wrong_parameter_is_named_with_its_place_and_value(name: str, params: dict, fact: str) -> None:
    with pytest.raises(ValueError, match=fact):
        make_all()[name].check(params, 50)
