"""The command line, `ramet serve | run | chat | bench | convert | grammar | ...`: modules of words, exit codes.

Exit codes: 0 it worked, 1 it failed, 2 the command or an option is wrong. Every command is imported only when it is
asked for, so that `ramet --help` answers at once.
"""

import os
import sys
from collections.abc import Callable, Sequence

USAGE = """\
usage: ramet COMMAND [OPTIONS]

  serve            serve a model over HTTP (ramet serve --help lists every option)
  run "PROMPT"     answer one prompt in this process, streamed to the terminal; - reads the prompt from stdin
  chat [URL]       chat in the terminal, with a running server or with a model that is started for it
  bench WHAT       measure a server, an engine or a kernel (ramet bench --help says what each measures)
  convert SOURCE TARGET
                   write a checkpoint (GGUF, pickles, 4 and 8 bits) as plain safetensors
  grammar check FILE
                   compile a constraint on every backend, try a text: what is forced, which steps that saves
  trace URL        write what the processes of a running server did lately, for ui.perfetto.dev
  backends         what each backend of the language can do
  doctor           what this machine has, what ramet will choose, and what is missing
  completion SHELL print a script by which bash, zsh or fish completes commands and options
  version          print the version

Every command takes --help."""

OURS = ("", "ramet")  # an import of these that fails is a defect: its traceback is wanted
BENCHES = {  # word -> module
    "serving": "serving", "pipeline": "pipeline", "offline": "offline", "against": "against", "pipelines": "pipelines",
    "peers": "peers", "ring": "ring", "startup": "startup", "formats": "formats",
    "penalties": "penalties", "sampling": "kernels.sampling", "attention": "kernels.attention",
    "delta": "kernels.delta",
    "tuning": "tuning", "connections": "connections", "stalls": "stalls", "pace": "pace", "intake": "intake",
    "films": "programs.films", "vision": "programs.vision",
    "backlog": "programs.backlog", "queue": "programs.queue",
    "masks": "kernels.masks", "structured": "programs.structured",
    "overhead": "programs.overhead", "programs": "programs.paper",
    "compiles": "compiles", "imports": "imports", "contexts": "contexts",
    "implementations": "implementations", "adapters": "adapters",
    "tracing": "tracing",
    "watching": "watching", "abuse": "abuse.bench", "soak": "soak",
    "gpu": "gpu.table",
}  # fmt: skip


def serve(argv: list[str]) -> int:
    from ramet.runtime.flags import parse, warn_misspelt

    warn_misspelt(os.environ)
    args = parse(argv, os.environ)
    from ramet.runtime.processes.launch import serve as launch

    return launch(args)


def run(argv: list[str]) -> int:
    from ramet.runtime.commands.run import main as answer

    return answer(argv, os.environ)


def chat(argv: list[str]) -> int:
    from ramet.runtime.terminal.chat import main as talk

    return talk(argv, os.environ)


def bench(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        print("usage: ramet bench WHAT [OPTIONS]\n")
        for word, module in BENCHES.items():
            print(f"  {word:<16} {_first_sentence(module)}")
        print("\nEvery one takes --help.")
        return 0 if argv else 2
    if argv[0] not in BENCHES:
        return _usage_error(f"bench {argv[0]} is not one of {', '.join(BENCHES)}")
    from importlib import import_module

    code: int = import_module(f"ramet.bench.{BENCHES[argv[0]]}").main(argv[1:])
    return code


def _first_sentence(module: str) -> str:
    """Of a bench's docstring. Read, not imported: benches bring torch along."""
    import ast
    from pathlib import Path

    source = Path(__file__).parent.joinpath("bench", *module.split(".")).with_suffix(".py").read_text(encoding="utf-8")
    line = (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]
    return line.rpartition("`: ")[2].partition(". ")[0].removesuffix(".")


def convert(argv: list[str]) -> int:
    from ramet.runtime.weights.convert import main as write

    return write(argv)


def grammar(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        print("usage: ramet grammar check FILE [OPTIONS]")
        return 0 if argv else 2
    if argv[0] != "check":
        return _usage_error(f"grammar {argv[0]} is not a command: it is grammar check FILE")
    from ramet.runtime.commands.grammar_check import main as check

    return check(argv[1:], os.environ)


def trace(argv: list[str]) -> int:
    from ramet.runtime.commands.trace import main as write

    return write(argv, os.environ)


def backends(argv: list[str]) -> int:
    from ramet.frontend.backends.table import main as show

    return show(argv)


def doctor(argv: list[str]) -> int:
    from ramet.runtime.commands.doctor import main as examine

    return examine(argv, os.environ)


def completion(argv: list[str]) -> int:
    from ramet.runtime.commands.completion import main as write

    words = dict.fromkeys(COMMANDS, ()) | {"bench": tuple(BENCHES), "grammar": ("check",)}
    return write(argv, words)


def version(argv: list[str]) -> int:
    from ramet.version import __version__

    print(__version__)
    return 0


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "serve": serve,
    "run": run,
    "chat": chat,
    "bench": bench,
    "convert": convert,
    "grammar": grammar,
    "trace": trace,
    "backends": backends,
    "doctor": doctor,
    "completion": completion,
    "version": version,
}


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help", "help"):
        print(USAGE)
        return 0 if words else 2
    name = "version" if words[0] in ("--version", "-V") else words[0]
    if name not in COMMANDS:
        return _usage_error(f"{name} is not a command: one of {', '.join(COMMANDS)}")
    return guarded(COMMANDS[name], words[1:])


def guarded(command: Callable[[list[str]], int], argv: list[str]) -> int:
    """Run a command; what ramet raises on purpose is one line, and exit code 2 if an option is to blame.

    A package that is not installed, or not as it must be, is one line as well: commands need more than the package.
    """
    try:
        return _told(command, argv)
    except ImportError as error:
        name = (error.name or "").partition(".")[0]
        if name in OURS or name in sys.stdlib_module_names:
            raise
        print(f'ramet: {name} cannot be imported ({error}); pip install "ramet[serve]"', file=sys.stderr)
        return 1


def _told(command: Callable[[list[str]], int], argv: list[str]) -> int:
    from ramet.runtime.errors import ConfigError, RametError

    try:
        code = command(argv)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # who reads has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left would be written at exit
        return 141  # 128 + SIGPIPE, as shells expect
    except ConfigError as error:
        return _usage_error(str(error))
    except RametError as error:
        print(f"ramet: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130  # 128 + SIGINT, as shells expect


def _usage_error(message: str) -> int:
    print(f"ramet: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
