"""How embeddings are made is read from a sentence-transformers folder, and guessed for any other."""

import json
from pathlib import Path
from typing import Any

import pytest

from ramet.runtime.errors import ClientError, ConfigError
from ramet.runtime.intake.embeddings import chosen
from ramet.runtime.text.pooling import DOCUMENT, QUERY, Pooling, read_pooling

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
    ([TRANSFORMER, POOLING], ("cls_token",), Pooling("cls", False)),
    ([TRANSFORMER, POOLING, DENSE, NORMALIZE], ("cls_token",), Pooling("cls", True)),
])  # fmt: skip
def test_the_folder_says_how(tmp_path: Path, modules: Any, modes: tuple[str, ...], expected: Pooling) -> None:
    assert read_pooling(folder_of(tmp_path, modules, *modes)) == expected


def test_the_pooling_module_may_lie_anywhere(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, [{**POOLING, "path": "pool"}], "lasttoken", at="pool").absolute()
    assert read_pooling(folder) == Pooling("last", False)


@pytest.mark.parametrize("given, kind", [("lasttoken", "last"), ("cls", "cls"), (["mean"], "mean")])
def test_newer_files_name_the_mode_in_one_key(tmp_path: Path, given: Any, kind: Any) -> None:
    folder = folder_of(tmp_path, [TRANSFORMER, POOLING])
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": given, "include_prompt": True}))
    assert read_pooling(folder) == Pooling(kind, False)


def test_prompts_have_names_and_one_may_be_the_usual_one(tmp_path: Path) -> None:
    prompts = {"query": "Instruct: find\nQuery:", "document": "", "other": "o: "}
    path = tmp_path / "config_sentence_transformers.json"
    path.write_text(json.dumps({"prompts": prompts, "default_prompt_name": "other"}))
    pooling = read_pooling(tmp_path)
    assert (pooling.prompts, pooling.default_prompt) == (prompts, "other")
    assert [pooling.prompt_of(names) for names in (QUERY, DOCUMENT, ())] == ["Instruct: find\nQuery:", "", "o: "]
    assert Pooling().prompt_of(QUERY) == ""


@pytest.mark.parametrize("text, named", [
    ('{"prompts": ["a"]}', "prompts"), ('{"prompts": {"a": 1}}', "prompts"), ('{"default_prompt_name": "b"}', "'b'"),
])  # fmt: skip
def test_prompts_that_are_none_are_refused_by_name(tmp_path: Path, text: str, named: str) -> None:
    (tmp_path / "config_sentence_transformers.json").write_text(text)
    with pytest.raises(ConfigError, match=named):
        read_pooling(tmp_path)


@pytest.mark.parametrize("modules, modes, named", [
    ([TRANSFORMER, POOLING], ("mean_tokens", "max_tokens"), "max_tokens and mean_tokens"),
    ([TRANSFORMER, POOLING], ("max_tokens",), "max_tokens"),
    ([TRANSFORMER, POOLING, {"path": "3", "type": "x.LSTM"}], ("mean_tokens",), "LSTM"),
])  # fmt: skip
def test_what_is_not_built_is_named_at_the_start_and_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, modules: Any, modes: tuple[str, ...], named: str
) -> None:
    pooling = read_pooling(folder_of(tmp_path, modules, *modes))
    assert named in pooling.unbuilt and named in caplog.text
    with pytest.raises(ClientError, match=r"pooling.*is not built") as refused:
        chosen(pooling)
    assert named in str(refused.value)
    assert chosen(pooling, "last").kind == "last"


@pytest.mark.parametrize("text", ["{", '{"a": 1}', "[1]"])
def test_a_broken_file_is_refused_by_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "modules.json").write_text(text)
    with pytest.raises(ConfigError, match=r"modules\.json"):
        read_pooling(tmp_path)
