"""A chat while it is written, and the system texts that say nothing special.

Knows which parts of a chat are given and which are produced: the assistant's turns with their end-of-turn token.
"""

from scripts.demo_model.corpus.chat_format import ASSISTANT, END, turn
from scripts.demo_model.corpus.draw import Document, Draw
from scripts.demo_model.corpus.talk import Exchange

SYSTEMS = (
    "You are a helpful assistant.",
    "You are a helpful assistant.",
    "You are helpful and friendly.",
    "You are a small assistant. Be short and clear.",
    "Answer the user's questions.",
    "Be kind and honest.",
    "You help people with short answers.",
    "You are an assistant. Say so if you do not know something.",
    "Help the user.",
    "You are a friendly helper who writes plain English.",
    "You are a polite assistant.",
    "You are ramet's demo model.",
)


class Chat:
    """A chat while it is written: given turns pile up, each reply closes a given and a produced part."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._given = ""
        self._keys: list[str] = []
        self.num_chars = 0

    def system(self, text: str) -> None:
        self._given += turn("system", text)

    def user(self, text: str) -> None:
        self._given += turn("user", text)

    def reply(self, text: str, lead: str = "") -> None:
        """The assistant's turn; `lead` is what the generation prompt already holds of it."""
        given = self._given + ASSISTANT + lead
        self._parts += (given, text + END)
        self._given = "\n"
        self.num_chars += len(given) + len(text)

    def exchange(self, one: Exchange) -> None:
        self.user(one.user)
        self.reply(one.reply)
        self._keys += one.keys

    def add_keys(self, *keys: str) -> None:
        self._keys += keys

    def document(self, family: str) -> Document:
        return Document(family, tuple(self._parts), tuple(self._keys))


def opened(draw: Draw, probability: float = 0.5) -> Chat:
    """A chat that has a plain system turn or none."""
    chat = Chat()
    if draw.chance(probability):
        chat.system(draw.pick(SYSTEMS))
    return chat
