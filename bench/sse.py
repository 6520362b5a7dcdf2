"""A server-sent event stream, cut into events as its bytes arrive. Knows bytes only; nothing is decoded or parsed."""

DONE = b"[DONE]"


class EventSplitter:
    """Feeds on pieces of any size, gives the `data` of each complete event. The cuts between pieces never matter."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> list[bytes]:
        text = self._rest + piece if self._rest else piece
        held = b""
        if b"\r" in text:
            if text.endswith(b"\r"):  # its \n may be in the next piece
                text, held = text[:-1], b"\r"
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        blocks = text.split(b"\n\n")
        self._rest = blocks.pop() + held
        return [data for block in blocks if (data := _data(block)) is not None]


def _data(block: bytes) -> bytes | None:
    """The payload of one event; None for a comment, which servers send to keep a connection alive."""
    if block.startswith(b"data: ") and b"\n" not in block:
        return block[6:]
    values = [line[5:].removeprefix(b" ") for line in block.split(b"\n") if line.startswith(b"data:")]
    return b"\n".join(values) if values else None
