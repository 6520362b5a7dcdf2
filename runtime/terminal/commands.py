"""What a line that begins with / does to a conversation. Decides the words; chat.py asks for replies."""

import json
from collections.abc import Callable

from ramet.runtime.errors import ConfigError
from ramet.runtime.options.option import nearest
from ramet.runtime.terminal.conversation import Conversation, read_field

HELP = '''\
/regenerate          another answer to the last message
/clear               forget what was said; the system prompt stays
/system [TEXT]       show or set the system prompt; /system "" removes it
/set [NAME VALUE]    show or set a field of the requests, as /set temperature 0; /set NAME takes it back
/save FILE           write the conversation as JSON
/load FILE           go on with a conversation that was saved
/help                these lines
/bye                 end, as Ctrl-D does
A line that ends in \\ goes on in the next; """ opens and closes a text of several lines, which may begin with a /.
Ctrl-C stops the answer.'''
END = ("/bye", "/exit", "/quit")
AGAIN = ("/regenerate", "/regen")


def _system(conversation: Conversation, text: str) -> str:
    if text:
        conversation.system = "" if text == '""' else text
    return f"the system prompt is: {conversation.system}" if conversation.system else "there is no system prompt"


def _set(conversation: Conversation, text: str) -> str:
    if len(text.split()) == 1 and "=" not in text:
        if text not in conversation.fields:
            raise ConfigError(f"{text} is not set; /set {text} VALUE sets it")
        del conversation.fields[text]
    elif text:
        name, value = read_field(text)
        conversation.fields[name] = value
    return "\n".join(f"{name} = {json.dumps(value)}" for name, value in conversation.fields.items()) or "nothing is set"


def _clear(conversation: Conversation, text: str) -> str:
    conversation.messages = []
    return "forgotten"


def _save(conversation: Conversation, text: str) -> str:
    conversation.save(_file("/save", text))
    return f"saved to {text}"


def _load(conversation: Conversation, text: str) -> str:
    conversation.load(_file("/load", text))
    return f"{len(conversation.messages)} messages of {text}"


def _help(conversation: Conversation, text: str) -> str:
    return HELP


def _file(word: str, text: str) -> str:
    if not text:
        raise ConfigError(f"{word} has no file name, must be like {word} chat.json")
    return text


COMMANDS: dict[str, Callable[[Conversation, str], str]] = {
    "/system": _system,
    "/set": _set,
    "/clear": _clear,
    "/save": _save,
    "/load": _load,
    "/help": _help,
    "/?": _help,
}
WORDS = (*COMMANDS, *END, *AGAIN)


def obey(conversation: Conversation, line: str) -> str:
    """What to say about it. Raises ConfigError for a word that is none."""
    word, _, text = line.strip().partition(" ")
    if word not in COMMANDS:
        raise ConfigError(f"{word} is not a command{nearest(word, WORDS)} (/help lists them)")
    return COMMANDS[word](conversation, text.strip())
