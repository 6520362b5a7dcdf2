"""`ramet grammar check FILE`: which backends compile a constraint, and what it makes of a text.

Decides what a file is written in and which text is tried. Compiles as a server does: in worker processes, with the
timeout of --grammar-timeout-s. Exit code 0 if the backend of --grammar-backend compiles it.
"""

import json
import sys
import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ramet.ipc.spec import Constraint, ConstraintKind
from ramet.runtime.commands.grammar_report import Report, Sample, Verdict, show
from ramet.runtime.config import Args
from ramet.runtime.errors import ConfigError
from ramet.runtime.flags import OPTIONS, Parser, add_options, parse_with
from ramet.runtime.grammar.backends import BACKENDS, check_installed
from ramet.runtime.grammar.base import GrammarError, Vocabulary
from ramet.runtime.grammar.compile import CompilePool, Compiling
from ramet.runtime.grammar.compiled import Failed, Loaded
from ramet.runtime.grammar.compiler import CompileLimits, Compiler
from ramet.runtime.grammar.jump import Retokenizer
from ramet.runtime.grammar.output import JumpMode
from ramet.runtime.grammar.shortest import MAX_DRAWS, MAX_S, literals_of, shortest_text
from ramet.runtime.grammar.trial import TrialOracle, draw
from ramet.runtime.grammar.vocabulary import TokenTable
from ramet.runtime.text.tokenizer import Tokenizer

KINDS = {  # by the ending of a file; JSON may be a structural tag
    ".regex": ConstraintKind.REGEX,
    ".txt": ConstraintKind.REGEX,
    ".gbnf": ConstraintKind.EBNF,
    ".ebnf": ConstraintKind.EBNF,
    ".lark": ConstraintKind.EBNF,
    ".json": ConstraintKind.JSON_SCHEMA,
}
USED = ("model_path", "tokenizer_path", "grammar_backend", "json_whitespace", "grammar_timeout_s", "grammar_memory_mb")
CACHE_BYTES = 1 << 30


def main(argv: Sequence[str], env: Mapping[str, str]) -> int:
    args, space = parse_with(_parser(), argv, env)
    if args.grammar.grammar_backend == "none":
        raise ConfigError(f"--grammar-backend is none, must be one of {', '.join(BACKENDS)}")
    constraint = read_constraint(Path(space.file), space.kind)
    check_sample(space.sample)
    report = examine(args, constraint, space.file, space.sample)
    print(msgspec.json.encode(report).decode() if space.json else show(report))
    asked = next((each for each in report.backends if each.backend == args.grammar.grammar_backend), None)
    if asked is None or asked.state != "compiles":
        return 1
    return 0 if asked.sample is None or asked.sample.accepted else 1


def _parser() -> Parser:
    parser = Parser(
        prog="ramet grammar check",
        description="Compile a constraint on every backend, and try a text: what is forced, which steps that saves.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "file",
        help="a JSON schema or structural tag (.json), a regex (.regex, .txt), or a grammar (.gbnf, .lark);"
        " - reads stdin, with --kind",
    )
    kinds = [kind.value for kind in ConstraintKind]
    parser.add_argument("--kind", choices=kinds, help="what the file is written in, whatever its name is")
    parser.add_argument("--sample", metavar="TEXT", help="text to try; else a short one that the constraint allows")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(config=None, print_config=False, **{option.name: None for option in OPTIONS})
    add_options(parser, [option for option in OPTIONS if option.name in USED], {})
    return parser


def read_constraint(path: Path, kind: str | None) -> Constraint:
    """Raises ConfigError."""
    try:
        text = sys.stdin.buffer.read().decode() if str(path) == "-" else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    found = ConstraintKind(kind) if kind is not None else _kind_of(path, text)
    text = text.removesuffix("\n") if found is ConstraintKind.REGEX else text
    if not text:  # what a server reads as no constraint
        raise ConfigError(f"{path} is empty, must hold a JSON schema, a regex or a grammar")
    return Constraint(found, text)


def check_sample(text: str | None) -> None:
    """Raises ConfigError."""
    try:
        (text or "").encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"--sample is not UTF-8 at character {error.start}: an output is text") from None


def _kind_of(path: Path, text: str) -> ConstraintKind:
    if str(path) == "-":
        raise ConfigError(f"- is stdin, which needs --kind: {', '.join(kind.value for kind in ConstraintKind)}")
    kind = KINDS.get(path.suffix.lower())
    if kind is None:
        raise ConfigError(f"{path} has an unknown ending: name it {', '.join(KINDS)}, or say --kind")
    if kind is ConstraintKind.JSON_SCHEMA and _is_structural_tag(text):
        return ConstraintKind.STRUCTURAL_TAG
    return kind


def _is_structural_tag(text: str) -> bool:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):  # the backends say what is wrong with it
        return False
    return isinstance(content, dict) and (content.get("type") == "structural_tag" or "structures" in content)


def examine(args: Args, constraint: Constraint, file: str, sample: str | None) -> Report:
    """`sample` None: a text made by the backend of --grammar-backend, or else by the first one that compiles."""
    tokenizer = Tokenizer.from_folder(args.tokenizer_folder, args.model_folder)
    tokens = TokenTable(Vocabulary(tokenizer, args.tokenizer_folder, tokenizer.vocab_size, tokenizer.eos_ids))
    verdicts, loaded = _compile(args, constraint, tokens)
    made_by, no_sample = None, ""
    if sample is None and loaded:
        asked = args.grammar.grammar_backend
        made_by = asked if asked in loaded else next(iter(loaded))
        try:
            sample = shortest_text(loaded[made_by].compiled, tokens, literals_of(constraint))
            if sample is None:
                no_sample = f"{made_by} found none of at most {MAX_DRAWS} draws in {MAX_S:g} s"
        except GrammarError as error:
            no_sample = f"the constraint {error.fact}"
    spelled: list[int] = []
    if sample is not None:
        oracle = TrialOracle(tokens, sample)
        spelled = oracle.canonical
        tried = {name: try_sample(each, tokens, oracle) for name, each in loaded.items()}
        verdicts = [replace(verdict, sample=tried.get(verdict.backend)) for verdict in verdicts]
    return Report(
        file=file,
        kind=constraint.kind.value,
        tokenizer=str(args.tokenizer_folder),
        sample=sample,
        made_by=made_by if sample is not None else None,
        no_sample=no_sample,
        tokens=tuple(_shown(tokenizer.token_bytes(token) or b"") for token in spelled),
        backends=tuple(verdicts),
    )


def _compile(args: Args, constraint: Constraint, tokens: TokenTable) -> tuple[list[Verdict], dict[str, Loaded]]:
    """On every backend."""
    verdicts: list[Verdict] = []
    loaded: dict[str, Loaded] = {}
    done = threading.Event()
    timeout_s = args.grammar.grammar_timeout_s
    limits = CompileLimits(timeout_s, args.grammar.grammar_memory_mb, CACHE_BYTES)
    pool = CompilePool(Compiler(tokens.vocabulary, limits, wants_fsm=True, niceness=0), done.set)

    def outcome(kind: ConstraintKind, text: str) -> Loaded | Failed:
        asked = Constraint(kind, text, backend=name, whitespace=args.grammar.json_whitespace)
        found = pool.get(asked)
        if not isinstance(found, Compiling):
            return found
        while (ended := found.outcome) is None:
            done.wait()
            done.clear()
        return ended

    try:
        for name in BACKENDS:
            try:
                check_installed(name)
            except ConfigError as error:
                verdicts.append(Verdict(backend=name, state="not installed", fact=str(error)))
                continue
            outcome(ConstraintKind.REGEX, "a")  # the library is loaded and reads the vocabulary
            started = time.monotonic()
            found = outcome(constraint.kind, constraint.text)
            compile_ms = 1000 * (time.monotonic() - started)
            if isinstance(found, Failed):
                verdicts.append(Verdict(backend=name, state="refused", fact=found.fact, hint=found.hint))
                continue
            loaded[name] = found
            num_bytes = found.compiled.num_bytes
            verdicts.append(Verdict(backend=name, state="compiles", compile_ms=compile_ms, num_bytes=num_bytes))
    finally:
        pool.close()
    return verdicts, loaded


def try_sample(loaded: Loaded, tokens: TokenTable, oracle: TrialOracle) -> Sample:
    try:
        return _tried(loaded, tokens, oracle)
    except GrammarError as error:
        return Sample(accepted=False, num_legal=0, may_end=False, failure=error.fact)


def _tried(loaded: Loaded, tokens: TokenTable, oracle: TrialOracle) -> Sample:
    """Raises GrammarError where the constraint becomes too complex."""
    plain = draw(loaded, tokens, oracle, JumpMode.OFF)
    if plain.refusal is not None:
        legal = len(oracle.text[: plain.refusal.num_bytes].decode(errors="ignore"))
        expected = tuple(map(_shown, plain.refusal.expected))
        return Sample(
            accepted=False,
            num_legal=legal,
            expected=expected,
            num_more=plain.refusal.num_more,
            may_end=plain.refusal.may_end,
        )
    possible = {
        JumpMode.FF: loaded.backend.canonical,
        JumpMode.RETOKENIZE: Retokenizer(tokens.vocabulary.tokenizer).possible,
    }
    trials = {mode: draw(loaded, tokens, oracle, mode) for mode, can in possible.items() if can}
    drawn = {mode: trial.num_draws for mode, trial in {JumpMode.OFF: plain, **trials}.items()}
    most = max((trial.forced for trial in trials.values()), key=_length, default=())
    return Sample(
        accepted=True,
        num_legal=len(oracle.text.decode()),
        forced=_in_characters(oracle.text, most),
        steps={mode.value: drawn.get(mode) for mode in (JumpMode.OFF, JumpMode.FF, JumpMode.RETOKENIZE)},
        saved={mode.value: plain.num_draws - number for mode, number in drawn.items()},
    )


def _in_characters(text: bytes, spans: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Of a span only the whole characters."""
    first_bytes = [index for index, byte in enumerate(text) if byte & 0xC0 != 0x80]
    places = (
        (bisect_left(first_bytes, begin), bisect_right([*first_bytes, len(text)], end) - 1) for begin, end in spans
    )
    return tuple((begin, end) for begin, end in places if begin < end)


def _length(spans: Sequence[tuple[int, int]]) -> int:
    return sum(end - begin for begin, end in spans)


def _shown(piece: bytes) -> str:
    return piece.decode(errors="backslashreplace")
