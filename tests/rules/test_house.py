"""The figures of the house only fall: what house.py counts, and what traced_request.py and traced_step.py see run.

Each bound is what was reached. A change that lowers a figure lowers its bound; none is raised without a word why.
"""

from functools import cache

import pytest
from house import House
from traced_request import Trace, traced
from traced_step import traced_step

FEATURES = "runtime/scheduler/features/"
MAX_NAMING_FEATURES = 0.018  # of the lines of the scheduler's own folder; some say where a new feature is written
MAX_CORE_NAMING_FEATURES = 0.035  # of those of scheduler/ and engine/ that a plain request runs
MAX_ATTRIBUTES, MAX_CLASS_LINES, MAX_FILE_LINES = 18, 239, 378
MAX_PARAMETERS, MAX_WITH_MANY = 8, 3
MAX_SPLATS, MAX_NAMES_TWICE = 0, 0.008  # names: of all classes; three are schemas of /openapi.json
MAX_FRAGMENTS = 0.09  # of the docstrings of functions and classes
MAX_DEVICE_TYPES, MAX_ISINSTANCE_OPS, MAX_FORWARDS = 3, 0, 1
MAX_BOXES, MAX_FUNCTIONS = 16, 400
MAX_STEP_FUNCTIONS = 77  # 103 when features were threaded through the core


@cache
def house() -> House:
    return House()


@pytest.fixture(scope="module")
def trace() -> Trace:
    return traced()


def test_the_scheduler_itself_names_few_features() -> None:
    named = house().naming_features(house().scheduler)
    assert named.total() <= MAX_NAMING_FEATURES * _lines(house().scheduler), named.most_common(9)


def test_what_a_plain_request_runs_names_few_features(trace: Trace) -> None:
    core = [path for path in trace.files if path.startswith(("runtime/scheduler/", "runtime/engine/"))]
    named = house().naming_features(core)
    assert named.total() <= MAX_CORE_NAMING_FEATURES * _lines(core), named.most_common(9)


def test_a_plain_request_runs_no_file_of_a_feature(trace: Trace) -> None:
    assert not [path for path in trace.files if path.startswith(FEATURES)]


def test_what_is_known_of_requests_and_rows_imports_no_feature() -> None:
    known = ("request", "rows", "row_flag")
    assert not [name for name in known if "scheduler.features" in house().texts[f"runtime/scheduler/{name}.py"]]


def test_a_plain_request_enters_few_functions_and_boxes(trace: Trace) -> None:
    assert len(trace.functions) <= MAX_FUNCTIONS and len(trace.boxes) <= MAX_BOXES, sorted(trace.boxes)


def test_a_decode_step_enters_few_functions_and_no_file_of_a_feature() -> None:
    step = traced_step()
    assert len(step) <= MAX_STEP_FUNCTIONS, sorted(step)
    assert not [name for name in step if name.startswith(FEATURES)]


def test_no_class_has_many_attributes_or_lines() -> None:
    assert max(house().attributes.values()) <= MAX_ATTRIBUTES, house().attributes.most_common(9)
    assert max(house().class_lines.values()) <= MAX_CLASS_LINES, house().class_lines.most_common(9)


def test_no_file_is_long() -> None:
    assert max(house().file_lines.values()) <= MAX_FILE_LINES, house().file_lines.most_common(9)


def test_few_functions_have_many_parameters() -> None:
    many = {name: num for name, num in house().parameters.items() if num > MAX_PARAMETERS}
    assert len(many) <= MAX_WITH_MANY, many


def test_few_calls_splat_a_local_tuple() -> None:
    assert len(house().splats) <= MAX_SPLATS, house().splats


def test_few_class_names_stand_twice() -> None:
    assert len(house().names_twice) <= MAX_NAMES_TWICE * house().num_classes, house().names_twice


def test_docstrings_are_sentences() -> None:
    fragments, docstrings = house().fragments
    assert fragments <= MAX_FRAGMENTS * docstrings, fragments


def test_few_ask_what_the_device_is() -> None:
    assert len(house().matches(r"device\.type")) <= MAX_DEVICE_TYPES, house().matches(r"device\.type")
    assert len(house().matches(r"isinstance\([^)]*CpuOps")) <= MAX_ISINSTANCE_OPS
    assert len(house().forwards) <= MAX_FORWARDS, house().forwards


def _lines(paths: list[str]) -> int:
    return sum(house().texts[path].count("\n") for path in paths)
