"""Flags, YAML and environment, all generated from the structs of config.py: nothing is listed twice.

Decides names, precedence (flag > environment > YAML file > default) and how a wrong value is reported: one line with
the option as it was written, its value and what would be valid. Knows no option by name but the field's old spellings.
An empty environment variable counts as unset. Checks single values; `config.resolve` checks what they make together.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import inspect

from ramet.kernels.cpu import measured
from ramet.runtime.config import Args, make_args
from ramet.runtime.errors import ConfigError
from ramet.runtime.options.option import PREFIX, SECRET, Option, check, metavar, nearest, options_of
from ramet.runtime.options.placement import num_cores, placement_of

# Other servers' spellings of the same option.
ALIASES = {
    "model": "model_path",
    "tokenizer": "tokenizer_path",
    "context_len": "context_length",
    "max_model_len": "context_length",
    "max_total_token": "max_total_tokens",
    "disable_radix": "disable_radix_cache",
    "max_num_seqs": "max_running_requests",
    "seed": "random_seed",
    "media_url_max_file_size_mb": "max_media_mb",
}
REPEATED = frozenset({"lora_paths"})  # options whose words may be arguments of their own, as other servers have them


def aliases_of(option: Option) -> list[str]:
    """As flags."""
    return ["--" + alias.replace("_", "-") for alias, name in ALIASES.items() if name == option.name]


@dataclass(frozen=True)
class Given:
    """A checked value and where it came from: the flag, the variable, or the line of the file."""

    value: Any
    origin: str


class Parser(argparse.ArgumentParser):
    """argparse that raises ConfigError instead of printing its usage and leaving."""

    def error(self, message: str) -> Any:
        raise ConfigError(message)


def add_options(parser: argparse.ArgumentParser, options: Sequence[Option], titles: Mapping[str, str]) -> None:
    """One argument per option, under its group's title. Values stay text here, so that `check` reports all errors."""
    groups = {name: parser.add_argument_group(name, title) for name, title in titles.items()}
    for option in options:
        names = [option.flag, *aliases_of(option)]
        target = groups.get(option.group, parser)
        if isinstance(option.type, inspect.BoolType):
            target.add_argument(
                *names, dest=option.name, help=option.help, default=None, action=argparse.BooleanOptionalAction
            )
        elif option.name in REPEATED:
            kind: Any = dict(nargs="+", action=_Joined)
            target.add_argument(*names, dest=option.name, help=option.help, metavar="A", default=None, **kind)
        else:
            target.add_argument(*names, dest=option.name, help=option.help, metavar=metavar(option), default=None)


class _Joined(argparse.Action):
    """Words with commas between them."""

    def __call__(self, parser: Any, space: Any, values: Any, flag: str | None = None) -> None:
        setattr(space, self.dest, ",".join(values))


def parse(argv: Sequence[str], env: Mapping[str, str], prog: str = "ramet serve") -> Args:
    """The options of `ramet serve`. Prints and leaves with 0 on --help and --print-config; raises ConfigError."""
    parser = serve_parser(prog)
    return parse_with(parser, argv, env)[0]


def serve_parser(prog: str, description: str | None = None) -> Parser:
    parser = Parser(
        prog=prog,
        description=description or "Serve a model over HTTP. Every option is also a YAML key and RAMET_<NAME>.",
        allow_abbrev=False,
        formatter_class=_formatter,
    )
    parser.add_argument("--config", metavar="FILE", help="YAML file with options by name; a flag or variable wins")
    parser.add_argument("--print-config", action="store_true", help="print the resolved options as YAML and leave")
    add_options(parser, OPTIONS, TITLES)
    return parser


def parse_with(parser: Parser, argv: Sequence[str], env: Mapping[str, str]) -> tuple[Args, argparse.Namespace]:
    """Args, and whatever else the parser was given arguments for."""
    space, unknown = parser.parse_known_args(list(argv))
    if unknown:
        raise ConfigError(_unknown_argument(unknown[0], parser))
    given = _from_file(space.config or env.get(PREFIX + "CONFIG"))
    given |= _from_environment(env)
    given |= {
        o.name: Given(check(o, value, o.flag), o.flag) for o in OPTIONS if (value := getattr(space, o.name)) is not None
    }
    args = make_args(**{name: g.value for name, g in given.items()})
    if space.print_config:
        print(show(given), end="")
        placement = placement_of(args.execute.cpu_affinity)
        threads = args.execute.num_threads or num_cores(placement.model)
        not_yet = f"measured at the first start with {threads} thread{'s' * (threads > 1)}"
        print(f"# this CPU: {measured.read(threads) or not_yet}")
        print(f"# --cpu-affinity on this machine: {placement}")
        raise SystemExit(0)
    return args, space


def show(given: Mapping[str, Given]) -> str:
    """All options as a YAML file that gives the same configuration, with the origin of each that was set."""
    lines: list[str] = []
    for group, title in TITLES.items():
        lines.append(f"# {group}: {title}")
        for option in OPTIONS:
            if option.group == group:
                lines.append(_yaml_line(option, given.get(option.name)))
    return "\n".join(lines) + "\n"


def _yaml_line(option: Option, given: Given | None) -> str:
    value = given.value if given else option.default
    if option.name in SECRET and value:
        return f"# {option.name}: hidden, from {given.origin if given else 'default'}"
    return f"{option.name}: {json.dumps(value)}" + (f"  # from {given.origin}" if given else "")


def _from_file(path: str | None) -> dict[str, Given]:
    if not path:
        return {}
    import yaml  # only here: most starts read no file

    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--config {path} cannot be read: {error}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"--config {path} is not YAML: {' '.join(str(error).split())}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"--config {path} must be a mapping from option to value, is a {type(content).__name__}")
    given: dict[str, Given] = {}
    for key, value in content.items():
        name = str(key).replace("-", "_")
        option = BY_NAME.get(ALIASES.get(name, name))
        if option is None:
            raise ConfigError(f"{path}: {key} is not an option{nearest(name, list(BY_NAME))}")
        origin = f"{path}: {key}"
        given[option.name] = Given(check(option, value, origin), origin)
    return given


def _from_environment(env: Mapping[str, str]) -> dict[str, Given]:
    """Another server's spelling counts where the option's own variable is not set."""
    spellings = [(PREFIX + alias.upper(), BY_NAME[name]) for alias, name in ALIASES.items()]
    found = [*spellings, *((option.variable, option) for option in OPTIONS)]
    return {o.name: Given(check(o, env[name], name), name) for name, o in found if env.get(name)}


def warn_misspelt(env: Mapping[str, str]) -> None:
    """Say which variables look like an option of ours and are none. Others that start with RAMET_ are left alone."""
    known = [o.variable for o in OPTIONS] + [PREFIX + name.upper() for name in ("config", *ALIASES)]
    for variable in env:
        if variable.startswith(PREFIX) and variable not in known and (close := nearest(variable, known, 0.85)):
            print(f"warning: {variable} is not an option{close}", file=sys.stderr)


def _unknown_argument(argument: str, parser: argparse.ArgumentParser) -> str:
    flag = argument.split("=")[0]
    if not flag.startswith("-"):
        return f"unexpected argument {argument!r}"
    known = [name[2:] for action in parser._actions for name in action.option_strings if name.startswith("--")]
    return f"{flag} is not an option{nearest(flag.strip('-'), known, written='--')}"


def _formatter(prog: str) -> argparse.HelpFormatter:
    return argparse.HelpFormatter(prog, max_help_position=32, width=110)


OPTIONS = options_of(Args)
BY_NAME = {option.name: option for option in OPTIONS}
TITLES = {
    field.name: (field.type.cls.__doc__ or "").strip()
    for field in inspect.type_info(Args).fields  # type: ignore[attr-defined]
}
