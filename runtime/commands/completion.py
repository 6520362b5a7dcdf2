"""`ramet completion bash|zsh|fish`: a script by which a shell completes commands, options and their values.

Made from the parsers of the commands, so that nothing is listed twice. Nothing of ramet runs when Tab is pressed.
"""

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from ramet.runtime import flags
from ramet.runtime.commands import doctor, run
from ramet.runtime.errors import ConfigError
from ramet.runtime.terminal import chat

NUMBERS = ("INT", "NUMBER", "N,N")  # metavars of what is no file


class Flag(Struct, frozen=True):
    """`values`: those that it may have, none: any. `takes`: whether a value follows, `files`: which may be a file."""

    name: str
    about: str
    values: tuple[str, ...]
    takes: bool
    files: bool


def main(argv: Sequence[str], words: Mapping[str, Sequence[str]]) -> int:
    """`words`: every command, with the words that may follow it."""
    if argv and argv[0] in ("-h", "--help"):
        print(f"usage: ramet completion {'|'.join(SHELLS)}\n\n{USAGE}")
        return 0
    if len(argv) != 1 or argv[0] not in SHELLS:
        raise ConfigError(f"completion {' '.join(argv)} is unknown, must be one of {', '.join(SHELLS)}")
    known = {command: flags_of(command) for command in words}
    sys.stdout.write(SHELLS[argv[0]]({**words, "completion": list(SHELLS)}, known))
    return 0


USAGE = """\
bash:  ramet completion bash > ~/.local/share/bash-completion/completions/ramet
zsh:   ramet completion zsh > FOLDER/_ramet, where FOLDER is in $fpath before compinit
fish:  ramet completion fish > ~/.config/fish/completions/ramet.fish"""


def flags_of(command: str) -> list[Flag]:
    """None of those whose parser needs more than the package."""
    parsers: dict[str, list[Callable[[], argparse.ArgumentParser]]] = {
        "serve": [lambda: flags.serve_parser("ramet serve")],
        "run": [run.make_parser],
        "chat": [chat.make_parser],
        "doctor": [doctor.make_parser, lambda: flags.serve_parser("ramet doctor")],
    }
    found = {flag.name: flag for make in parsers.get(command, []) for flag in _flags(make())}
    return [found[name] for name in sorted(found)]


def _flags(parser: argparse.ArgumentParser) -> list[Flag]:
    made = []
    for action in parser._actions:
        metavar = action.metavar if isinstance(action.metavar, str) else ""
        values = tuple(map(str, action.choices or ())) or tuple(
            re.findall(r"[^{},]+", metavar) if "{" in metavar else ()
        )
        takes = action.nargs != 0
        files = takes and not values and metavar not in NUMBERS
        about = (action.help or "").replace("%%", "%")
        made += [Flag(name, about, values, takes, files) for name in action.option_strings if name.startswith("--")]
    return made


# -- bash --------------------------------------------------------------------------------------------------------------

_BASH = """\
# bash completion of ramet; made by: ramet completion bash
_ramet() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} words=
    COMPREPLY=()
    if [[ $cur == = ]]; then cur=; elif [[ $prev == = ]]; then prev=${{COMP_WORDS[COMP_CWORD-2]}}; fi
    case "$COMP_CWORD ${{COMP_WORDS[1]}}" in
        "1 "*) words="{commands}" ;;
{words}
    esac
    if [[ $cur != -* ]]; then
        case "${{COMP_WORDS[1]}} $prev" in
{values}
        esac
    else
        case ${{COMP_WORDS[1]}} in
{flags}
        esac
    fi
    if [[ $words ]]; then COMPREPLY=($(compgen -W "$words" -- "$cur")); fi
}}
complete -o bashdefault -o default -F _ramet ramet
"""


def bash(words: Mapping[str, Sequence[str]], known: Mapping[str, list[Flag]]) -> str:
    """Where it proposes nothing, bash completes files."""
    with_values = [(c, flag) for c, each in known.items() for flag in each if flag.values]
    return _BASH.format(
        commands=" ".join(words),
        words="\n".join(f'        "2 {c}") words="{" ".join(then)}" ;;' for c, then in words.items() if then),
        values="\n".join(f'            "{c} {f.name}") words="{" ".join(f.values)}" ;;' for c, f in with_values),
        flags="\n".join(
            f'            {c}) words="{" ".join(flag.name for flag in each)}" ;;' for c, each in known.items() if each
        ),
    )


# -- zsh ---------------------------------------------------------------------------------------------------------------

_ZSH = """\
#compdef ramet
# zsh completion of ramet; made by: ramet completion zsh
_ramet() {{
    if (( CURRENT == 2 )); then compadd -- {commands}; return; fi
    local command=$words[2]
    shift words; (( CURRENT-- ))
    case $command in
{cases}
        *) _files ;;
    esac
}}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _ramet "$@"; else compdef _ramet ramet; fi
"""


def zsh(words: Mapping[str, Sequence[str]], known: Mapping[str, list[Flag]]) -> str:
    cases = []
    for command, then in words.items():
        rows = [_zsh_flag(flag) for flag in known[command]]
        rows += [f"'1:word:({' '.join(then)})'"] if then else []
        if rows:
            cases.append(f"        {command}) _arguments {' '.join(rows)} '*: :_files' ;;")
    return _ZSH.format(commands=" ".join(words), cases="\n".join(cases))


def _zsh_flag(flag: Flag) -> str:
    about = re.sub(r"([\[\]:\\])", r"\\\1", flag.about).replace("'", "'\\''")
    value = f":value:({' '.join(flag.values)})" if flag.values else ":file:_files" if flag.files else ":value: "
    return f"'*{flag.name}[{about}]{value if flag.takes else ''}'"


# -- fish --------------------------------------------------------------------------------------------------------------


def fish(words: Mapping[str, Sequence[str]], known: Mapping[str, list[Flag]]) -> str:
    lines = ["# fish completion of ramet; made by: ramet completion fish"]
    lines.append(f"complete -c ramet -n __fish_use_subcommand -f -a '{' '.join(words)}'")
    for command, then in words.items():
        seen = f"complete -c ramet -n '__fish_seen_subcommand_from {command}'"
        lines += [f"{seen} -f -a '{' '.join(then)}'"] if then else []
        lines += [f"{seen} {_fish_flag(flag)}" for flag in known[command]]
    return "\n".join(lines) + "\n"


def _fish_flag(flag: Flag) -> str:
    about = flag.about.replace("\\", "\\\\").replace("'", "\\'")
    value = f" -x -a '{' '.join(flag.values)}'" if flag.values else " -r -F" if flag.files else " -x"
    return f"-l {flag.name[2:]} -d '{about}'{value if flag.takes else ''}"


SHELLS: dict[str, Callable[[Mapping[str, Sequence[str]], Mapping[str, list[Flag]]], str]] = {
    "bash": bash,
    "zsh": zsh,
    "fish": fish,
}
