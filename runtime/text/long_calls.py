"""Calls with a long text or many ids. They run on a thread of their own, so that other clients' prompts do not wait.

Decides which calls these are. The libraries release Python's lock while they tokenise and decode. Only calls that the
server answers are here: a prompt stays in the tokenizer's own order, so that no Abort can overtake it.
"""

from ramet.ipc.messages import Detokenize, Tokenize, ToTokenizer

LONG_CHARS = 1 << 15  # tokenised in 15 ms
LONG_IDS_BYTES = 4 << 16  # int32; decoded in 10 ms


def is_long(message: ToTokenizer) -> bool:
    match message:
        case Tokenize(text=text, pair=pair):
            return len(text) + len(pair or "") > LONG_CHARS
        case Detokenize(ids=ids):
            return len(ids) > LONG_IDS_BYTES
        case _:
            return False
