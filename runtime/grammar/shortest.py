"""A short text that a constraint allows, found in its own masks: an example of it.

A beam search over draws; text without a choice costs nothing. Outputs that look alike, in what may follow them and in
how much of them was forced, count as one: `a`, `b` and `ab` inside a word. The plainest of them is gone on with.
Where anything may follow, as in free text, masks show no way out: the literals of the constraint are drawn as well.
"""

import json
import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ramet.ipc.spec import Constraint, ConstraintKind
from ramet.runtime.grammar.base import CompiledConstraint, Grammar
from ramet.runtime.grammar.vocabulary import TokenTable

MAX_DRAWS = 400
MAX_S = 1.0  # then it is given up
WIDTH = 8  # outputs that are gone on with
CANDIDATES = 256  # tokens that are tried where a mask is new
MAX_LITERALS = 32
RARE = 8  # what a character costs that is not ASCII, or that begins an escape; others cost 1
AGAIN = 1  # what an output costs more that looks like one before: a repetition goes on

CLASS_OR_COUNT = re.compile(r"\\.|\[\^?\]?(?:[^\]\\]|\\.)*\]|\{[0-9,]*\}")
PLAIN = re.compile(r"(?:[^\\()\[\]{}|.*+?^$\n]|\\[nt\W]){2,}")  # in a regular expression
QUOTED = re.compile(r'("(?:[^"\\\n]|\\.)*")(\s*:)?')  # in JSON, GBNF and Lark; what a colon follows is a key

Look = tuple[bytes, int, frozenset[bytes]]  # the mask of what may follow, how many bytes were forced, literals drawn


@dataclass(frozen=True, slots=True)
class _Output:
    text: bytes
    grammar: Grammar
    mask: bytes
    num_free: int = 0  # bytes that were a choice
    cost: int = 0
    literals: frozenset[bytes] = frozenset()

    @property
    def look(self) -> Look:
        return self.mask, len(self.text) - self.num_free, self.literals


def shortest_text(compiled: CompiledConstraint, tokens: TokenTable, literals: Sequence[str] = ()) -> str | None:
    """Not always the shortest one. None: none was found."""
    search = _Search(tokens, literals)
    beam, ended = [search.first(compiled.start())], list[_Output]()
    for _ in range(MAX_DRAWS):
        ended += [output for output in beam if output.grammar.may_end]
        beam = [output for output in beam if not output.grammar.may_end]
        least = min((output.cost for output in ended), default=None)
        if not beam or (least is not None and least < min(output.cost for output in beam)):
            break  # no other one can cost as little
        beam = search.next(beam)
    return min(ended, key=lambda output: (len(output.text), output.cost)).text.decode() if ended else None


def literals_of(constraint: Constraint) -> list[str]:
    """Texts that stand in a constraint as they are."""
    match constraint.kind:
        case ConstraintKind.REGEX:
            pattern = CLASS_OR_COUNT.sub(lambda found: found[0] if found[0][0] == "\\" else "|", constraint.text)
            found = [each.replace(r"\n", "\n").replace(r"\t", "\t") for each in PLAIN.findall(pattern)]
            found = [re.sub(r"\\(\W)", r"\1", each) for each in found]
        case ConstraintKind.JSON_SCHEMA:  # what a value may be its masks show
            return []
        case _:
            found = [
                _unquoted(each)
                for each, colon in QUOTED.findall(constraint.text)
                if not colon and len(each) > len('"x"')
            ]
    return list(dict.fromkeys(found))[:MAX_LITERALS]


def _unquoted(quoted: str) -> str:
    try:
        return str(json.loads(quoted))
    except ValueError:  # an escape that JSON has not
        return quoted[1:-1]


class _Search:
    def __init__(self, tokens: TokenTable, literals: Sequence[str]) -> None:
        self._tokens = tokens
        texts = sorted(tokens.texts, key=lambda token: _plainness(tokens.texts[token]))
        control = sorted(set(tokens.control.values()).difference(tokens.eos_ids))  # legal only where they are named
        short = [token for token in texts if len(tokens.texts[token]) == 1 or _is_character(tokens.texts[token])]
        self._orders = [np.array(ids, dtype=np.int32) for ids in ([*control, *short], texts)]
        self._spelled = {tokens.texts[token]: token for token in reversed(texts)}
        self._longest = max(map(len, self._spelled))
        self._literals = [text.encode(errors="replace") for text in literals]
        self._useful: dict[bytes, list[int]] = {}  # by the mask that allows them: tokens that lead to different looks
        self._seen: set[Look] = set()
        self._deadline = time.monotonic() + MAX_S

    def first(self, grammar: Grammar) -> _Output:
        return self._reached(_Output(b"", grammar, b""))

    def next(self, beam: list[_Output]) -> list[_Output]:
        """The cheapest that are one draw longer: of each mask the first one, then of each the second one."""
        found: dict[Look, _Output] = {}
        for output in beam:
            for each in [*self._with_tokens(output), *self._with_literals(output)]:
                found.setdefault(each.look, each)
        self._seen.update(found)
        of_mask: Counter[bytes] = Counter()
        placed = []
        for each in sorted(found.values(), key=lambda each: each.cost):
            placed.append((not each.grammar.may_end, of_mask[each.mask], each))
            of_mask[each.mask] += 1
        return [each for *_, each in sorted(placed, key=lambda entry: entry[:2])][:WIDTH]

    def _with_tokens(self, output: _Output) -> list[_Output]:
        """One output of each look that is one token away."""
        found: dict[Look, _Output] = {}
        useful = []
        for token in self._useful.get(output.mask) or self._candidates(output.mask):
            piece = self._piece(token)
            drawn = self._drawn(output, piece, [token], _cost(piece), output.literals)
            if drawn is not None and drawn.look not in found:
                found[drawn.look] = drawn
                useful.append(token)
        self._useful.setdefault(output.mask, useful)
        return list(found.values())

    def _with_literals(self, output: _Output) -> list[_Output]:
        drawn = (self._drawn(output, t, self._spelling(t), 1, output.literals | {t}) for t in self._literals)
        return [each for each in drawn if each is not None]

    def _drawn(
        self, output: _Output, piece: bytes, ids: list[int], cost: int, literals: frozenset[bytes]
    ) -> _Output | None:
        """None: `piece` is not legal here, or it is too late."""
        grammar = output.grammar.fork()
        if not ids or time.monotonic() > self._deadline or not all(map(grammar.accept, ids)):
            return None
        num_free, cost = output.num_free + len(piece), output.cost + cost
        return self._reached(_Output(output.text + piece, grammar, b"", num_free, cost, literals))

    def _candidates(self, mask: bytes) -> list[int]:
        legal = np.unpackbits(np.frombuffer(mask, np.uint8), bitorder="little")
        found = (order[legal[order] != 0].tolist() for order in self._orders)
        return next(filter(None, found), [])[:CANDIDATES]

    def _reached(self, output: _Output) -> _Output:
        """With what must follow, and its mask. WRITES its grammar."""
        text, grammar = output.text, output.grammar
        while ids := grammar.forced() or self._spelling(grammar.forced_text()):
            done = len(text)
            for token in ids:
                if not grammar.accept(token):  # llguidance wants another spelling
                    break
                text += self._piece(token)
            if len(text) == done:
                break
        bits = np.zeros(self._tokens.words, np.int32)
        grammar.fill_mask(bits)
        reached = replace(output, text=text, mask=bits.tobytes())
        return replace(reached, cost=reached.cost + AGAIN * (reached.look in self._seen))

    def _spelling(self, text: bytes) -> list[int]:
        """Tokens of which a text is made, long ones first; [] where a byte of it is no token."""
        ids, begin = [], 0
        while begin < len(text):
            ends = range(min(len(text), begin + self._longest), begin, -1)
            if (end := next((end for end in ends if text[begin:end] in self._spelled), None)) is None:
                return []
            ids.append(self._spelled[text[begin:end]])
            begin = end
        return ids

    def _piece(self, token: int) -> bytes:
        return self._tokens.vocabulary.tokenizer.token_bytes(token) or b""


def _plainness(piece: bytes) -> tuple[bool, int, int, bytes]:
    """Orders the texts of tokens: short ones first, of one length letters."""
    kinds = piece.islower(), piece.isalnum(), piece.isascii() and not piece.isspace(), True
    return not piece.isascii(), len(piece), kinds.index(True), piece


def _is_character(piece: bytes) -> bool:
    return len(piece.decode(errors="replace")) == 1


def _cost(piece: bytes) -> int:
    later = sum(0x80 <= byte < 0xC0 for byte in piece)  # bytes of a character
    return sum(RARE if byte == ord("\\") or byte >= 0xC0 else 1 for byte in piece) - later
