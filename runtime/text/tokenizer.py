"""A model folder's tokenizer: text to ids and back, its special and end tokens, what each id adds to a text.

Decides which file names the end tokens, and the bytes of a token where a decoder treats every token alike wherever it
stands. Knows tokenizer.json through `tokenizers` and the vocabulary's spelling, no model and no request. Streaming is
decode.py's; a decoder that looks at neighbours has no table of pieces, and decode.py takes differences.
"""

import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import tokenizers

from ramet.runtime.errors import ClientError
from ramet.runtime.text.added_tokens import CONFIG, FolderTokens
from ramet.runtime.text.context import num_bytes
from ramet.runtime.text.files import read_json
from ramet.runtime.text.length_bound import BYTE_OF, BYTE_TOKENS, max_bytes_per_token
from ramet.runtime.text.source import read_source
from ramet.runtime.text.token_bytes import TokenBytes

log = logging.getLogger("ramet")
LOCKED_IDS = 1 << 12  # decoded at once: a fraction of a millisecond

Spelling = Callable[[str], bytes]  # an entry of the vocabulary -> the bytes it adds to a text


def spell_bytes(token: str) -> bytes:
    """Byte-level: through the alphabet; an added token with a character outside it stands for itself."""
    try:
        return bytes(map(BYTE_OF.__getitem__, token))
    except KeyError:
        return token.encode()


def spelling_of(decoder: dict[str, Any] | None) -> Spelling | None:
    """The spelling that a tokenizer.json's `decoder` describes; None when a token's text depends on its neighbours."""
    steps = _flatten(decoder)
    kinds = [step["type"] for step in steps]
    if kinds == ["ByteLevel"]:
        return spell_bytes
    if kinds == ["Metaspace"]:
        return _spell_pieces([(steps[0]["replacement"], " ")], byte_tokens=False)
    replaced = [(step["pattern"].get("String"), step["content"]) for step in steps if step["type"] == "Replace"]
    rest = kinds[len(replaced) :]
    if not replaced or any(kind != "Replace" for kind in kinds[: len(replaced)]) or any(not old for old, _ in replaced):
        return None
    byte_tokens = rest[:1] == ["ByteFallback"]
    # a Strip after Fuse trims the start of a whole text; an output continues its prompt, so nothing is trimmed
    if rest[byte_tokens:] not in ([], ["Fuse"], ["Fuse", "Strip"]) or steps[-1].get("stop", 0):
        return None
    return _spell_pieces(replaced, byte_tokens)


def _flatten(decoder: dict[str, Any] | None) -> list[dict[str, Any]]:
    if decoder is None:
        return []
    if decoder["type"] == "Sequence":
        return [step for inner in decoder["decoders"] for step in _flatten(inner)]
    return [decoder]


def _spell_pieces(replaced: list[tuple[str, str]], byte_tokens: bool) -> Spelling:
    def spell(token: str) -> bytes:
        for old, new in replaced:
            token = token.replace(old, new)
        if byte_tokens and token in BYTE_TOKENS:
            return BYTE_TOKENS[token]
        return token.encode()

    return spell


class TokenPieces(dict[int, str | bytes]):
    """pieces[id]: str when the token is whole characters, bytes when it needs its neighbours, "" for an unknown id.

    Filled as ids are met: a 128k vocabulary costs nothing at the start, and memory for the tokens in use alone.
    """

    def __init__(self, source: tokenizers.Tokenizer, spelling: Spelling) -> None:
        super().__init__()
        self._source, self._spelling = source, spelling

    def __missing__(self, token_id: int) -> str | bytes:
        token = self._source.id_to_token(token_id)
        if token is None:
            return ""
        spelled = self._spelling(token)
        try:
            piece: str | bytes = spelled.decode()
        except UnicodeDecodeError:
            piece = spelled
        self[token_id] = piece
        return piece


class Tokenizer:
    """Immutable but for what it remembers of single tokens, which any thread may add: for several threads at once."""

    def __init__(self, source: tokenizers.Tokenizer, eos_ids: Iterable[int] = (), notes: Iterable[str] = ()) -> None:
        source.no_truncation()  # a prompt is never cut in silence
        source.no_padding()
        added = source.get_added_tokens_decoder()
        decoder = json.loads(source.decoder.__getstate__()) if source.decoder is not None else None
        spelling = spelling_of(decoder)
        self._source = source
        self.special_ids: frozenset[int] = frozenset(i for i, token in added.items() if token.special)
        self.added_tokens: dict[str, int] = {token.content: i for i, token in added.items()}
        self.eos_ids: frozenset[int] = frozenset(eos_ids)
        self.notes: tuple[str, ...] = tuple(notes)  # about its files, for the user
        self.pieces: TokenPieces | None = TokenPieces(source, spelling) if spelling is not None else None
        self._tables: dict[int, TokenBytes] = {}

    @classmethod
    def from_folder(cls, folder: Path, model_folder: Path | None = None) -> "Tokenizer":
        """Reads tokenizer.json and what completes it; what ends an output beside it, or in `model_folder`.

        Raises ConfigError.
        """
        os.environ["TOKENIZERS_PARALLELISM"] = "false"  # threads of its own would take the cores of the model
        source, tokens, notes = read_source(folder)
        return cls(source, _eos_ids(model_folder or folder, source, tokens), notes)

    def log_notes(self) -> None:
        for note in self.notes:
            log.warning("%s", note)

    def encode(self, text: str, add_special_tokens: bool = True, pair: str | None = None) -> list[int]:
        """`pair`: a second text, which the tokenizer's post-processor joins. Raises ClientError for invalid Unicode."""
        require_unicode(text)
        given = text if pair is None else (text, pair)
        # the batch call keeps no character offsets: half the time of `encode`
        ids: list[int] = self._source.encode_batch_fast([given], add_special_tokens=add_special_tokens)[0].ids
        return ids

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        if len(ids) <= LOCKED_IDS:
            return self._source.decode(ids, skip_special_tokens=skip_special_tokens)
        # the batch call releases Python's lock, so other threads run meanwhile
        texts: list[str] = self._source.decode_batch([ids], skip_special_tokens=skip_special_tokens)
        return texts[0]

    def token_bytes(self, token_id: int) -> bytes | None:
        """What the token adds to a text; None for an unknown id or a decoder that looks at neighbours."""
        if self.pieces is None or self._source.id_to_token(token_id) is None:
            return None
        piece = self.pieces[token_id]
        return piece.encode() if isinstance(piece, str) else piece

    def token_bytes_table(self, vocab_size: int) -> TokenBytes:
        """The ordinary tokens below `vocab_size`, made once. A decoder that looks at neighbours has none."""
        table = self._tables.get(vocab_size)
        if table is None:
            table = self._tables[vocab_size] = TokenBytes(self._ordinary(vocab_size))
        return table

    def _ordinary(self, vocab_size: int) -> Iterator[tuple[bytes, int]]:
        added, unknown = set(self.added_tokens.values()), getattr(self._source.model, "unk_token", None)
        for token, token_id in self._source.get_vocab().items():
            if token_id < vocab_size and token_id not in added and token_id not in self.eos_ids and token != unknown:
                spelled = self.token_bytes(token_id)
                if spelled:
                    yield spelled, token_id

    @property
    def vocab_size(self) -> int:
        """Highest id + 1."""
        return self._sizes[0]

    @property
    def bytes_per_token(self) -> int | None:
        """Bytes of client text that one token can stand for at most; None when no such bound holds."""
        return self._sizes[1]

    def too_long(self, text: str, context_length: int) -> bool:
        """Certain without tokenising: `text` has more than `context_length` tokens. False when it must be tried."""
        if len(text) * 4 <= context_length:  # as most do: the vocabulary need not be looked through
            return False
        most = self.max_bytes(context_length)
        return most is not None and num_bytes(text) > most

    def max_bytes(self, num_tokens: int) -> int | None:
        """A text with more bytes certainly has more tokens. None: no such bound holds."""
        return None if self.bytes_per_token is None else num_tokens * self.bytes_per_token

    def min_tokens(self, num_bytes: int) -> int:
        """How many tokens texts of so many bytes certainly come to, whatever they say."""
        return num_bytes // self.bytes_per_token if self.bytes_per_token else 0

    @cached_property
    def anchor(self) -> list[int]:
        """Ids of a short ordinary text, to stand for the end of some prompt."""
        return self.encode("a", add_special_tokens=False)

    @cached_property
    def _sizes(self) -> tuple[int, int | None]:
        # one pass over the whole vocabulary, which is then let go: 128k entries are 12 MB
        vocabulary = self._source.get_vocab()
        return max(vocabulary.values(), default=-1) + 1, max_bytes_per_token(self._source, vocabulary)


def require_unicode(text: str, place: str = "text") -> None:
    """Raises ClientError for half a surrogate pair: JSON can spell it, UTF-8 cannot."""
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        fact = f"has a lone surrogate {text[error.start]!r} at character {error.start}, must be valid Unicode"
        raise ClientError(place, fact) from error


def check_ids(place: str, ids: Sequence[int], vocab_size: int) -> None:
    """Raises ClientError for the first id outside [0, vocab_size)."""
    if not ids or (min(ids) >= 0 and max(ids) < vocab_size):
        return
    index = next(i for i, token in enumerate(ids) if not 0 <= token < vocab_size)
    raise ClientError(f"{place}[{index}]", f"is {ids[index]}, must be a token id in [0, {vocab_size})")


def _eos_ids(folder: Path, source: tokenizers.Tokenizer, tokens: FolderTokens) -> frozenset[int]:
    """Every id that generation_config.json, config.json or the tokenizer's own eos_token says ends an output.

    Checkpoints are published whose files disagree: with too few of them an output never ends. `folder` is the model's.
    An eos_token for which the model has no number does not count.
    """
    config = read_json(folder / "config.json")
    inner = config.get("text_config") or {}
    size = config.get("vocab_size") or inner.get("vocab_size") or 0
    given = read_json(folder / CONFIG).get("eos_token")
    texts = tokens.named["eos_token"], given.get("content") if isinstance(given, dict) else given
    own = {source.token_to_id(text) for text in texts if isinstance(text, str)}
    own -= {token for token in tokens.without_ids if not (isinstance(size, int) and token < size)}
    of_files = [read_json(folder / "generation_config.json").get("eos_token_id"), config.get("eos_token_id")]
    return frozenset().union(*map(_as_ids, (*of_files, inner.get("eos_token_id"), list(own))))


def _as_ids(value: Any) -> frozenset[int]:
    values = value if isinstance(value, list) else [value]
    return frozenset(v for v in values if isinstance(v, int) and not isinstance(v, bool) and v >= 0)
