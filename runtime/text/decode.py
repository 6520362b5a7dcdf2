"""Token ids of one output to text, one id at a time.

Decides when text is certain: half a character waits, at most 3 bytes long, and what can never become one is U+FFFD at
once. Knows no stop strings and no request. The output continues its prompt, so a first token's leading space stays.
Whatever the steps, the joined pieces are the same text.
"""

from codecs import getincrementaldecoder
from copy import copy
from typing import Self

from ramet.runtime.text.tokenizer import Tokenizer, TokenPieces

_Utf8 = getincrementaldecoder("utf-8")
MAX_CONTEXT = 16  # tokens decoded again before each new one, where a token's text depends on its neighbours
MAX_HELD = 3  # tokens that may wait for the rest of a character: three of its four bytes


class TextDecoder:
    """The output of one sequence. `push` gives the text that became certain, `flush` what the end makes certain.

    Its first `tail_bytes` are the prompt's: they are no text of the output. Each token must have bytes of its own then.
    """

    __slots__ = ("_after_special", "_hidden", "_shown", "_spaced", "_special", "_text")

    def __init__(
        self,
        tokenizer: Tokenizer,
        skip_special_tokens: bool = True,
        spaces_between_special_tokens: bool = True,
        tail_bytes: int = 0,
    ) -> None:
        pieces = tokenizer.pieces
        self._special = tokenizer.special_ids
        self._hidden = skip_special_tokens
        self._spaced = spaces_between_special_tokens
        self._after_special = False
        self._text: _JoinedPieces | _Differences
        if pieces is None:
            self._text = _Differences(tokenizer)
        else:
            self._text = _AfterTail(pieces, tail_bytes) if tail_bytes else _JoinedPieces(pieces)

    def push(self, token_id: int) -> str:
        if token_id in self._special:
            return "" if self._hidden else self._push_special(token_id)
        self._after_special = False
        return self._text.push(token_id)

    def flush(self) -> str:
        return self._text.flush()

    def fork(self) -> Self:
        """Another output with the same tokens so far."""
        other = copy(self)
        other._text = self._text.fork()
        return other

    def _push_special(self, token_id: int) -> str:
        before = self._text.flush() if self._after_special else ""
        text = self._text.push(token_id)
        adjacent, self._after_special = self._after_special, True
        return before + (" " if adjacent and self._spaced and not text.startswith(" ") else "") + text


class _JoinedPieces:
    """Every token adds the same bytes wherever it stands."""

    __slots__ = ("_pieces", "_utf8", "_waiting")

    def __init__(self, pieces: TokenPieces) -> None:
        self._pieces = pieces
        self._utf8 = _Utf8("replace")
        self._waiting = False  # the codec holds the start of a character

    def push(self, token_id: int) -> str:
        piece = self._pieces[token_id]
        if piece.__class__ is str and not self._waiting:
            return piece  # the usual case: whole characters, nothing held
        return self._add(piece.encode() if isinstance(piece, str) else piece)

    def flush(self) -> str:
        self._waiting = False
        return self._utf8.decode(b"", final=True)

    def fork(self) -> Self:
        other = copy(self)
        other._utf8 = _Utf8("replace")
        other._utf8.setstate(self._utf8.getstate())
        return other

    def _add(self, spelled: bytes) -> str:
        text = self._utf8.decode(spelled)
        waiting = self._utf8.getstate()[0]
        if len(waiting) == 2 and waiting[0] == 0xED and waiting[1] >= 0xA0:  # half a surrogate: the codec waits in vain
            return text + self.flush()
        self._waiting = waiting != b""
        return text


class _AfterTail(_JoinedPieces):
    """What follows the first bytes."""

    __slots__ = ("_left",)

    def __init__(self, pieces: TokenPieces, tail_bytes: int) -> None:
        super().__init__(pieces)
        self._left = tail_bytes  # still to come

    def push(self, token_id: int) -> str:
        if not self._left:
            return super().push(token_id)
        piece = self._pieces[token_id]
        spelled = piece.encode() if isinstance(piece, str) else piece
        shown, self._left = spelled[self._left :], max(self._left - len(spelled), 0)
        return self._add(shown)


class _Differences:
    """A token's text depends on its neighbours: decode the last few again with it, and take what was added."""

    __slots__ = ("_before", "_context", "_held", "_tokenizer")

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._context = tokenizer.anchor  # the output continues a prompt
        self._before = self._decode(self._context)
        self._held: list[int] = []

    def push(self, token_id: int) -> str:
        self._held.append(token_id)
        text = self._decode(self._context + self._held)
        if text.endswith("\ufffd") and len(self._held) <= MAX_HELD:
            return ""
        return self._take(text)

    def flush(self) -> str:
        return self._take(self._decode(self._context + self._held)) if self._held else ""

    def fork(self) -> Self:
        other = copy(self)
        other._held = self._held.copy()
        return other

    def _take(self, text: str) -> str:
        """What `text` adds. The tokens that added it begin and end with whole characters: the next context."""
        new = text[len(self._before) :]
        if new:
            self._context, self._before = self._held, self._decode(self._held)
        elif len(self._context) < MAX_CONTEXT:
            self._context = self._context + self._held
        self._held = []
        return new

    def _decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=False)
