"""What each token adds to a text, for the two decoders that treat every token alike wherever it stands.

Decides the bytes of a token. Knows the vocabulary's spelling (the byte alphabet of GPT-2, the "▁" and <0x41> of
SentencePiece), not sequences. A decoder that looks at neighbours has no such table: decode.py then takes differences.
"""

from collections.abc import Callable
from typing import Any

import tokenizers

Spelling = Callable[[str], bytes]  # an entry of the vocabulary -> the bytes it adds to a text


def _alphabet() -> dict[str, int]:
    """GPT-2's printable stand-in of each byte: printable Latin-1 is itself, the rest counts up from U+0100."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(0x100 + i): byte for i, byte in enumerate(rest)}


BYTE_OF = _alphabet()
BYTE_TOKENS = {f"<0x{byte:02X}>": bytes([byte]) for byte in range(256)}


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


class Pieces(dict[int, str | bytes]):
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
