"""Token healing: which end of a prompt is chosen again, and of which tokens an output that begins with it may consist.

A prompt's last tokens are what its text makes of them where it happens to end. The tail is what is taken back: from the
token on in which the longest text begins that ends the prompt and that some longer token begins with. So every ordinary
token that could cross the prompt's end begins in the tail. Sequences that make up for it have tokens inside the tail,
one after the other, and end with one that covers the rest of it. Knows no model and no request.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ramet.runtime.config import Args
from ramet.runtime.errors import ClientError, ConfigError
from ramet.runtime.text.token_bytes import TokenBytes
from ramet.runtime.text.tokenizer import Tokenizer

NEVER = 1 << 30  # tokens: more than any output has
NO_BYTES = "this model's tokens have no bytes of their own: what they mean depends on their neighbours"


def check_healing(args: Args, tokenizer: Tokenizer) -> None:
    """Raises ConfigError where the server heals prompts unasked and this tokenizer's cannot be."""
    if args.heals_unasked and tokenizer.pieces is None:
        raise ConfigError(f"--token-healing is on, but {NO_BYTES}")


def take_tail(
    tokenizer: Tokenizer, ids: list[int], vocab_size: int, max_tokens: int, num_kept: int = 1
) -> tuple[list[int], bytes]:
    """The tokens of a prompt that stay, and the bytes of the tail; b"" where nothing is healed.

    `max_tokens`: how many the output may have. The tail has no more, so that some output begins with it. `num_kept`:
    tokens that stay in any case, at least one. Raises ClientError.
    """
    if tokenizer.pieces is None:
        raise ClientError("token_healing", f"is True, but {NO_BYTES}", hint="omit it")
    table = tokenizer.token_bytes_table(vocab_size)
    first, texts = len(ids), list[bytes]()  # of the tokens [first, len(ids)), the last one first
    while first > num_kept and len(texts) < max_tokens and sum(map(len, texts)) < table.longest:
        text = tokenizer.token_bytes(ids[first - 1]) or b""
        if ids[first - 1] not in table.equal(text):
            break
        texts.append(text)
        first -= 1
    num = _num_tail(texts, table)
    return ids[: len(ids) - num], b"".join(reversed(texts[:num]))


def _num_tail(texts: Sequence[bytes], table: TokenBytes) -> int:
    """How many tokens the tail has. `texts`: of the tokens that it may have, the last one first."""
    found, end = 0, b""
    for num, text in enumerate(texts, 1):
        if any(table.goes_on(text[start:] + end) for start in range(len(text))):
            found = num
        end = text + end
    return found


@dataclass(frozen=True, slots=True)
class Inner:
    """A token that only spells bytes of the tail."""

    token: int
    offset: int  # of what follows it


class Tail:
    """What may follow the first `offset` bytes of the tail, in a sequence of at most `max_tokens` tokens."""

    def __init__(self, text: bytes, table: TokenBytes, max_tokens: int) -> None:
        self.text, self.table, self._max_tokens = text, table, max_tokens

    def inner(self, offset: int, num_tokens: int) -> list[Inner]:
        """Tokens after which `num_tokens` + 1 are there, and enough are left for the rest of the tail."""
        rest, most = self.text[offset:], self._max_tokens - num_tokens - 1
        ends = [offset + length for length in self.table.pieces(rest)]
        return [
            Inner(token, end)
            for end in ends
            if self._fewest[end] <= most
            for token in self.table.equal(self.text[offset:end])
        ]

    def spelled(self, tokens: Sequence[int]) -> int:
        """How many bytes of it tokens inside it spell."""
        offset = 0
        for num, token in enumerate(tokens):
            offset = next(each.offset for each in self.inner(offset, num) if each.token == token)
        return offset

    def covering(self, offset: int) -> memoryview:
        """Ids of the tokens that begin with the rest of the tail. int32"""
        return self.table.begin_with(self.text[offset:])

    def beyond_of(self, token: int, offset: int) -> bytes:
        """What one of `covering(offset)` has after the tail."""
        at = self.covering(offset).tolist().index(token)
        return self.table.beyond(self.text[offset:]).texts[at]

    @cached_property
    def _fewest(self) -> list[int]:
        """How many tokens it takes at least from each offset on."""
        fewest = [NEVER] * len(self.text)
        for offset in reversed(range(len(self.text))):
            if len(self.covering(offset)):
                fewest[offset] = 1
                continue
            ends = (offset + length for length in self.table.pieces(self.text[offset:]))
            fewest[offset] = 1 + min((fewest[end] for end in ends), default=NEVER)
        return fewest
