"""What a prompt is, from where a client's words are read to where its tokens are computed. Nobody copies its fields."""

import msgspec

from ramet.ipc.media import Prepared

# Groups of parallel contexts in a prompt: the index of a group's first token, then the length of each context.
# Contexts of a group lie one after the other; groups come in order and do not overlap.
Contexts = tuple[tuple[int, ...], ...]


class Content(msgspec.Struct, frozen=True, array_like=True):
    """A prompt. Exactly one of text, ids and embeds is set; the tokenizer adds ids, which are zeros beside embeds."""

    text: str | None = None
    ids: bytes | None = None  # packed int32
    embeds: bytes | None = None  # packed float32. [prompt tokens, hidden size]
    contexts: Contexts = ()  # with ids alone
    media: tuple[Prepared, ...] = ()  # one for each placeholder, of each kind in order
    is_rendered: bool = False  # the text has its special tokens already

    @property
    def size(self) -> int:
        """Bytes of ids or embeddings, or characters of a text."""
        return len(self.text or self.ids or self.embeds or ())
