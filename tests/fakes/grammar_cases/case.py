"""A constraint, the shortest output that is known to keep to it, and a check that knows nothing of our grammars."""

from collections.abc import Callable
from dataclasses import dataclass

from ramet.ipc.spec import Constraint
from ramet.runtime.text.tokenizer import Tokenizer

BUDGET = 4  # an output may have this many times the tokens of the shortest


@dataclass(frozen=True, slots=True)
class Case:
    name: str  # finds it again: generator, seed and number
    constraint: Constraint
    shortest: str
    fault: Callable[[str], str | None]  # what is wrong with a finished output; None: it keeps to the constraint
    begins: Callable[[str], bool] | None = None  # whether a finished output begins with a text, where that can be told
    hints: tuple[str, ...] = ()  # what parts of it may need to end that `shortest` has not

    def max_new_tokens(self, tokenizer: Tokenizer) -> int:
        """Four times the tokens of the shortest output, the one that ends it among them."""
        return BUDGET * (len(tokenizer.encode(self.shortest, add_special_tokens=False)) + 1)
