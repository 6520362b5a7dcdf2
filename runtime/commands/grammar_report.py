"""What `ramet grammar check` found, and how a terminal shows it.

sample   ⟦{"house": "⟧Gry⟦ffindor"}⟧        what is between ⟦ and ⟧ is forced
"""

import msgspec

INDENT = "  "


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """What one backend makes of the text that is tried. Places count characters."""

    accepted: bool
    num_legal: int  # characters of the text that are legal
    expected: tuple[str, ...] = ()  # some of what may follow them, where the text is refused
    num_more: int = 0  # tokens that may follow as well
    may_end: bool = True  # the text may end behind them
    forced: tuple[tuple[int, int], ...] = ()  # [begin, end)
    steps: dict[str, int | None] = {}  # --jump-forward -> tokens that a model draws, the end included; None: cannot
    saved: dict[str, int] = {}  # steps that are saved
    failure: str = ""  # what the constraint did before it was known whether it allows the text


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One backend."""

    backend: str
    state: str  # compiles, refused, not installed
    fact: str = ""
    hint: str = ""
    compile_ms: float | None = None
    num_bytes: int | None = None
    sample: Sample | None = None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    file: str
    kind: str
    tokenizer: str
    sample: str | None  # the text that is tried
    no_sample: str  # why none was made, where one was wanted
    made_by: str | None  # the backend that made it; None: it was given
    tokens: tuple[str, ...]  # its canonical tokenisation
    backends: tuple[Verdict, ...]


def show(report: Report) -> str:
    lines = [f"{report.file}: {report.kind}, tokenizer {report.tokenizer}", ""]
    lines += [f"{INDENT}{verdict.backend:<12}{_outcome(report.file, verdict)}" for verdict in report.backends]
    if report.sample is None:
        missing = ["", f"no sample: {report.no_sample}; --sample tries one"] if report.no_sample else []
        return "\n".join([*lines, *missing])
    origin = "given" if report.made_by is None else f"made by {report.made_by}; --sample tries another"
    lines += ["", f"sample ({origin}):", f"{INDENT}{printable(report.sample)}"]
    lines.append(f"{len(report.tokens)} canonical tokens:")
    lines.append(f"{INDENT}{' '.join(map(repr, report.tokens))}")
    for verdict in report.backends:
        if verdict.sample is not None:
            lines += ["", *_tried(verdict.backend, report.sample, verdict.sample)]
    return "\n".join(lines)


def _outcome(file: str, verdict: Verdict) -> str:
    if verdict.state == "refused":
        name = "stdin" if file == "-" else file
        subject = name if verdict.fact.startswith("#") else f"{name} "  # order.json#/properties/a
        return f"refused: {subject}{verdict.fact}" + (f" ({verdict.hint})" if verdict.hint else "")
    if verdict.compile_ms is None or verdict.num_bytes is None:
        return f"{verdict.state}: {verdict.fact}"
    return f"compiles in {verdict.compile_ms:.0f} ms, about {-(-verdict.num_bytes // 1024)} KiB"


def _tried(backend: str, text: str, sample: Sample) -> list[str]:
    if sample.failure:
        return [f"{backend} cannot follow it: the constraint {sample.failure}"]
    if not sample.accepted:
        return _refused(backend, text, sample)
    lines = [f"{backend} accepts it; forced text between ⟦ and ⟧:", f"{INDENT}{marked(text, sample.forced)}"]
    lines.append(f"{INDENT}{'--jump-forward':<16}{'model steps':>11}{'saved':>7}")
    for mode, steps in sample.steps.items():
        saved = sample.saved.get(mode, "")
        lines.append(f"{INDENT}{mode:<16}{'cannot' if steps is None else steps:>11}{saved:>7}".rstrip())
    return lines


def _refused(backend: str, text: str, sample: Sample) -> list[str]:
    legal, rest = text[: sample.num_legal], text[sample.num_legal :]
    where = f"at character {sample.num_legal}: {printable(rest[:20])!r}" if rest else "at its end: more must follow"
    may = ["the end"] * sample.may_end + [repr(printable(piece)) for piece in sample.expected]
    more = f" and {sample.num_more} more tokens" if sample.num_more else ""
    return [
        f"{backend} refuses it {where}",
        f"{INDENT}after {printable(legal)!r}",
        f"{INDENT}may follow: {', '.join(may) or 'nothing'}{more}",
    ]


def marked(text: str, spans: tuple[tuple[int, int], ...]) -> str:
    """With ⟦ and ⟧ around each span."""
    parts, done = [], 0
    for begin, end in spans:
        parts += [printable(text[done:begin]), f"⟦{printable(text[begin:end])}⟧"]
        done = end
    return "".join([*parts, printable(text[done:])])


def printable(text: str) -> str:
    """On one line, as it is but for characters that have no shape."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
