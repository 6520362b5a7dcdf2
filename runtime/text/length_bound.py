"""How many bytes of text one token can stand for at most, so that a hopeless prompt is refused unread.

Decides whether such a bound exists for a tokenizer. It does where every byte of the text must end up in some token:
byte-level BPE, or BPE with all 256 byte tokens, and nothing on the way that may delete text. Otherwise None. Knows the
vocabulary's spelling of bytes: the byte alphabet of GPT-2, and the <0x41> of SentencePiece.
"""

import json
from typing import Any

import tokenizers

# Bytes a Unicode normal form may shrink to one: 4-byte letters become ASCII (4), with marks composed still at most 4;
# twice that for safety, since a bound that is too large only costs time.
NORMAL_FORM_SHRINKS = 8
KEEPING_SPLITTERS = ("Split", "Punctuation", "Digits", "Metaspace", "ByteLevel", "UnicodeScripts")


def _alphabet() -> dict[str, int]:
    """GPT-2's printable stand-in of each byte: printable Latin-1 is itself, the rest counts up from U+0100."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(0x100 + i): byte for i, byte in enumerate(rest)}


BYTE_OF = _alphabet()
BYTE_TOKENS = {f"<0x{byte:02X}>": bytes([byte]) for byte in range(256)}


def max_bytes_per_token(source: tokenizers.Tokenizer, vocabulary: dict[str, int]) -> int | None:
    """Bytes of client text that one token can stand for; None when no bound holds."""
    pre = _parts(source.pre_tokenizer, "pretokenizers")
    normal = _parts(source.normalizer, "normalizers")
    byte_level = any(part["type"] == "ByteLevel" for part in pre + normal)
    shrink = 1
    for part in normal:
        shrink *= _shrinks(part)
    stripping = any(token.lstrip or token.rstrip for token in source.get_added_tokens_decoder().values())
    if not shrink or stripping or not all(map(_keeps_text, pre)) or not _covers_bytes(source, vocabulary, byte_level):
        return None
    return shrink * longest_entry(source, vocabulary, byte_level)


def longest_entry(source: tokenizers.Tokenizer, vocabulary: dict[str, int], byte_level: bool) -> int:
    """Bytes of the longest entry: in a byte-level vocabulary one character of an entry is one byte."""
    if not byte_level:
        return max((len(token.encode()) for token in vocabulary), default=0)
    added = [len(token.content.encode()) for token in source.get_added_tokens_decoder().values()]
    return max([*map(len, vocabulary), *added], default=0)


def _covers_bytes(source: tokenizers.Tokenizer, vocabulary: dict[str, int], byte_level: bool) -> bool:
    if not isinstance(source.model, tokenizers.models.BPE):
        return False
    if byte_level:
        return BYTE_OF.keys() <= vocabulary.keys()
    return source.model.byte_fallback and BYTE_TOKENS.keys() <= vocabulary.keys()


def _keeps_text(splitter: dict[str, Any]) -> bool:
    return splitter["type"] in KEEPING_SPLITTERS and splitter.get("behavior") != "Removed"


def _shrinks(normalizer: dict[str, Any]) -> int:
    """How many bytes of text may become one byte; 0 when text may vanish."""
    match normalizer:
        case {"type": "Prepend" | "ByteLevel"}:
            return 1
        case {"type": "NFC" | "NFD" | "NFKC" | "NFKD"}:
            return NORMAL_FORM_SHRINKS
        case {"type": "Replace", "pattern": {"String": old}, "content": new} if new:
            return max(1, -(-len(old.encode()) // len(new.encode())))
        case _:
            return 0


def _parts(component: Any, inner: str) -> list[dict[str, Any]]:
    """The steps of a normalizer or pre-tokenizer, in order, as tokenizer.json writes them."""
    if component is None:
        return []
    return _flatten(json.loads(component.__getstate__()), inner)


def _flatten(state: dict[str, Any], inner: str) -> list[dict[str, Any]]:
    if state["type"] != "Sequence":
        return [state]
    return [part for child in state[inner] for part in _flatten(child, inner)]
