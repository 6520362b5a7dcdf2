"""Modules of tests are imported by their bare names, so two of one name would hide each other."""

from collections import Counter
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


def test_every_module_of_tests_has_a_name_of_its_own():
    names = Counter(path.stem for path in TESTS.rglob("test_*.py"))
    names.update(path.stem for path in (TESTS / "fakes").glob("*.py"))
    assert len(names) > 100
    assert [name for name, count in names.items() if count > 1] == []
