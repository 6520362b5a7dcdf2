"""Chats to text: what a Render call asks for, by the model's own template.

Decides which template a chat gets and in which order it is checked. Knows no ids. The template's language is
chat_template.py's, the shape of messages chat_messages.py's.
"""

from ramet.ipc.messages import Chat
from ramet.runtime.config import Args
from ramet.runtime.errors import ClientError
from ramet.runtime.text.chat_messages import normalise
from ramet.runtime.text.chat_template import ChatTemplate
from ramet.runtime.text.template_files import TemplateSources, read_templates


class Chats:
    def __init__(self, sources: TemplateSources) -> None:
        self._sources, self._template = sources, ChatTemplate(sources)

    @classmethod
    def of(cls, args: Args) -> "Chats":
        """Raises ConfigError for a template that cannot be read or compiled."""
        chats = cls(read_templates(args.tokenizer_folder, args.model.chat_template))
        chats._template.check()
        return chats

    def render(self, asked: Chat) -> str:
        """Raises ClientError."""
        tools = asked.tools or None
        messages = normalise(asked.messages, self._sources.of(tools is not None) or "")
        if asked.continue_final_message and messages and messages[-1].get("tool_calls"):
            place = f"messages[{len(messages) - 1}].tool_calls"
            raise ClientError(place, "ends the chat, must be followed by the results of its calls")
        return self._template.render(
            messages,
            tools,
            add_generation_prompt=asked.add_generation_prompt,
            continue_final_message=asked.continue_final_message,
            kwargs=asked.kwargs,
        )
