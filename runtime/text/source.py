"""The tokenizer of a folder: tokenizer.json, completed by the files beside it as transformers completes it.

Decides what tokenizer_config.json changes: added tokens (added_tokens.py), and a space before the text if the class
that it names adds one. If transformers does not follow one of its settings, a note tells the user.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, normalizers, pre_tokenizers

from ramet.runtime.errors import ConfigError
from ramet.runtime.text.added_tokens import CONFIG, FolderTokens, add_tokens
from ramet.runtime.text.files import read_json

BYTE_CLASSES = ("GPT2Tokenizer", "Qwen2Tokenizer", "GPTNeoXTokenizer", "CodeGenTokenizer", "CohereTokenizer")
PIECE_CLASSES = ("LlamaTokenizer", "CodeLlamaTokenizer")
OF_TYPES = {"gpt2": "GPT2Tokenizer", "qwen2": "Qwen2Tokenizer"}  # model_type -> class, where no class is named
SEQUENCES = "pretokenizers", "normalizers", "decoders"  # names in the file for the steps of a sequence


def read_source(folder: Path) -> tuple[tokenizers.Tokenizer, FolderTokens, list[str]]:
    """The tokenizer, what the folder says about its tokens, and notes for the user. Raises ConfigError."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise ConfigError(f"{folder} has no tokenizer.json")
    try:
        source = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise ConfigError(f"{path} cannot be read: {error}") from error
    tokens = FolderTokens(folder)
    notes = add_tokens(source, tokens, folder)
    notes += [f"{folder / CONFIG}: {note}" for note in (*_prefix_space(source, tokens, folder), *_ends(source, tokens))]
    return source, tokens, notes


def _prefix_space(source: tokenizers.Tokenizer, tokens: FolderTokens, folder: Path) -> Iterator[str]:
    """WRITES whether `source` puts a space before a text, if the class in transformers decides it. Yields notes."""
    asked, found = tokens.config.get("add_prefix_space"), _has_prefix_space(source)
    if not isinstance(asked, bool) or found is None or asked == found:
        return
    model_type = read_json(folder / "config.json").get("model_type")
    named = tokens.config.get("tokenizer_class") or OF_TYPES.get(str(model_type))
    kind, before = str(named).removesuffix("Fast"), _state(source.pre_tokenizer)
    levels, spaces = _steps(before, "ByteLevel"), _steps(before, "Metaspace")
    if kind in BYTE_CLASSES and levels:
        for step in levels:
            step["add_prefix_space"] = asked
    elif kind in PIECE_CLASSES and spaces:
        for step in spaces:
            step["prepend_scheme"] = "first" if asked else "never"
        source.decoder = _made(decoders.Sequence([]), _trimmed(_state(source.decoder), asked))
    elif kind in PIECE_CLASSES and not asked:
        source.normalizer = _made(normalizers.Sequence([]), _without(_state(source.normalizer), "Prepend"))
        source.decoder = _made(decoders.Sequence([]), _trimmed(_state(source.decoder), False))
        return
    else:
        shown, of = json.dumps(asked), named or "a folder that names no class"
        yield f"add_prefix_space is {shown}: tokenizer.json says otherwise and counts, as in transformers for {of}"
        return
    source.pre_tokenizer = _made(pre_tokenizers.Sequence([]), before)


def _has_prefix_space(source: tokenizers.Tokenizer) -> bool | None:
    """Whether a space is put before a text. None: tokens do not contain spaces."""
    before = _state(source.pre_tokenizer)
    if levels := _steps(before, "ByteLevel"):
        return bool(levels[0]["add_prefix_space"])
    if spaces := _steps(before, "Metaspace"):
        return bool(spaces[0]["prepend_scheme"] != "never")
    normalized = _state(source.normalizer)
    if _steps(normalized, "Prepend"):
        return True
    return False if _steps(normalized, "Replace") else None


def _ends(source: tokenizers.Tokenizer, tokens: FolderTokens) -> Iterator[str]:
    """Notes about tokens around a text, where the config and the post-processor disagree; the post-processor counts."""
    ids = source.encode("a").ids
    for name, at in (("bos", 0), ("eos", -1)):
        asked, text = tokens.config.get(f"add_{name}_token"), tokens.named[f"{name}_token"]
        number = None if text is None else source.token_to_id(text)
        if isinstance(asked, bool) and number is not None and asked != (ids[at : at + 1 or None] == [number]):
            does = "adds none" if asked else "adds it"
            shown = json.dumps(asked)
            yield f"add_{name}_token is {shown}: tokenizer.json {does} and counts, as in transformers"


def _trimmed(state: Any, is_prefixed: bool) -> Any:
    """The state of a decoder that removes the space before a text if `is_prefixed`."""
    inner = _inner(_without(state, "Strip"))
    if is_prefixed and inner is not None:
        inner.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return state


def _state(step: Any) -> Any:
    return None if step is None else json.loads(step.__getstate__())


def _made(step: Any, state: Any) -> Any:
    """The step with this state, or None without one. WRITES `step`."""
    if state is not None:
        step.__setstate__(json.dumps(state).encode())
    return None if state is None else step


def _inner(state: Any) -> list[Any] | None:
    """The steps of a sequence, or None for a single step."""
    return next((state[name] for name in SEQUENCES if name in state), None)


def _steps(state: Any, kind: str) -> list[dict[str, Any]]:
    if state is None:
        return []
    if (inner := _inner(state)) is not None:
        return [step for each in inner for step in _steps(each, kind)]
    return [state] if state["type"] == kind else []


def _without(state: Any, kind: str) -> Any:
    if state is None or state["type"] == kind:
        return None
    if (inner := _inner(state)) is not None:
        inner[:] = [left for each in inner if (left := _without(each, kind)) is not None]
    return state
