"""`ramet run "prompt"`: one answer, computed in this process and streamed to the terminal.

Decides what is printed where: the answer on stdout as it comes, one line of usage on stderr. Its sampling options are
the fields of SamplingParams, checked where a client's are checked. Knows no scheduler: runtime/llm.py does the work.
"""

import argparse
import json
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import inspect
from msgspec.structs import replace

from ramet.ipc.params import CHECKS, SamplingParams, parse
from ramet.runtime.config import BUNDLED_VISION, Args
from ramet.runtime.errors import ClientError, ConfigError
from ramet.runtime.flags import Parser, parse_with, serve_parser
from ramet.runtime.options.option import Option, options_of

if TYPE_CHECKING:
    from ramet.runtime.llm import LLM

MEDIA = {
    "image": "a picture that the prompt is about; may be given several times. The prompt is then a user's turn by the "
    "model's chat template, and without --model-path the bundled model for pictures answers",
    "video": "the same of a film",
    "audio": "the same of sound",
}
ONE_ANSWER = frozenset({"n"})  # a terminal shows one answer
OBJECTS = frozenset({"logit_bias", "custom_params"})  # written as JSON
SAMPLING = [option for option in options_of(SamplingParams) if option.name not in ONE_ANSWER]


class Medium(NamedTuple):
    kind: str
    file: str
    data: bytes


def main(argv: Sequence[str], env: Mapping[str, str]) -> int:
    args, space = parse_with(make_parser(), argv, env)
    params = sampling_params(space)
    prompt = sys.stdin.read().removesuffix("\n") if space.prompt == "-" else space.prompt
    if not prompt:
        raise ConfigError("the prompt is empty, must be text, or - to read it from stdin")
    media = [Medium(kind, name, _read(kind, name)) for kind in MEDIA for name in getattr(space, kind)]
    if media and not args.model.model_path:
        args = replace(args, model=replace(args.model, model_path=BUNDLED_VISION))
    return answer(args, prompt, params, media, custom_logit_processor=space.custom_logit_processor)


def sampling_params(space: argparse.Namespace) -> dict[str, Any]:
    """The sampling options that were given, checked; a wrong one is reported by its flag."""
    params = {o.name: _typed(o, value) for o in SAMPLING if (value := getattr(space, o.name)) is not None}
    try:
        parse(params)
    except ClientError as error:
        raise _by_flag(error.place, error.fact) from None
    return params


def _read(kind: str, name: str) -> bytes:
    if "://" in name:
        raise ConfigError(f"--{kind} {name} is a URL, must be a file")
    try:
        return Path(name).read_bytes()
    except (OSError, ValueError) as error:
        raise ConfigError(f"--{kind} {name} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def answer(args: Args, prompt: str, params: dict[str, Any], media: Sequence[Medium] = (), **extras: Any) -> int:
    from ramet.runtime.llm import LLM  # loads torch: not for --help, nor for a wrong option

    with LLM(args) as llm:
        started = time.monotonic()
        try:
            last = write_through(_asked(llm, prompt, params, media, extras))
        except ClientError as error:
            raise _by_flag(error.place, error.fact, media) from None
        return report(last, time.monotonic() - started)


def _asked(
    llm: "LLM", prompt: str, params: dict[str, Any], media: Sequence[Medium], extras: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """With media the prompt is a user's turn behind them, where the model has a chat template."""
    if not media:
        return llm.stream(prompt, params, **extras)
    if llm.has_chat_template:
        parts = [{"type": kind, kind: data} for kind, _, data in media]
        return llm.stream_chat(
            [{"role": "user", "content": [*parts, {"type": "text", "text": prompt}]}], params, **extras
        )
    places = "".join(llm.placeholders.get(each.kind, "") for each in media)
    given = {f"{kind}_data": [each.data for each in media if each.kind == kind] for kind in MEDIA}
    text = prompt if any(each in prompt for each in llm.placeholders.values()) else f"{places}\n{prompt}"
    return llm.stream(text, params, **given, **extras)


def write_through(replies: Iterator[dict[str, Any]]) -> dict[str, Any]:
    """Print what is new of each cumulative reply at once; the last reply."""
    shown, last = 0, {}
    for last in replies:
        text = last["text"]
        sys.stdout.write(text[shown:])
        sys.stdout.flush()
        shown = len(text)
    sys.stdout.write("\n")
    return last


def report(last: dict[str, Any], seconds: float) -> int:
    """One line of usage; the exit code."""
    meta = last["meta_info"]
    reason = meta["finish_reason"]
    new = meta["completion_tokens"]
    line = f"{meta['prompt_tokens']} prompt tokens, {new} new tokens in {seconds:.2f} s ({new / seconds:.1f} tokens/s)"
    print(f"[{line}, finish: {reason['type']}]", file=sys.stderr)
    if reason["type"] == "abort":
        print(f"ramet: {reason['message']}", file=sys.stderr)
        return 1
    return 0


def _by_flag(place: str, fact: str, media: Sequence[Medium] = ()) -> ConfigError:
    """The error that a client would get, in the words of the command line."""
    if found := re.match(r"(image|video|audio)_data(?:\[(\d+)\])?", place):
        place = f"--{found[1]} {[each.file for each in media if each.kind == found[1]][int(found[2] or 0)]}"
    elif found := re.match(r".*\.content\[(\d+)\]\.(image|video|audio)$", place):
        place = f"--{found[2]} {media[int(found[1])].file}"  # the pieces stand before the text
    elif place.startswith("sampling_params.") or place == "custom_logit_processor":
        place = "--" + place.removeprefix("sampling_params.").replace("_", "-")
    return ConfigError(f"{place} {fact}")


def make_parser() -> Parser:
    parser = serve_parser("ramet run", "Answer one prompt in this process, streamed to the terminal.")
    parser.add_argument(
        "prompt", help="the prompt as it is, without a chat template; - reads stdin, without its last newline"
    )
    for medium, words in MEDIA.items():
        parser.add_argument(f"--{medium}", help=words, default=[], action="append", metavar="FILE")
    about = "How the answer is drawn; the fields of sampling_params. generation_config.json overrides the [defaults]."
    group = parser.add_argument_group("sampling", about)
    for option in SAMPLING:
        kind = option.type
        shown = f"{option.about}; {CHECKS[option.name].valid} [{option.default}]".replace("%", "%%")
        if isinstance(kind, inspect.BoolType) and option.name.startswith("no_"):  # argparse takes --no-x for a negation
            group.add_argument(option.flag, help=shown, default=None, action="store_true")
        elif isinstance(kind, inspect.BoolType):
            group.add_argument(option.flag, help=shown, default=None, action=argparse.BooleanOptionalAction)
        elif option.name in OBJECTS:
            group.add_argument(option.flag, help=f"{option.about}; a JSON object", default=None, metavar="JSON")
        elif isinstance(kind, inspect.VarTupleType):
            several = f"{option.about}; may be given several times"
            group.add_argument(option.flag, help=several, default=None, action="append")
        else:
            group.add_argument(option.flag, help=shown, default=None, metavar="NUMBER")
    named = "name of a logit processor; needs --enable-custom-logit-processor"
    group.add_argument("--custom-logit-processor", help=named, default="", metavar="NAME")
    return parser


def _typed(option: Option, value: Any) -> Any:
    """Text from the command line as the type that ipc/params.py checks; what cannot be read stays text."""
    if option.name in OBJECTS:
        return _json(option, value)
    kind = option.type.item_type if isinstance(option.type, inspect.VarTupleType) else option.type
    read = {inspect.IntType: int, inspect.FloatType: float}.get(type(kind))
    if read is None:
        return value
    try:
        return [read(item) for item in value] if isinstance(value, list) else read(value)
    except ValueError:
        return value


def _json(option: Option, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise ConfigError(f"{option.flag} is {text!r}, must be a JSON object") from None
