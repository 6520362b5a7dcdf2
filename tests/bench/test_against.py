"""`ramet bench against` runs both checkouts on the same weights, in turn, and knows which code it measured."""

from argparse import Namespace
from pathlib import Path

import pytest
from test_offline import TINY

from ramet.bench.against import HERE, compare, main
from ramet.bench.errors import BadOption
from ramet.bench.loads import Load
from ramet.bench.offline import make_checkpoint

LOAD = Load("few", 2, 0, 5, 3, 1.0, 2)


def test_every_round_of_every_group_has_its_seconds_and_the_ratio_is_of_this_to_the_other(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, TINY)
    result = compare(LOAD, HERE, tmp_path, Namespace(groups=2, rounds=3))
    assert [len(group[side]) for group in result["groups"] for side in ("this", "other")] == [3] * 4
    means = [sum(a / b for a, b in zip(group["this"], group["other"])) / 3 for group in result["groups"]]
    assert result["ratio"] == pytest.approx(sum(means) / 2, abs=1e-3)
    assert result["standard_error"] == pytest.approx(abs(means[0] - means[1]) / 2, abs=1e-3)


def test_a_folder_that_is_no_checkout_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["/nowhere"]) == 2
    assert "/nowhere is no checkout of ramet" in capsys.readouterr().err


def test_code_that_is_not_the_checkouts_is_not_measured(tmp_path: Path) -> None:
    """The other folder has no package of its own, so that Python finds the installed one, or none."""
    other = tmp_path / "other"
    other.mkdir()
    make_checkpoint(tmp_path, TINY)
    with pytest.raises(BadOption, match=r"imports ramet from|ended with exit code 1"):
        compare(LOAD, other, tmp_path, Namespace(groups=1, rounds=1))
