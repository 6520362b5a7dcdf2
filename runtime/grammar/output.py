"""One output under its constraint: what may be drawn next, and what need not be drawn.

Adds to a Grammar what depends on the request: reasoning that comes first, the end of the output, min_new_tokens.
Knows no step and no row.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate

import numpy as np

from ramet.runtime.arrays import Ints
from ramet.runtime.grammar.aside import AsideGrammar, AsideMasks
from ramet.runtime.grammar.base import (
    MAX_FORCED_BYTES,
    CompiledConstraint,
    Grammar,
    GrammarBackend,
    MaskFiller,
    TooComplex,
)
from ramet.runtime.grammar.bounded import Bounded
from ramet.runtime.grammar.byte_fsm import ByteFsm
from ramet.runtime.grammar.compressed import FsmPath
from ramet.runtime.grammar.ending import EndTokens, allow_only
from ramet.runtime.grammar.jump import RETOKENIZE_WINDOW, Retokenizer
from ramet.runtime.text.tokenizer import Tokenizer


class IllegalToken(Exception):
    """An output has a token that no mask let through: the fault is ours, not the constraint's."""


ASIDE = AsideMasks()
MAX_FORCED = 512  # tokens of a jump: 10 ms of a step
BYTES_OF_A_TOKEN = MAX_FORCED_BYTES // MAX_FORCED  # of forced text


class JumpMode(Enum):
    """How text is appended that a constraint leaves no choice about."""

    FF = "ff"
    RETOKENIZE = "retokenize"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Jump:
    """The last `num_dropped` tokens of an output give way to `tokens`, which nobody draws."""

    num_dropped: int
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ThoughtRule:
    """What an output may have before its constraint begins: everything until the text `after`, `b""` for nothing.

    `opens`: only an output that begins with this control token has a thought: where the model, free to draw anything,
    would draw it. Any other first token is one that the constraint allows. A constraint that begins with this token
    describes the thought itself.
    """

    after: bytes = b""
    opens: str = ""


class ConstrainedOutput:
    """`mode` RETOKENIZE needs a `retokenizer`; what is forced `fsm` says, if there is one."""

    def __init__(
        self,
        compiled: CompiledConstraint,
        backend: GrammarBackend,
        tokenizer: Tokenizer,
        ending: EndTokens,
        mode: JumpMode = JumpMode.OFF,
        thought: ThoughtRule = ThoughtRule(),
        retokenizer: Retokenizer | None = None,
        fsm: ByteFsm | None = None,
    ) -> None:
        self.compiled, self.grammar = compiled, compiled.start()
        self.backend: MaskFiller = backend
        self.mode = mode
        self._tokenizer, self._ending, self._after = tokenizer, ending, thought.after
        self.aside: AsideGrammar | None = None  # its grammar, if a process of its own parses it
        self._opens = thought.opens  # until the grammar has said whether it begins with this
        self.opening: int | None = None  # None: it is known whether there is a thought
        self.active = bool(thought.opens) or not thought.after
        self._tail = b""  # of what came before the constraint: it may hold the start of `after`
        self._expected: tuple[int, ...] = ()  # tokens that come next, whatever the model says
        self._accepted: list[int] = []  # tokens that the grammar accepted
        self._spelled: list[int] = []  # tokens that it accepted before those and that are not in the output
        self._retokenizer = retokenizer
        self._path = FsmPath(fsm) if fsm is not None and mode is JumpMode.RETOKENIZE else None
        self.ended = False  # an end-of-sequence token was accepted, or must_end without there being one
        if isinstance(self.grammar, AsideGrammar):
            self._put_aside(self.grammar)
        else:
            self.opening = self._opening()

    @property
    def jumps(self) -> bool:
        """What follows its next token is not known at once."""
        return self.mode is not JumpMode.OFF or self.aside is not None

    @property
    def window(self) -> int:
        """How many of the last tokens a jump may still replace."""
        return RETOKENIZE_WINDOW if self.mode is JumpMode.RETOKENIZE else 0

    @property
    def end_token(self) -> int | None:
        """What ends an output that must end."""
        return int(self._ending.eos_ids[0]) if len(self._ending.eos_ids) else None

    def accept(self, token: int) -> Jump | None:
        """Go on with a token. What must be done about it, if the constraint begins inside it.

        Raises IllegalToken, and GrammarError where the constraint became too complex.
        """
        self._expected = self._expected[1:]
        opening, self.opening = self.opening, None
        if token == opening:
            self.active = False
            return None
        if not self.active:
            return self._think(token)
        if token in self._ending.eos_ids:
            if not self.grammar.may_end:
                raise IllegalToken(f"token {token} ends the output where its constraint does not allow that")
            self.ended = True
            return None
        try:
            is_legal = self.grammar.accept(token)
        except TooComplex as error:
            self._accepted.append(token)
            self.move_aside(error)
            return None
        if not is_legal:
            raise IllegalToken(f"token {token} leaves the constraint")
        self._accepted.append(token)
        if self._path is not None:
            self._path.push(self._tokenizer.token_bytes(token) or b"")
        self.ended = self.end_token is None and self.grammar.must_end
        return None

    def begin_with(self, text: bytes, spelled: Sequence[int]) -> None:
        """The output begins with the rest of a token whose first bytes are the prompt's; `spelled` has its bytes.

        Such a token opens no thought and is never replaced. Raises IllegalToken, and GrammarError as `accept`.
        """
        if not text:
            return
        self.opening = None
        if not self.active:
            self._tail, self.active = text[-len(self._after) :], text.endswith(self._after)
            return
        self._spelled = list(spelled)
        try:
            if self.aside is not None:
                raise TooComplex("is parsed aside from its beginning")
            if not all(map(self.grammar.accept, spelled)):
                raise IllegalToken(f"{text!r} leaves the constraint")
        except TooComplex as error:
            return self.move_aside(error)
        if self._path is not None:
            self._path.push(text)
        self.ended = self.end_token is None and self.grammar.must_end

    def thinks(self, text: bytes) -> bool:
        """Whether an output that is not `active` may begin with this: the constraint does not begin inside it."""
        return self._after not in text[:-1]

    @property
    def eos_ids(self) -> Ints:
        return self._ending.eos_ids

    def expect(self, tokens: tuple[int, ...]) -> None:
        """What of a jump had no room: it is drawn without a choice, token by token."""
        self._expected = tokens

    # -- parsed aside -----------------------------------------------------------------------------------------------

    def move_aside(self, error: TooComplex) -> None:
        """What it needs is more than a step may take. Raises `error` where it cannot be parsed elsewhere."""
        if not isinstance(self.compiled, Bounded):
            raise error
        if self.aside is not None:
            self.aside.rest()
        self._put_aside(self.compiled.apart.start([*self._spelled, *self._accepted]))

    def took(self, seconds: float) -> bool:
        """Note the processor time of its last token. True: it was too much for a step, so the output moves aside."""
        if self.aside is not None or not self.active or self.ended or not isinstance(self.compiled, Bounded):
            return False
        if is_slow := self.compiled.took(seconds):
            self.move_aside(TooComplex("takes too long to parse"))
        return is_slow

    def _put_aside(self, grammar: AsideGrammar) -> None:
        self.grammar = self.aside = grammar
        self.backend, self.mode, self._path = ASIDE, JumpMode.OFF, None

    @property
    def pending(self) -> bool:
        """Whether it is parsed aside and the next token's mask is not known yet."""
        return self.aside is not None and self.active and self.aside.pending

    def settle(self) -> None:
        """Apply a reply of the process that parses it aside: whether the output ends, and how it may begin."""
        if self._opens:
            self.opening = self._opening()
        self.ended |= self.end_token is None and self.grammar.must_end

    @property
    def may_jump(self) -> bool:
        """`next_jump` looks for what follows."""
        return self.active and not self.ended and self.mode is not JumpMode.OFF and self.opening is None

    def next_jump(self, output: Ints, max_bytes: int = MAX_FORCED_BYTES, max_tokens: int = MAX_FORCED) -> Jump | None:
        """What follows `output` [n], all of which was accepted, without a draw. None: there is a choice, or no jump.

        `max_bytes`: of forced text, but at least one token. `max_tokens`: about as many, but at least one.
        """
        try:
            return self._next_jump(output, max_bytes, max_tokens)
        except TooComplex as error:
            self.move_aside(error)
            return None

    def _next_jump(self, output: Ints, max_bytes: int, max_tokens: int) -> Jump | None:
        if not self.may_jump:
            return None
        if self.grammar.must_end:
            return None if self.end_token is None else Jump(0, (self.end_token,))
        if self.mode is JumpMode.FF:
            forced = self.grammar.forced()[:max_tokens]
            if max_bytes < MAX_FORCED_BYTES:
                ends = accumulate(len(self._tokenizer.token_bytes(token) or b"") for token in forced)
                forced = forced[: max(sum(end <= max_bytes for end in ends), 1)]
            return Jump(0, tuple(forced)) if forced else None
        return self._retokenized(output, min(max_bytes, BYTES_OF_A_TOKEN * max_tokens))

    def drop(self, num_tokens: int) -> None:
        """Take back the last tokens that were accepted."""
        known = min(num_tokens, len(self._accepted))
        if known:
            self.grammar.rollback(known)
            del self._accepted[len(self._accepted) - known :]
            if self._path is not None:
                self._path.pop(known)

    def finish_mask(self, bits: Ints, num_output: int) -> None:
        """WRITES bits [W] int32, which the grammar filled if it is active: what the request adds to it.

        `num_output`: tokens that the output has.
        """
        words = bits.view(np.uint32)
        if self._expected:
            allow_only(words, np.array(self._expected[:1], dtype=np.int32))
        elif not self.active:
            self._ending.mask_before_constraint(words, num_output)
        elif self.grammar.must_end and self.end_token is not None:
            allow_only(words, self._ending.eos_ids[:1])
        else:
            self._ending.mask(words, num_output)

    def _opening(self) -> int | None:
        token, self._opens = self._tokenizer.added_tokens.get(self._opens), ""
        if token is None or token in self._ending.forbidden(0):
            return None
        accepts = self.grammar.allows if isinstance(self.grammar, AsideGrammar) else self.grammar.fork().accept
        return None if accepts(token) else token

    def _think(self, token: int) -> Jump | None:
        """A token before the constraint. One that has more than the last of `after` is replaced: the rest goes.

        Where what is kept cannot be spelled by itself, it begins within a character, and the token stays as it is.
        """
        piece = self._tokenizer.token_bytes(token) or b""
        text = self._tail + piece
        at = text.find(self._after)
        if at < 0:
            self._tail = text[-len(self._after) :]
            return None
        surplus = len(text) - at - len(self._after)
        kept = piece[: len(piece) - surplus]
        instead = self._tokenizer.encode(kept.decode("utf-8", "ignore"), add_special_tokens=False) if surplus else []
        if not instead or b"".join(self._tokenizer.token_bytes(each) or b"" for each in instead) != kept:
            self.active = True
            return None
        return Jump(1, tuple(instead))

    def _retokenized(self, output: Ints, max_bytes: int) -> Jump | None:
        assert self._retokenizer is not None, "there is nothing to tokenise anew with"
        forced = self._path.forced() if self._path is not None else self.grammar.forced_text()
        if not forced:
            return None
        window = output[len(output) - min(len(self._accepted), RETOKENIZE_WINDOW) :].tolist()
        found = self._retokenizer.retokenize(window, forced[:max_bytes])
        dropped = window[len(window) - found.num_dropped :]
        if not found.tokens or not _takes_instead(self.grammar, dropped, found.tokens):
            return None
        return Jump(found.num_dropped, tuple(found.tokens))


def _takes_instead(grammar: Grammar, dropped: Sequence[int], tokens: Sequence[int]) -> bool:
    """Whether the grammar takes `tokens` in the place of the last ones; it is left as it was."""
    grammar.rollback(len(dropped))
    taken = 0
    while taken < len(tokens) and grammar.accept(tokens[taken]):
        taken += 1
    grammar.rollback(taken)
    for token in dropped:
        assert grammar.accept(token), f"the grammar does not take token {token} again"
    return taken == len(tokens)
