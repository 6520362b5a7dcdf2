"""Tokens that appear only in the files beside tokenizer.json, added to its tokenizer as transformers adds them.

Decides which file counts: added_tokens_decoder of tokenizer_config.json or, if that is missing, added_tokens.json and
special_tokens_map.json; then the special tokens that have a name, and further special tokens. A new token gets the
tokenizer's next free id, so a file that gives it another id is an error: the model would read another token.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from ramet.runtime.errors import ConfigError
from ramet.runtime.text.files import read_json

NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
FURTHER = ("extra_special_tokens", "additional_special_tokens")  # the first one that is not empty counts
FLAGS = ("lstrip", "rstrip", "single_word", "normalized", "special")
CONFIG, MAP, LIST = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
DECODER = "added_tokens_decoder"
Declared = dict[int, tuple[AddedToken, str]]  # id -> token, and the file that declares it


class FolderTokens:
    """What the files of a folder say about its tokens. Raises ConfigError for values that are not tokens."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._own = self.config = read_json(folder / CONFIG)
        self._is_old = DECODER not in self.config
        if self._is_old:
            self.config = {**self._own, **read_json(folder / MAP)}
        self.without_ids: frozenset[int] = (
            frozenset()
        )  # ids of added tokens for which no file has an id; set by add_tokens
        self.named = {name: self._text(name, self.config.get(name)) for name in self._names()}

    def _names(self) -> Iterator[str]:
        """The names of its special tokens: first those that all tokenizers may have, then its own."""
        yield from NAMES
        yield from (name for name, value in self.config.items() if name.endswith("_token") and isinstance(value, str))

    def _text(self, name: str, value: Any) -> str | None:
        text = value.get("content") if isinstance(value, dict) else value
        if text is not None and not isinstance(text, str):
            raise ConfigError(f"{self._folder / CONFIG}: {name} is {json.dumps(value)}, must be the text of a token")
        return text or None

    def further(self) -> list[tuple[str, Any]]:
        """Special tokens without a name of their own: text, and the file's value for it."""
        return self._further(self.config)

    def _further(self, config: dict[str, Any]) -> list[tuple[str, Any]]:
        key = next((name for name in FURTHER if config.get(name)), FURTHER[0])
        given = config.get(key) or []
        if not isinstance(given, list | dict):
            raise ConfigError(f"{self._folder / CONFIG}: {key} is {json.dumps(given)}, must be a list of tokens")
        values = list(given.values()) if isinstance(given, dict) else given
        return [(text, value) for value in values if (text := self._text(key, value)) is not None]

    def declared(self) -> Declared:
        """The tokens that a file gives an id."""
        if not self._is_old:
            given = self.config[DECODER]
            if not isinstance(given, dict):
                raise ConfigError(f"{self._folder / CONFIG}: {DECODER} must be an object of ids and tokens")
            return {self._id(key, CONFIG): (self._token(key, value), CONFIG) for key, value in given.items()}
        # special_tokens_map.json may list further special tokens: transformers does not make them special here
        special = {text for text in self.named.values() if text} | {text for text, _ in self._further(self._own)}
        return {
            self._id(value, LIST): (AddedToken(text, normalized=text not in special, special=text in special), LIST)
            for text, value in read_json(self._folder / LIST).items()
        }

    def _id(self, value: Any, file: str) -> int:
        number = int(value) if isinstance(value, str) and value.isdecimal() else value
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise ConfigError(f"{self._folder / file}: {json.dumps(value)} is not a token id")
        return number

    def _token(self, key: str, value: Any) -> AddedToken:
        content = value.get("content") if isinstance(value, dict) else None
        if not isinstance(content, str) or not content:
            raise ConfigError(f"{self._folder / CONFIG}: {DECODER} {key} is {json.dumps(value)}, must have a content")
        return AddedToken(content, **_flags(value))


def _flags(value: Any) -> dict[str, bool]:
    given = value if isinstance(value, dict) else {}
    return {name: given[name] for name in FLAGS if isinstance(given.get(name), bool)}


def add_tokens(source: Tokenizer, tokens: FolderTokens, folder: Path) -> list[str]:
    """WRITES source. Returns notes for the user. Raises ConfigError if a new token gets another id than declared."""
    known, declared = source.get_added_tokens_decoder(), tokens.declared()
    same = {repr(token) for token in known.values()}
    texts = {token.content for token in known.values()} | {token.content for token, _ in declared.values()}
    added = [token for _, (token, _) in sorted(declared.items(), key=lambda item: item[0]) if repr(token) not in same]
    special: list[tuple[str, Any]] = [(text, None) for text in tokens.named.values() if text]
    for text, value in [*special, *tokens.further()]:
        if text not in texts:
            texts.add(text)
            added.append(AddedToken(text, **{**_flags(value), "special": True}))
    names = {text for text, _ in special}
    for token in added:
        token.special = token.special or token.content in names
    new = {token.content for token in added if source.token_to_id(token.content) is None}
    source.add_tokens(added)
    unknown = new.difference(token.content for token, _ in declared.values())
    without = {i: token.content for i, token in source.get_added_tokens_decoder().items() if token.content in unknown}
    tokens.without_ids = frozenset(without)
    return [
        *_other_ids(source, declared, new, folder),
        *(
            f"no file gives the special token {text!r} an id: it has {number}, as in transformers, and the model may "
            "have no embedding for it"
            for number, text in sorted(without.items())
        ),
    ]


def _other_ids(source: Tokenizer, declared: Declared, new: set[str], folder: Path) -> Iterator[str]:
    for number, (token, file) in declared.items():
        found = source.token_to_id(token.content)
        if found == number:
            continue
        fact = f"{folder / file}: {token.content!r} has the id {number}, but its id in the tokenizer is {found}"
        if token.content in new:
            raise ConfigError(f"{fact}: add it to tokenizer.json with its id, or correct {file}")
        yield f"{fact}, as tokenizer.json has it; that one counts, as in transformers"
