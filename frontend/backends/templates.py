"""Chat templates by the names that SGLang's programs use, for services that read text and render no turns themselves.

A last resort: a server of ramet renders by its model's own template. Roles have a text before and one behind; what a
template adds at the beginning, where no turn of the system comes first, is `default_system`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ramet.frontend.backends.base import Capabilities
from ramet.frontend.ir import ROLES
from ramet.frontend.prompt import MediaPiece, Prompt, PromptTurn, plain

Marks = Mapping[str, tuple[str, str]]  # role -> what stands before and behind its text


def _same(before: str, behind: str, assistant: str = "assistant") -> Marks:
    """Of templates whose marks name the role."""
    roles = {"system": "system", "user": "user", "assistant": assistant}
    return {role: (before.format(role=name), behind) for role, name in roles.items()}


@dataclass(frozen=True)
class TextTemplate:
    """`stops`: texts that the model writes at a turn's end. `system_inside`: a first system turn is in the user's.

    `image`, `audio`, `video`: what stands in a text for one, as SGLang's own templates have it.
    """

    name: str
    marks: Marks
    stops: tuple[str, ...] = ()
    default_system: str = ""
    system_inside: bool = False
    image: str = "<image>"
    audio: str = "<audio>"
    video: str = "<video>"

    def plain(self, prompt: Prompt) -> str:
        """Of a prompt without turns."""
        return "".join(map(self._piece, prompt.pieces()))

    def render(self, prompt: Prompt) -> str:
        """The text of a prompt, open at the end of an open turn. Raises ValueError for a role that it does not know."""
        turns = [turn for turn in prompt.turns() if turn.role or turn.text or turn.has_media]
        parts, after_system = [], False
        if self.default_system and turns and turns[0].role not in ("", "system"):
            parts.append(self._turn(PromptTurn("system", (self.default_system,), open=False)))
        for i, turn in enumerate(turns):
            if not turn.role:
                parts.append(self._text(turn))
                continue
            if self.system_inside and turn.role == "system" and i == 0:
                before, behind = self.marks["system"]
                parts.append(self.marks["user"][0] + before + self._text(turn) + ("" if turn.open else behind))
                after_system = True
                continue
            parts.append(self._turn(turn, bare=after_system and turn.role == "user"))
            after_system = False
        return "".join(parts)

    def _turn(self, turn: PromptTurn, bare: bool = False) -> str:
        if turn.role not in self.marks:
            raise ValueError(f"the chat template {self.name!r} has no turns of {turn.role}")
        before, behind = self.marks[turn.role]
        return ("" if bare else before) + self._text(turn) + ("" if turn.open else behind)

    def _text(self, turn: PromptTurn) -> str:
        return "".join(map(self._piece, turn.content))

    def _piece(self, piece: Any) -> str:
        if not isinstance(piece, MediaPiece):
            return plain(piece)
        return {"image": self.image, "audio": self.audio, "video": self.video}[piece.kind]


CHATML = _same("<|im_start|>{role}\n", "<|im_end|>\n")
LLAMA_3 = _same("<|start_header_id|>{role}<|end_header_id|>\n\n", "<|eot_id|>")
HELPFUL = "You are a helpful assistant."
DEEPSEEK_END = "<｜end▁of▁sentence｜>"
TEMPLATES: Mapping[str, TextTemplate] = {
    each.name: each
    for each in (
        TextTemplate(
            "default",
            {"system": ("SYSTEM:", "\n"), "user": ("USER:", "\n"), "assistant": ("ASSISTANT:", "\n")},
        ),
        TextTemplate("claude", {"system": ("", ""), "user": ("\n\nHuman: ", ""), "assistant": ("\n\nAssistant:", "")}),
        TextTemplate("chatml", CHATML, ("<|im_end|>",)),
        TextTemplate("qwen", CHATML, ("<|im_end|>",), HELPFUL),
        TextTemplate("chatml-llava", CHATML, ("<|im_end|>",), HELPFUL, image="<image>\n"),
        TextTemplate(
            "qwen2-vl",
            CHATML,
            ("<|im_end|>",),
            HELPFUL,
            image="<|vision_start|><|image_pad|><|vision_end|>",
            video="<|vision_start|><|video_pad|><|vision_end|>",
        ),
        TextTemplate("llama-3-instruct", LLAMA_3, ("<|eot_id|>",), image="<|image|>"),
        TextTemplate("llama-3-instruct-llava", LLAMA_3, ("<|eot_id|>",), image="<image>\n"),
        TextTemplate(
            "llama-4",
            _same("<|header_start|>{role}<|header_end|>\n\n", "<|eot|>"),
            ("<|eot|>",),
            image="<|image|>",
        ),
        TextTemplate(
            "llama-2-chat",
            {"system": ("<<SYS>>\n", "\n<</SYS>>\n\n"), "user": ("[INST] ", " [/INST]"), "assistant": ("", " </s><s>")},
            system_inside=True,
        ),
        TextTemplate(
            "vicuna_v1.1",
            {"system": ("", " "), "user": ("USER:", " "), "assistant": ("ASSISTANT:", "</s>")},
            default_system="A chat between a curious user and an artificial intelligence assistant. The assistant "
            "gives helpful, detailed, and polite answers to the user's questions.",
            image=" <image>\n",
        ),
        TextTemplate(
            "gemma-it",
            {**_same("<start_of_turn>{role}\n", "<end_of_turn>\n", "model"), "system": ("", "")},
            image="<start_of_image>",
        ),
        TextTemplate(
            "c4ai-command-r",
            {
                role: (f"<|START_OF_TURN_TOKEN|><|{mark}_TOKEN|>", "<|END_OF_TURN_TOKEN|>")
                for role, mark in (("system", "SYSTEM"), ("user", "USER"), ("assistant", "CHATBOT"))
            },
        ),
        TextTemplate(
            "granite-3-instruct",
            _same("<|start_of_role|>{role}<|end_of_role|>", "<|end_of_text|>"),
            ("<|end_of_text|>",),
        ),
        TextTemplate(
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
    (("llava-v1.5",), "vicuna_v1.1"),
    (("llava-v1.6-34b",), "chatml-llava"),
    (("llava-onevision-qwen2",), "chatml-llava"),
    (("llama", "llava", "llama-3"), "llama-3-instruct-llava"),
    (("qwen", "vl"), "qwen2-vl"),
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


def template(name: str) -> TextTemplate:
    """Raises ValueError."""
    if name not in TEMPLATES:
        raise ValueError(f"the chat template is {name!r}, must be one of {', '.join(TEMPLATES)}")
    return TEMPLATES[name]


def template_of_model(path: str) -> TextTemplate | None:
    """By the model's name; None: which one it was trained with cannot be told."""
    words = path.lower().rstrip("/").split("/")[-1]
    return next((TEMPLATES[name] for found, name in BY_MODEL if all(word in words for word in found)), None)


def with_turns(can: Capabilities) -> Capabilities:
    """What a service of texts can do where a template renders its turns."""
    return replace(can, chat=True, continues=True, any_turn=True, roles=frozenset(ROLES) - {"tool"})
