"""What each backend can do, as the table of `ramet backends` and of docs/backends.md, from the records themselves."""

from collections.abc import Callable, Iterator

from ramet.frontend.backends import anthropic, bodies, gemini, litellm, replay, sglang
from ramet.frontend.backends.base import Capabilities
from ramet.frontend.backends.flavors import FLAVORS, ReasoningFlavor
from ramet.frontend.backends.mock import Mock

USAGE = """\
usage: ramet backends [--markdown]

Prints what each backend of the language can do. What a program asks for beyond it is refused before the first call."""


def records() -> Iterator[tuple[str, Capabilities]]:
    """Each backend's name and record; of APIs that differ by model or server, one for each kind."""
    yield "Endpoint (ramet), LLM", bodies.CAPABILITIES
    yield "Endpoint (SGLang)", sglang.CAPABILITIES
    openai = FLAVORS["openai"]()
    yield "OpenAI", openai.capabilities(chat=True, text=False)
    yield "OpenAI, models that think", ReasoningFlavor().capabilities(chat=True, text=False)
    yield "OpenAI, completion models", openai.capabilities(chat=False, text=True)
    for name, flavor in FLAVORS.items():
        if name != "openai":
            yield f"OpenAI(flavor={name!r})", flavor().capabilities(chat=True, text=True)
    for version, title in (((4, 1), "to 4.1"), ((4, 5), "4.5"), ((4, 6), "4.6"), ((4, 7), "from 4.7")):
        model = anthropic.ModelTraits(version)
        yield f"Anthropic, Claude {title}", anthropic.capabilities(model, model.goes_on)
    yield "Gemini", gemini.CAPABILITIES
    yield "LiteLLM", litellm.CAPABILITIES
    yield "Mock", Mock.capabilities
    yield "Replay", replay.ALL


COLUMNS: dict[str, Callable[[Capabilities], str]] = {
    "text": lambda can: _yes(can.completion),
    "chat": lambda can: _yes(can.chat),
    "goes on in a turn": lambda can: _yes(can.continues),
    "keeps to": lambda can: ", ".join(sorted(can.held)) or "-",
    "dtype": lambda can: _yes(can.dtype),
    "select": lambda can: can.select or "-",
    "stop texts": lambda can: "any" if can.most_stops is None else str(can.most_stops),
    "sampling": lambda can: "all" if can.sampling is None else f"{len(can.sampling - {'stop'})}",
    "logprobs": lambda can: _yes(can.options is None or "return_logprob" in can.options),
    "thoughts": lambda can: _yes(can.thoughts),
    "prefixes held": lambda can: _yes(can.prefixes),
    "parallel contexts": lambda can: _yes(can.contexts),
    "media": lambda can: ", ".join(sorted(can.media)) or "-",
}


def rows() -> list[list[str]]:
    """The head first."""
    return [["backend", *COLUMNS], *([name, *(of(can) for of in COLUMNS.values())] for name, can in records())]


def as_markdown() -> str:
    head, *others = rows()
    lines = [head, ["---"] * len(head), *others]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def as_text() -> str:
    """One backend after the other: the table is too wide for a terminal."""
    head, *others = rows()
    width = max(map(len, head)) + 2
    parts = []
    for name, *values in others:
        lines = [f"  {title:<{width}}{value}" for title, value in zip(head[1:], values, strict=True)]
        parts.append("\n".join([name, *lines]))
    return "\n\n".join(parts) + "\n"


def sampling_table() -> str:
    """Which sampling parameters each backend has."""
    named = {name: can.sampling for name, can in records() if can.sampling is not None}
    every = sorted({name for names in named.values() for name in names})
    lines = [["parameter", *named], ["---"] * (len(named) + 1)]
    lines += [[f"`{each}`", *(_yes(each in names) for names in named.values())] for each in every]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def main(argv: list[str]) -> int:
    if argv and argv[0] in ("-h", "--help"):
        print(USAGE)
        return 0
    if argv not in ([], ["--markdown"]):
        print(USAGE)
        return 2
    print(as_markdown() if argv else as_text(), end="")
    return 0


def _yes(value: bool) -> str:
    return "yes" if value else "-"
