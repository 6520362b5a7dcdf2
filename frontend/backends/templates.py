"""Chat templates by the names that SGLang's programs use, for services that read text and render no turns themselves.

A last resort: a server of ramet renders by its model's own template. Roles have a text before and one behind; what a
template adds at the beginning, where no turn of the system comes first, is `default_system`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ramet.frontend.backends.base import Capabilities
from ramet.frontend.ir import ROLES
from ramet.frontend.prompt import Prompt, Turn

Marks = Mapping[str, tuple[str, str]]  # role -> what stands before and behind its text


def _same(before: str, behind: str, assistant: str = "assistant") -> Marks:
    """Of templates whose marks name the role."""
    roles = {"system": "system", "user": "user", "assistant": assistant}
    return {role: (before.format(role=name), behind) for role, name in roles.items()}


@dataclass(frozen=True)
class ChatTemplate:
    """`stops`: texts that the model writes at a turn's end. `system_inside`: a first system turn is in the user's."""

    name: str
    marks: Marks
    stops: tuple[str, ...] = ()
    default_system: str = ""
    system_inside: bool = False

    def render(self, prompt: Prompt) -> str:
        """The text of a prompt, open at the end of an open turn. Raises ValueError for a role that it does not know."""
        turns = [turn for turn in prompt.turns() if turn.role or turn.text]
        parts, after_system = [], False
        if self.default_system and turns and turns[0].role not in ("", "system"):
            parts.append(self._turn(Turn("system", (self.default_system,), open=False)))
        for i, turn in enumerate(turns):
            if not turn.role:
                parts.append(turn.text)
                continue
            if self.system_inside and turn.role == "system" and i == 0:
                before, behind = self.marks["system"]
                parts.append(self.marks["user"][0] + before + turn.text + ("" if turn.open else behind))
                after_system = True
                continue
            parts.append(self._turn(turn, bare=after_system and turn.role == "user"))
            after_system = False
        return "".join(parts)

    def _turn(self, turn: Turn, bare: bool = False) -> str:
        if turn.role not in self.marks:
            raise ValueError(f"the chat template {self.name!r} has no turns of {turn.role}")
        before, behind = self.marks[turn.role]
        return ("" if bare else before) + turn.text + ("" if turn.open else behind)


CHATML = _same("<|im_start|>{role}\n", "<|im_end|>\n")
LLAMA_3 = _same("<|start_header_id|>{role}<|end_header_id|>\n\n", "<|eot_id|>")
HELPFUL = "You are a helpful assistant."
DEEPSEEK_END = "<｜end▁of▁sentence｜>"
TEMPLATES: Mapping[str, ChatTemplate] = {
    each.name: each
    for each in (
        ChatTemplate(
            "default",
            {"system": ("SYSTEM:", "\n"), "user": ("USER:", "\n"), "assistant": ("ASSISTANT:", "\n")},
        ),
        ChatTemplate("claude", {"system": ("", ""), "user": ("\n\nHuman: ", ""), "assistant": ("\n\nAssistant:", "")}),
        ChatTemplate("chatml", CHATML, ("<|im_end|>",)),
        ChatTemplate("qwen", CHATML, ("<|im_end|>",), HELPFUL),
        ChatTemplate("llama-3-instruct", LLAMA_3, ("<|eot_id|>",)),
        ChatTemplate("llama-4", _same("<|header_start|>{role}<|header_end|>\n\n", "<|eot|>"), ("<|eot|>",)),
        ChatTemplate(
            "llama-2-chat",
            {"system": ("<<SYS>>\n", "\n<</SYS>>\n\n"), "user": ("[INST] ", " [/INST]"), "assistant": ("", " </s><s>")},
            system_inside=True,
        ),
        ChatTemplate(
            "vicuna_v1.1",
            {"system": ("", " "), "user": ("USER:", " "), "assistant": ("ASSISTANT:", "</s>")},
            default_system="A chat between a curious user and an artificial intelligence assistant. The assistant "
            "gives helpful, detailed, and polite answers to the user's questions.",
        ),
        ChatTemplate(
            "gemma-it",
            {**_same("<start_of_turn>{role}\n", "<end_of_turn>\n", "model"), "system": ("", "")},
        ),
        ChatTemplate(
            "c4ai-command-r",
            {
                role: (f"<|START_OF_TURN_TOKEN|><|{mark}_TOKEN|>", "<|END_OF_TURN_TOKEN|>")
                for role, mark in (("system", "SYSTEM"), ("user", "USER"), ("assistant", "CHATBOT"))
            },
        ),
        ChatTemplate(
            "granite-3-instruct",
            _same("<|start_of_role|>{role}<|end_of_role|>", "<|end_of_text|>"),
            ("<|end_of_text|>",),
        ),
        ChatTemplate(
            "deepseek-v3",
            {"system": ("", ""), "user": ("<｜User｜>", ""), "assistant": ("<｜Assistant｜>", DEEPSEEK_END)},
            (DEEPSEEK_END,),
        ),
    )
}
BY_MODEL = (  # words that a model's path has -> its template; the first line that fits counts
    (("deepseek-v3",), "deepseek-v3"),
    (("deepseek-r1",), "deepseek-v3"),
    (("vicuna",), "vicuna_v1.1"),
    (("llama-2", "chat"), "llama-2-chat"),
    (("codellama", "instruct"), "llama-2-chat"),
    (("llama-3", "instruct"), "llama-3-instruct"),
    (("llama-4", "instruct"), "llama-4"),
    (("qwen", "instruct"), "qwen"),
    (("qwen", "chat"), "qwen"),
    (("gemma", "it"), "gemma-it"),
    (("command-r",), "c4ai-command-r"),
    (("granite-3", "instruct"), "granite-3-instruct"),
)


def template(name: str) -> ChatTemplate:
    """Raises ValueError."""
    if name not in TEMPLATES:
        raise ValueError(f"the chat template is {name!r}, must be one of {', '.join(TEMPLATES)}")
    return TEMPLATES[name]


def template_of_model(path: str) -> ChatTemplate | None:
    """By the model's name; None: which one it was trained with cannot be told."""
    words = path.lower().rstrip("/").split("/")[-1]
    return next((TEMPLATES[name] for found, name in BY_MODEL if all(word in words for word in found)), None)


def with_turns(can: Capabilities) -> Capabilities:
    """What a service of texts can do where a template renders its turns."""
    return replace(can, chat=True, continues=True, any_turn=True, roles=frozenset(ROLES) - {"tool"})
