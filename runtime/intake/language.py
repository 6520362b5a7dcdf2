"""The language's calls: bodies, and a prompt of segments, checked. An error names the segment: prompt[2].content[0].

One prompt for a call. Its text is rendered where the model's template and tokenizer are (runtime/text/segments.py).
"""

from typing import Annotated, Literal, NamedTuple

from msgspec import Meta, Struct
from msgspec.structs import replace

from ramet.ipc.media import MediaKind, MediaTokens
from ramet.ipc.messages import ChatTurn, ContextGroup, MediaPlace
from ramet.ipc.messages import Segment as Rendered
from ramet.ipc.params import about
from ramet.ipc.spec import FollowUp, RequestSpec
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.body import Checked
from ramet.runtime.intake.embeddings import PREFILL_ONLY
from ramet.runtime.intake.fields import Int32, Key, Rid, Text, named
from ramet.runtime.intake.limits import MAX_TURNS
from ramet.runtime.intake.media import check_taken
from ramet.runtime.intake.messages import ROLE
from ramet.runtime.intake.parsers.reasoning import reasoning_names
from ramet.runtime.intake.specs import KEY, PRIORITY, SALT, SpecLists, read_specs
from ramet.runtime.media.source import GivenMedia
from ramet.runtime.text.parallel_contexts import MAX_CONTEXTS

MAX_SELECTED = 4096  # choices of one call: each is a sequence of its own
MAX_ENDED = 4096  # programs of one call
PIECES = ("contexts", "image", "video", "audio")  # what an item is, one of them
MAX_NAME = 128  # characters of a program's name
INT64 = 1 << 63
TAIL_CHARS = 64  # of a rendered prompt: whether the output starts inside a thought
Method = Literal[
    "token_length_normalized", "greedy_token_selection", "unconditional_likelihood_normalized", "exact_sequence"
]
ProgramName = Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
Contexts = Annotated[
    Annotated[list[Text], Meta(min_length=1, max_length=MAX_CONTEXTS)] | None,
    about("texts, each of which attends to all before them and to itself; what follows attends to all of them"),
]


WRITTEN = "a data URI, or where the server allows it a URL or a path"


class Item(Checked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A piece of a turn that is no text."""

    contexts: Contexts = None
    image: Annotated[Text | None, about(f"a picture: {WRITTEN}")] = None
    video: Annotated[Text | None, about(f"a film: {WRITTEN}")] = None
    audio: Annotated[Text | None, about(f"a sound: {WRITTEN}")] = None
    num_frames: Annotated[
        Annotated[int, named("an integer >= 1", ge=1, le=(1 << 31) - 1)] | None, about("of the film that are looked at")
    ] = None


class Segment(Item, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A turn of a chat (`role`), `contexts`, or a piece of media."""

    role: Annotated[Text | None, ROLE] = None
    content: Annotated[
        Annotated[list[str | Item], Meta(max_length=MAX_TURNS)] | None,
        about("of a turn: texts, contexts and media in order"),
    ] = None
    open: Annotated[
        bool | None, about("true: the last turn of a prompt is not ended, and the output goes on inside it")
    ] = None


Prompt = Annotated[
    Annotated[list[str | Segment], Meta(min_length=1, max_length=MAX_TURNS)],
    about("texts, turns of a chat, contexts and media, in order"),
]
HEALING = "the prompt's last tokens may end differently, as they would if prompt and {} were one text; by default {}"
NAME = about("name of the request, for /abort_request; a new one if it is absent")


class FollowUpOf(Checked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A state of a program, which goes on: what its call leaves behind is kept for a moment."""

    program: Annotated[ProgramName, about("name of the program, for /language/end")]
    state: Annotated[
        Annotated[int, named("an integer in [0, 2^31)", ge=0, le=(1 << 31) - 1)], about("which of its states")
    ]
    kind: Annotated[
        Annotated[str, Meta(max_length=MAX_NAME)], about("programs of one kind are expected to call equally often")
    ] = ""


FOLLOW_UP = about("who is about to call again with a prompt that begins with this one and what follows it")


class LanguageGenerateBody(SpecLists, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One output, or n of them, that follow a prompt."""

    prompt: Prompt
    token_healing: Annotated[
        bool | None, about(HEALING.format("output", "where the prompt ends in a text of the client's"))
    ] = None
    separate_reasoning: Annotated[
        bool | None, about("the reply has the thought that an output begins with in `reasoning`, not in `text`")
    ] = None
    reasoning_parser: Annotated[
        Text | None,
        about("how the thought is marked; by default as `--reasoning-parser` says", enum=[*reasoning_names(), None]),
    ] = None
    stream: Annotated[bool | None, about("server-sent events with what is new")] = None
    follow_up: Annotated[FollowUpOf | None, FOLLOW_UP] = None
    rid: Annotated[Rid | None, NAME] = None


class SelectBody(Checked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of several texts to follow a prompt."""

    prompt: Prompt
    choices: Annotated[
        Annotated[list[Text], Meta(min_length=1, max_length=MAX_SELECTED)], about("the texts to choose from")
    ]
    method: Annotated[Method | None, about("how they are compared; token_length_normalized by default")] = None
    temperature: Annotated[
        Annotated[float, named("a finite number >= 0", ge=0, le=1e30)] | None,
        about("above 0: a choice is drawn by its probability, at this temperature"),
    ] = None
    sampling_seed: Annotated[
        Annotated[int, named("an integer in [-2^63, 2^63)", ge=-INT64, le=INT64 - 1)] | None,
        about("the same seed draws the same choice"),
    ] = None
    token_healing: Annotated[bool | None, about(HEALING.format("choice", "true"))] = None
    priority: Annotated[Int32 | None, PRIORITY] = None
    cache_salt: Annotated[Key | None, SALT] = None
    extra_key: Annotated[Key | None, KEY] = None
    follow_up: Annotated[FollowUpOf | None, FOLLOW_UP] = None
    rid: Annotated[Rid | None, NAME] = None

    @property
    def healed(self) -> bool:
        """Choices are tokenised with the prompt."""
        return self.token_healing is not False


class EndBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Programs that make no further call."""

    programs: Annotated[
        Annotated[list[ProgramName], Meta(min_length=1, max_length=MAX_ENDED)], about("as in `follow_up`")
    ]


class RenderBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A prompt, to be shown."""

    prompt: Prompt


class ReadPrompt(NamedTuple):
    """`media` are in the order of their places among the segments."""

    segments: list[Rendered]
    media: tuple[GivenMedia, ...]


def read_prompt(given: list[str | Segment], taken: MediaTokens) -> ReadPrompt:
    """`taken`: kinds of media that the model takes. Raises ClientError."""
    reader = _PromptReader(taken)
    segments = [
        segment if isinstance(segment, str) else reader.segment(f"prompt[{i}]", segment, i == len(given) - 1)
        for i, segment in enumerate(given)
    ]
    return ReadPrompt(segments, tuple(reader.media))


def continued_text(segments: list[Rendered], rendered: str) -> str | None:
    """What the output goes on with: the text of the open turn, or raw text. None: it begins a turn.

    An open turn comes with the end of what is `rendered` before it, where a template may have opened a thought.
    """
    last = segments[-1]
    if isinstance(last, str):
        return "".join(text for text in segments if isinstance(text, str))
    if not isinstance(last, ChatTurn) or not last.open:
        return None
    said = "".join(item for item in last.content if isinstance(item, str))
    return rendered[-len(said) - TAIL_CHARS :] if said else None


def follow_up_of(body: LanguageGenerateBody | SelectBody) -> FollowUp | None:
    asked = body.follow_up
    return None if asked is None else FollowUp(asked.program, asked.state, asked.kind)


def read_scoring(body: SelectBody, start: int, ends: tuple[int, ...], goes_on: bool) -> RequestSpec:
    """Log-probabilities of a prompt's tokens from `start` on, which is not its first, and at each place of `ends`.

    `goes_on`: it is the one of the body's prompts that a follow-up comes back to.
    """
    asked = SpecLists(
        return_logprob=True,
        logprob_start_len=start - 1,  # of the first one nothing is told
        token_ids_logprob=list(ends) or None,
        return_text_in_logprobs=True,
        priority=body.priority,
        cache_salt=body.cache_salt,
        extra_key=body.extra_key,
    )
    [spec] = read_specs(asked, 1, False, PREFILL_ONLY, processors_on=False)
    return replace(spec, follow_up=follow_up_of(body) if goes_on else None)


class _PromptReader:
    """`media`: what was found so far."""

    def __init__(self, taken: MediaTokens) -> None:
        self._taken = taken
        self.media: list[GivenMedia] = []

    def segment(self, place: str, segment: Segment, is_last: bool) -> ChatTurn | ContextGroup | MediaPlace:
        if segment.role is None:
            for name in ("content", "open"):
                if getattr(segment, name) is not None:
                    raise ClientError(f"{place}.{name}", "belongs to a turn, but role is missing")
            return self._item(place, segment)
        for name in (*PIECES, "num_frames"):
            if getattr(segment, name) is not None:
                raise ClientError(f"{place}.{name}", "stands beside role: it must stand in its content")
        if segment.open and not is_last:
            fact = "is true, but something follows: only the prompt's last segment can be open"
            raise ClientError(f"{place}.open", fact)
        content = [
            item if isinstance(item, str) else self._item(f"{place}.content[{j}]", item)
            for j, item in enumerate(segment.content or ())
        ]
        return ChatTurn(segment.role, content, bool(segment.open))

    def _item(self, place: str, item: Item) -> ContextGroup | MediaPlace:
        found = [name for name in PIECES if getattr(item, name) is not None]
        if len(found) != 1:
            known = [*(["role"] if isinstance(item, Segment) else []), *PIECES]
            raise ClientError(place, f"must have exactly one of {', '.join(known[:-1])} and {known[-1]}")
        if item.num_frames is not None and item.video is None:
            raise ClientError(f"{place}.num_frames", "belongs to a film, but video is missing")
        if item.contexts is not None:
            return ContextGroup(item.contexts)
        [name] = found
        return self._source(f"{place}.{name}", MediaKind(name), getattr(item, name), item.num_frames)

    def _source(self, place: str, kind: MediaKind, written: str, num_frames: int | None) -> MediaPlace:
        check_taken(place, kind, self._taken)
        options = {} if num_frames is None else {"num_frames": num_frames}
        self.media.append(GivenMedia(kind, place, written, options))
        return MediaPlace(kind)
