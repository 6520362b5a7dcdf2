"""`ramet chat [URL]`: a chat in the terminal, with a running server, or with a model that is started for it.

Decides what is printed where: answers on stdout as they come, everything else on stderr. Ctrl-C stops an answer, Ctrl-D
ends. What is piped in is one message, and its answer is all there is. Knows a server by its HTTP API alone.
"""

import argparse
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec import inspect

from ramet.runtime.config import Args
from ramet.runtime.errors import ConfigError
from ramet.runtime.flags import OPTIONS, Parser, parse_with, serve_parser
from ramet.runtime.terminal.answer import say
from ramet.runtime.terminal.commands import AGAIN, END, WORDS, obey
from ramet.runtime.terminal.conversation import Conversation, read_field
from ramet.runtime.terminal.http_client import check_key
from ramet.runtime.terminal.lines import Lines, history_file
from ramet.runtime.terminal.own_server import own_server
from ramet.runtime.terminal.service import KEY_NAMES, ChatService
from ramet.runtime.terminal.visible import note

DESCRIPTION = """\
Chat in the terminal: with the server at URL (its key from --api-key or RAMET_API_KEY), or without URL with a model that
is started for it, by the options of `ramet serve`. What is piped in is one message. /help lists what can be typed."""
OF_A_CLIENT = frozenset({"api_key", "served_model_name"})  # options that mean something for another's server as well


def main(argv: Sequence[str], env: Mapping[str, str]) -> int:
    args, space = parse_with(make_parser(), argv, env)
    for flag, text in (("--system", space.system), ("--served-model-name", args.model.served_model_name)):
        _check_utf8(flag, text)
    conversation = Conversation(space.system, dict(map(_field, space.set)))
    for number in (signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # ignored under nohup
            signal.signal(number, lambda number, _: sys.exit(128 + number))  # a server of our own ends with the chat
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # where a character cannot be shown
    sys.stdin.reconfigure(errors="surrogateescape")  # type: ignore[union-attr]  # bytes that are no UTF-8
    with _service(args, space) as service:
        models = [args.model.served_model_name] if space.url and args.model.served_model_name else service.models()
        conversation.fields.setdefault("model", next(iter(models), ""))
        if not sys.stdin.isatty():
            return _one_answer(service, conversation)
        return _chat(service, conversation, Lines(None if space.no_history else history_file(), WORDS))


def _one_answer(service: ChatService, conversation: Conversation) -> int:
    """To all that is piped in."""
    text = sys.stdin.read().removesuffix("\n")
    _check_utf8("what was piped in", text)
    if not text.strip():
        raise ConfigError("nothing was piped in, must be a message")
    return 0 if say(service, conversation, text) else 1


def _check_utf8(name: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"{name} is not UTF-8, at character {error.start + 1}") from None


def _field(text: str) -> tuple[str, Any]:
    """Of a --set."""
    _check_utf8("--set", text)
    return read_field(text)


def _chat(service: ChatService, conversation: Conversation, lines: Lines) -> int:
    note(f"{conversation.fields['model']}; /help lists commands, Ctrl-D ends")
    try:
        while True:
            try:
                if not _turn(service, conversation, lines.read()):
                    return 0
            except KeyboardInterrupt:
                note("\nCtrl-D or /bye ends")
            except EOFError:
                print()
                return 0
    finally:
        lines.close()


def _turn(service: ChatService, conversation: Conversation, text: str) -> bool:
    """One message or command. Returns whether the chat goes on."""
    if not text.strip() or (word := text.split()[0]) in END:
        return not text.strip()
    if word in AGAIN:
        _say_again(service, conversation)
    elif text.startswith("/") and "\n" not in text:
        try:
            note(obey(conversation, text))
        except ConfigError as error:
            note(str(error))
    else:
        say(service, conversation, text)
    return True


def _say_again(service: ChatService, conversation: Conversation) -> None:
    before = list(conversation.messages)
    if (text := conversation.asked_again()) is None:
        note("nothing was asked yet")
        return
    say(service, conversation, text)
    if len(conversation.messages) < len(before):  # there is no other answer
        conversation.messages = before


@contextmanager
def _service(args: Args, space: argparse.Namespace) -> Iterator[ChatService]:
    if space.url is None:
        check_key(args.serve.api_key, KEY_NAMES)  # before a start that takes its time
        note(f"starting {args.model_name}")
        with own_server(_options(space), args.serve.api_key) as (url, key):
            yield ChatService(url, key)
        return
    given = [o for o in OPTIONS if getattr(space, o.name) is not None and o.name not in OF_A_CLIENT]
    if given:
        raise ConfigError(f"{given[0].flag} is an option of a server that is started, but {space.url} runs already")
    yield ChatService(space.url, args.serve.api_key)


def _options(space: argparse.Namespace) -> list[str]:
    """What was given of the options of `ramet serve`, but the key, which goes through the environment."""
    given = [f"--config={space.config}"] if space.config else []
    for option in OPTIONS:
        value = getattr(space, option.name)
        if isinstance(option.type, inspect.BoolType) and value is not None:
            given.append(option.flag if value else option.flag.replace("--", "--no-", 1))
        elif value is not None and option.name != "api_key":
            given.append(f"{option.flag}={value}")
    return given


def make_parser() -> Parser:
    parser = serve_parser("ramet chat", DESCRIPTION)
    parser.add_argument("url", nargs="?", help="address of a running server, as http://127.0.0.1:30000", metavar="URL")
    parser.add_argument("--system", help="the system prompt", default="", metavar="TEXT")
    about = "a field of /v1/chat/completions, as temperature=0; may be given several times"
    parser.add_argument("--set", help=about, default=[], action="append", metavar="NAME=VALUE")
    parser.add_argument("--no-history", help="keep no file of what is typed", action="store_true")
    return parser
