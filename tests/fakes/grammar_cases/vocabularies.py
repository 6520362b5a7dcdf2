"""The vocabularies that grammars are tried on: the bundled one, and one with tokens that cut characters in two."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from tiny_model import write_tokenizer

from ramet.runtime.grammar.base import Vocabulary
from ramet.runtime.text.tokenizer import Tokenizer

BUNDLED = Path(__file__).parents[3] / "runtime" / "models" / "bundled"
TINY_SIZE = 1024


@cache
def bundled() -> Vocabulary:
    return _of(BUNDLED, padding=4)


@cache
def multi_byte() -> Vocabulary:
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    write_tokenizer(folder, TINY_SIZE, seed=0, context=2048)
    return _of(folder, padding=7)


def _of(folder: Path, padding: int) -> Vocabulary:
    """`padding`: a model's logits are often more than the tokenizer has tokens."""
    tokenizer = Tokenizer.from_folder(folder)
    return Vocabulary(tokenizer, folder, tokenizer.vocab_size + padding, tokenizer.eos_ids)
