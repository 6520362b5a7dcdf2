"""How embeddings are made is read from a sentence-transformers folder, and guessed for any other."""

import json
from pathlib import Path
from typing import Any

import pytest

from ramet.runtime.errors import ConfigError
from ramet.runtime.text.pooling import Pooling, read_pooling

TRANSFORMER, POOLING, NORMALIZE, DENSE = (
    {"path": path, "type": f"sentence_transformers.models.{kind}"}
    for path, kind in (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize"), ("3_D", "Dense"))
)
MODES = ("cls_token", "mean_tokens", "max_tokens", "lasttoken")


def folder_of(root: Path, modules: Any, *modes: str, at: str = "1_Pooling") -> Path:
    if modules is not None:
        (root / "modules.json").write_text(json.dumps(modules))
    if modes:
        (root / at).mkdir()
        config = {f"pooling_mode_{mode}": mode in modes for mode in MODES}
        (root / at / "config.json").write_text(json.dumps({"word_embedding_dimension": 8, **config}))
    return root


@pytest.mark.parametrize("modules, modes, expected", [
    (None, (), Pooling("mean", True)),
    (None, ("lasttoken",), Pooling("last", True)),
    ([TRANSFORMER, POOLING, NORMALIZE], ("lasttoken",), Pooling("last", True)),
    ([TRANSFORMER, POOLING], ("lasttoken",), Pooling("last", False)),
    ([TRANSFORMER, POOLING, NORMALIZE], ("mean_tokens",), Pooling("mean", True)),
    ([TRANSFORMER, POOLING], ("mean_tokens",), Pooling("mean", False)),
])  # fmt: skip
def test_the_folder_says_how(tmp_path: Path, modules: Any, modes: tuple[str, ...], expected: Pooling) -> None:
    assert read_pooling(folder_of(tmp_path, modules, *modes)) == expected


def test_the_pooling_module_may_lie_anywhere(tmp_path: Path) -> None:
    assert read_pooling(folder_of(tmp_path, [{**POOLING, "path": "pool"}], "lasttoken", at="pool").absolute()) == (
        "last",
        False,
    )


@pytest.mark.parametrize("modules, modes, named", [
    ([TRANSFORMER, POOLING], ("cls_token",), "pooling_mode_cls_token"),
    ([TRANSFORMER, POOLING], ("mean_tokens", "max_tokens"), "pooling_mode_max_tokens and pooling_mode_mean_tokens"),
    ([TRANSFORMER, POOLING, DENSE], ("mean_tokens",), "Dense"),
])  # fmt: skip
def test_what_is_not_built_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, modules: Any, modes: tuple[str, ...], named: str
) -> None:
    assert read_pooling(folder_of(tmp_path, modules, *modes)) == Pooling("mean", False)
    assert named in caplog.text and "not built" in caplog.text


@pytest.mark.parametrize("text", ["{", '{"a": 1}', "[1]"])
def test_a_broken_file_is_refused_by_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "modules.json").write_text(text)
    with pytest.raises(ConfigError, match=r"modules\.json"):
        read_pooling(tmp_path)
