"""`ramet bench structured`: steps and time of the model that jump-forward saves, on outputs that are known beforehand.

A scripted model writes the text of a case, token by token as the tokenizer spells it, under the case's constraint, so
that the number of steps is exact: the same on every machine. It is counted with jump-forward `off`, `ff` and
`retokenize`. Beside it stand the tokens of the canonical spelling that the constraint leaves no choice about, found by
asking for the mask of each: `ff` should take no step for any of them. The end of an output counts as a token.

The wall times are those of the same texts with a model that computes every step, the bundled one: what it draws is
thrown away and the text's token taken. 32 different schemas run at once in the same way. At last they run through
`LLM`, where the model itself writes; its outputs with `ff` must be those with `off`. Times are medians over rounds.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ramet.bench import report, stamp
from ramet.bench.constrained_cases import ConstrainedCase, cases, different_schemas
from ramet.bench.errors import BadOption
from ramet.bench.one_thread import Grammars, KnownRunner, OneThread, vocabulary_of
from ramet.bench.rounds import turned
from ramet.bench.values import positive
from ramet.ipc.messages import FinishKind
from ramet.runtime.arrays import Ints
from ramet.runtime.config import BUNDLED_MODEL, make_args
from ramet.runtime.engine.batch import Batch, Done, LoadedRunner, Pending, StepResult
from ramet.runtime.grammar.base import Vocabulary
from ramet.runtime.scheduler.process.start import make_runner
from ramet.runtime.text.tokenizer import Tokenizer

MODES = ("off", "ff", "retokenize")
FLEXIBLE = "flexible whitespace"
TOGETHER = "schemas at once"
CONTEXT, POOL_TOKENS = 512, 32768
PROMPT_LEN = 8  # tokens; the first of them says which text is to be written


class AnswerOracle:
    """What a model would draw that writes one text: its canonical token, wherever the output has been canonical."""

    def __init__(self, tokenizer: Tokenizer, text: str) -> None:
        self._tokenizer, self._text = tokenizer, text.encode()
        self.canonical = tokenizer.encode(text, add_special_tokens=False)
        lengths = [len(self.piece(token)) for token in self.canonical]
        starts = np.cumsum([0, *lengths[:-1]]).tolist()
        self._at = dict(zip(starts, self.canonical, strict=True))  # bytes written -> the token that begins there

    def piece(self, token: int) -> bytes:
        return self._tokenizer.token_bytes(token) or b""

    def next_token(self, output: Ints, allowed: Ints) -> int | None:
        """One of `allowed`; None where the text is written."""
        known = b"".join(map(self.piece, output.tolist()))
        if not self._text.startswith(known):
            raise BadOption(f"the output is {known!r}, which does not begin the text {self._text!r}")
        rest = self._text[len(known) :]
        if not rest:
            return None
        wanted = self._at.get(len(known))
        if wanted is not None and wanted in allowed:
            return wanted
        spelled = {
            token: piece for token in allowed.tolist() if (piece := self.piece(token)) and rest.startswith(piece)
        }
        if not spelled:
            raise BadOption(f"the constraint does not allow {rest[:40]!r} after {known!r}")
        return max(spelled, key=lambda token: len(spelled[token]))


class Dictated:
    """A launched step whose rows draw what their texts say."""

    runs = True

    def __init__(self, runner: "OracleRunner", batch: Batch, computed: Pending | None) -> None:
        self._runner, self._batch, self._computed = runner, batch, computed
        self._tokens = np.zeros(len(batch.draws), np.int32)

    def draw(self, allowed: Ints) -> None:
        if self._computed is not None:
            self._computed.draw(allowed)
        masked = self._batch.sampling.masked
        assert masked is not None
        for draw, bits in zip(masked.tolist(), allowed, strict=True):
            self._tokens[draw] = self._runner.choose(int(self._batch.draws[draw]), self._batch, bits)

    def result(self) -> StepResult:
        if self._computed is None:
            return StepResult(self._tokens)
        return replace(self._computed.result(), tokens=self._tokens)


class OracleRunner(KnownRunner):
    """Writes the texts of `oracles`; `model` computes each step as well, if there is one. Prefixes are not cached."""

    def __init__(self, tokens: Vocabulary, oracles: Sequence[AnswerOracle], model: LoadedRunner | None = None) -> None:
        super().__init__(tokens.size, len(oracles), CONTEXT)
        self._oracles, self._model, self._eos_id = oracles, model, min(tokens.eos_ids)
        self._tokens = np.zeros((self.facts.max_running_requests + 1, CONTEXT), np.int32)  # of each row
        self.steps = self.computed_tokens = 0

    def launch(self, batch: Batch) -> Pending:
        self.steps += 1
        self.computed_tokens += len(batch.token_ids)
        self._tokens[np.repeat(batch.rows, batch.num_new), batch.positions] = batch.token_ids
        computed = None if self._model is None else self._model.launch(batch)
        return Dictated(self, batch, computed) if len(batch.draws) else computed or Done(StepResult(batch.draws))

    def choose(self, at: int, batch: Batch, bits: Ints) -> int:
        known = self._tokens[batch.rows[at], : batch.seq_lens[at]]
        legal = np.flatnonzero(np.unpackbits(bits.view(np.uint8), bitorder="little")[: self.facts.vocab_size]).astype(
            np.int32
        )
        token = self._oracles[int(known[0])].next_token(known[PROMPT_LEN:], legal)
        return self._eos_id if token is None else token


@dataclass(frozen=True)
class Played:
    """`tokens` of each output, its end included."""

    steps: int
    seconds: float
    tokens: list[int]
    texts: list[str]


def play(
    tokens: Vocabulary,
    grammars: Grammars,
    group: Sequence[ConstrainedCase],
    mode: str,
    model: LoadedRunner | None = None,
) -> Played:
    """All cases at once, each written by the oracle of its text."""
    oracles = [AnswerOracle(tokens.tokenizer, case.text) for case in group]
    runner = OracleRunner(tokens, oracles, model)
    options = {"jump_forward": mode, "disable_radix_cache": True}
    top = OneThread(runner, grammars, tokens.tokenizer, **options)
    uids = [top.submit(case.constraint, CONTEXT - PROMPT_LEN, [i] * PROMPT_LEN) for i, case in enumerate(group)]
    started = time.perf_counter()
    for _ in top.turns():
        pass
    seconds = time.perf_counter() - started
    for uid, case in zip(uids, group, strict=True):
        if top.finished[uid].kind is not FinishKind.STOP:
            raise BadOption(f"{case.name} did not end, but {top.finished[uid]}")
    outputs = [top.outputs[uid] for uid in uids]
    return Played(runner.steps, seconds, [len(each) for each in outputs], list(map(tokens.tokenizer.decode, outputs)))


def forced_tokens(tokens: Vocabulary, grammars: Grammars, case: ConstrainedCase) -> tuple[int, int]:
    """(length of the canonical spelling, those of its tokens whose mask allows nothing else); the end is a token."""
    canonical = tokens.tokenizer.encode(case.text, add_special_tokens=False)
    grammar = grammars.compiled(case.constraint).start()
    bits, forced = np.zeros(-(-tokens.size // 32), np.int32), 0
    for token in canonical:
        grammar.fill_mask(bits)
        forced += int(np.bitwise_count(bits.view(np.uint32)).sum()) == 1
        if not grammar.accept(token):
            raise BadOption(f"{case.name}: the constraint does not allow its text in the canonical spelling")
    return len(canonical) + 1, forced + grammar.must_end


def notes_cases() -> dict[str, ConstrainedCase]:
    fixed, flexible = cases(), cases("flexible")
    names = ("character", "500 choices", "city", "order")
    return {name: fixed[name] for name in names} | {f"{name}, {FLEXIBLE}": flexible[name] for name in ("city", "order")}


def main(argv: Sequence[str]) -> int:
    options = _parser().parse_args(list(argv))
    try:
        record = measure(options)
    except BadOption as error:
        print(f"ramet bench structured: {error}", file=sys.stderr)
        return 1
    made = stamp.stamp(stamp.command_line("structured", argv))
    chosen = {name: getattr(options, name) for name in ("rounds", "num_threads", "schemas")}
    report.append_line(options.output_file, {"bench": "structured", **made, **chosen, **record})
    return 0


def _parser() -> argparse.ArgumentParser:
    formatter = argparse.RawDescriptionHelpFormatter
    p = argparse.ArgumentParser(prog="ramet bench structured", description=__doc__, formatter_class=formatter)
    p.add_argument("--rounds", type=positive, default=5, help="of the times, default 5")
    p.add_argument("--num-threads", type=positive, default=1, help="of the model, default 1")
    p.add_argument("--schemas", type=positive, default=32, help="that run at once, default 32")
    p.add_argument("--max-new-tokens", type=positive, default=256, help="of what the model itself writes, default 256")
    p.add_argument("--case", choices=notes_cases(), action="append", help="default: all")
    p.add_argument("--steps-only", action="store_true", help="no times")
    p.add_argument("--output-file", type=Path, default=report.results_file("structured"), help=report.RESULTS_HELP)
    return p


def measure(options: argparse.Namespace) -> dict[str, Any]:
    tokens = vocabulary_of(BUNDLED_MODEL)
    grammars = Grammars(tokens)
    groups = {name: [case] for name, case in notes_cases().items() if name in (options.case or notes_cases())}
    groups[f"{options.schemas} {TOGETHER}"] = different_schemas(options.schemas)
    figures = {name: steps_of(tokens, grammars, group) for name, group in groups.items()}
    if options.steps_only:
        print(table(figures))
        return {"cases": figures}
    seconds: dict[str, dict[str, list[float]]] = {name: {mode: [] for mode in MODES} for name in groups}
    model = make_runner(_model_args(options), tokens.tokenizer, lambda name, seconds: None)
    for number in range(options.rounds + 1):
        for mode in turned(list(MODES), number):
            for name, group in groups.items():
                played = play(tokens, grammars, group, mode, model)
                if number:  # the first round warms
                    seconds[name][mode].append(played.seconds)
    for name, of_mode in seconds.items():
        figures[name]["ms"] = {mode: round(statistics.median(each) * 1000, 1) for mode, each in of_mode.items()}
    print(table(figures))
    return {"cases": figures, "llm": through_llm(options)}


def _model_args(options: argparse.Namespace) -> Any:
    return make_args(max_total_tokens=POOL_TOKENS, num_threads=options.num_threads, random_seed=0)


def steps_of(tokens: Vocabulary, grammars: Grammars, group: Sequence[ConstrainedCase]) -> dict[str, Any]:
    """What needs no clock."""
    lengths, forced = zip(*(forced_tokens(tokens, grammars, case) for case in group), strict=True)
    played = {mode: play(tokens, grammars, group, mode) for mode in MODES}
    for mode, each in played.items():
        if each.texts != [case.text for case in group]:
            raise BadOption(f"with {mode} another text came out")
    return {
        "canonical_tokens": sum(lengths),
        "forced_tokens": sum(forced),
        "steps": {mode: each.steps for mode, each in played.items()},
        "tokens": {mode: sum(each.tokens) for mode, each in played.items()},
    }


def through_llm(options: argparse.Namespace) -> dict[str, Any]:
    """What the model itself writes: seconds of each mode, and whether `ff` writes what `off` does."""
    from ramet.runtime.llm import LLM

    group = different_schemas(options.schemas)
    prompts = [f"A record of {case.name}:\n" for case in group]
    params = [
        {"json_schema": case.constraint.text, "max_new_tokens": options.max_new_tokens, "temperature": 0}
        for case in group
    ]
    model = {"max_total_tokens": POOL_TOKENS, "num_threads": options.num_threads, "random_seed": 0}
    seconds: dict[str, list[float]] = {mode: [] for mode in MODES}
    written: dict[str, list[list[int]]] = {}
    with ExitStack() as stack:
        llms = {mode: stack.enter_context(LLM(jump_forward=mode, **model)) for mode in MODES}
        for number in range(options.rounds + 1):
            for mode in turned(list(MODES), number):
                llms[mode].flush_cache()
                started = time.perf_counter()
                replies = llms[mode].generate(prompts, params)
                if number:  # the first round warms, and compiles
                    seconds[mode].append(time.perf_counter() - started)
                written[mode] = [reply["output_ids"] for reply in replies]
    medians = {mode: round(statistics.median(each) * 1000, 1) for mode, each in seconds.items()}
    same = written["ff"] == written["off"]
    tokens = {mode: sum(map(len, each)) for mode, each in written.items()}
    print(f"{options.schemas} {TOGETHER} through LLM: {medians} ms, {tokens} tokens; ff writes what off does: {same}")
    return {"ms": medians, "tokens": tokens, "same": same}


def table(figures: dict[str, dict[str, Any]]) -> str:
    head = f"{'case':<28}{'tokens':>8}{'forced':>8}" + "".join(f"{mode:>12}" for mode in MODES)
    lines = [head + "".join(f"{mode + ', ms':>16}" for mode in MODES)]
    for name, each in figures.items():
        steps = "".join(f"{each['steps'][mode]:>12}" for mode in MODES)
        times = "".join(f"{each['ms'][mode]:>16.1f}" for mode in MODES) if "ms" in each else ""
        lines.append(f"{name:<28}{each['canonical_tokens']:>8}{each['forced_tokens']:>8}{steps}{times}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
