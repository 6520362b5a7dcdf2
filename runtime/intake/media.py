"""Media as clients write them to MediaSources: fields of /generate and LLM.generate, and parts of a chat's messages.

Only forms are checked here. Nothing is fetched or decoded, but for the base64 of arrays. Each piece goes on with the
place that it was written in, which whatever refuses it later names.
"""

import binascii
import math
import os
from array import array
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from types import NoneType
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from ramet.ipc.media import MediaKind
from ramet.ipc.params import shown
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.body import convert
from ramet.runtime.intake.messages import AudioUrl, ImageUrl, MediaPart, VideoUrl
from ramet.runtime.intake.prompts import check_length, check_most
from ramet.runtime.media.source import Arrays, GivenMedia
from ramet.runtime.text.chat_messages import template_part

FIELDS = {  # of /generate and LLM.generate
    "image_data": MediaKind.IMAGE,
    "video_data": MediaKind.VIDEO,
    "audio_data": MediaKind.AUDIO,
}
WORDS = {MediaKind.IMAGE: "images", MediaKind.VIDEO: "films", MediaKind.AUDIO: "sound"}
PART_FIELDS = {  # type of a chat's part -> its kind, and the fields that may hold the piece
    "image_url": (MediaKind.IMAGE, ("image_url",)),
    "input_image": (MediaKind.IMAGE, ("image_url",)),
    "image": (MediaKind.IMAGE, ("image", "url", "path", "base64")),
    "video_url": (MediaKind.VIDEO, ("video_url",)),
    "video": (MediaKind.VIDEO, ("video", "url", "path", "base64")),
    "audio_url": (MediaKind.AUDIO, ("audio_url",)),
    "input_audio": (MediaKind.AUDIO, ("input_audio",)),
    "audio": (MediaKind.AUDIO, ("audio", "url", "path", "base64")),
}
OPTIONS = (
    "detail",
    "fps",
    "num_frames",
    "max_frames",
    "min_pixels",
    "max_pixels",
    "min_dynamic_patch",
    "max_dynamic_patch",
)
_ANY_OPTION = frozenset(OPTIONS)
BESIDE = (  # what other servers' bodies say of all media
    "mm_processor_kwargs", "media_io_kwargs", "video_config", "images_config", "max_dynamic_patch",
    "min_dynamic_patch", "image_max_dynamic_patch", "video_max_dynamic_patch", "use_audio_in_video",
)  # fmt: skip
URLS: dict[MediaKind, type[Struct]] = {
    MediaKind.IMAGE: ImageUrl,
    MediaKind.VIDEO: VideoUrl,
    MediaKind.AUDIO: AudioUrl,
}
DTYPES = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8, "int64": 8, "int32": 4, "bool": 1}
NOT_ARRAYS = frozenset(  # of a processor's output: what a prompt of ids says by itself, and names of other servers
    {"format", "modality", "offsets", "hash", "pad_value", "input_ids", "attention_mask", "token_type_ids",
     "mm_token_type_ids"}
)  # fmt: skip
MAX_ARRAYS = 32  # of one piece
MAX_DIMENSIONS = 8
MAX_LISTED = 1 << 16  # numbers of an array that is written as lists
WRITTEN = "a URL, a data URI, base64, a path, or an object with url or format"


def check_taken(place: str, kind: MediaKind, taken: Collection[MediaKind]) -> None:
    """Raises ClientError for a kind that the model does not take."""
    if kind not in taken:
        others = " and ".join(WORDS[each] for each in WORDS if each in taken)
        hint = f"it takes texts and {others}" if others else "it takes texts alone"
        raise ClientError(place, f"is set, but this model takes no {WORDS[kind]}", hint)


def check_options(body: Struct) -> None:
    """Of a body that has media. Raises ClientError for options of all of them: each piece has its own."""
    for name in BESIDE:
        if (value := getattr(body, name, None)) not in (None, False, {}):
            known = ", ".join(OPTIONS)
            fact = f"is {shown(value)}, but this request has media"
            raise ClientError(name, fact, f"of {known} those that it is about stand beside the url of each piece")


# -- fields with the media of all prompts ------------------------------------------------------------------------------


def read_fields(
    given: Mapping[str, Any], count: int, is_batch: bool, taken: Collection[MediaKind], own: bool = False
) -> list[tuple[GivenMedia, ...]]:
    """Of each prompt. `given`: what stands in each of FIELDS. `own`: of a program in this process, which may give
    bytes, pictures and arrays as they are. Raises ClientError.

    One piece is for every prompt. A list holds the pieces of the only prompt, or has an entry for each of several:
    a piece, a list of pieces, or null.
    """
    sources: list[list[GivenMedia]] = [[] for _ in range(count)]
    for name, kind in FIELDS.items():
        written = given.get(name)
        if _is_nothing(written):
            continue
        check_taken(name, kind, taken)
        if not isinstance(written, list | tuple):
            piece = _piece(kind, name, written, own)
            for each in sources:
                each.append(piece)
        elif not is_batch:
            sources[0] += _pieces(kind, name, written, own)
        else:
            check_length(name, len(written), count, is_batch)
            for i, entry in enumerate(written):
                pieces = entry if isinstance(entry, list | tuple) else [entry]
                at = f"{name}[{i}]"
                if isinstance(entry, list | tuple):
                    sources[i] += _pieces(kind, at, pieces, own)
                elif not _is_nothing(entry):
                    sources[i].append(_piece(kind, at, entry, own))
    return [tuple(each) for each in sources]


def _is_nothing(written: Any, levels: int = 2) -> bool:
    """null, an empty text, or a list of these, which may be in a list."""
    if isinstance(written, list | tuple):
        if set(map(type, written)) <= {NoneType, str}:
            return not any(written)  # without a look at each in Python
        return levels > 0 and all(_is_nothing(each, levels - 1) for each in written)
    return written is None or (isinstance(written, str) and not written)


def _pieces(kind: MediaKind, place: str, written: Sequence[Any], own: bool) -> list[GivenMedia]:
    return [_piece(kind, f"{place}[{i}]", each, own) for i, each in enumerate(written) if not _is_nothing(each)]


# -- parts of a chat ---------------------------------------------------------------------------------------------------


def with_sources(written: Mapping[str, Any], body: Struct) -> Mapping[str, Any]:
    """A body that was checked, as its client wrote it, with MediaSources in its messages. Raises ClientError."""
    messages = sources_in(written["messages"])
    if messages is written["messages"]:
        return written
    check_options(body)
    return {**written, "messages": messages}


def has_media(messages: Sequence[Any]) -> bool:
    return GivenMedia in {type(part) for parts in _parts_of(messages) for part in parts}


def sources_in(messages: list[Any]) -> list[Any]:
    """Checked messages in OpenAI's form with MediaSources in the places of their parts; the same list if they have no
    media. Raises ClientError.
    """
    # a chat may have thousands of messages that are texts, or lists of texts
    if {part.get("type") for parts in _parts_of(messages) for part in parts}.isdisjoint(PART_FIELDS):
        return messages
    return [
        _with_sources(f"messages[{i}].content", message) if message.get("content").__class__ is list else message
        for i, message in enumerate(messages)
    ]


def _parts_of(messages: Sequence[Any]) -> list[list[Any]]:
    """Those contents of messages that are lists."""
    return [content for message in messages if (content := message.get("content")).__class__ is list]


def own_sources(messages: Any) -> tuple[Any, Any]:
    """The same of messages of a program in this process, which are not checked yet, and with texts in the place of what
    only a program can give, so that they can be. Raises ClientError.
    """
    if not isinstance(messages, list | tuple):
        return messages, messages
    made = [_with_sources(f"messages[{i}].content", message, own=True) for i, message in enumerate(messages)]
    return made, [_as_text(message) for message in made]


def _as_text(message: Any) -> Any:
    content = message.get("content") if isinstance(message, Mapping) else None
    if content is None or not _found(content):
        return message
    shown = [{"type": "text", "text": ""} if isinstance(part, GivenMedia) else part for part in content]
    return {**message, "content": shown}


def _with_sources(place: str, message: Any, own: bool = False) -> Any:
    content = message.get("content") if isinstance(message, Mapping) else None
    if not isinstance(content, list | tuple) or not any(map(_is_media, content)):
        return message
    parts = [part_source(f"{place}[{j}]", part, own) if _is_media(part) else part for j, part in enumerate(content)]
    return {**message, "content": parts}


def _is_media(part: Any) -> bool:
    if part.__class__ is not dict and not isinstance(part, Mapping):  # the second check takes ten times as long
        return False
    kind = part.get("type")
    return isinstance(kind, str) and kind in PART_FIELDS


def part_source(place: str, part: Mapping[str, Any], own: bool = False) -> GivenMedia:
    """Of a part whose type is one of PART_FIELDS. Raises ClientError."""
    if own:
        _check_part(place, part)
    kind, names = PART_FIELDS[part["type"]]
    given = [name for name in names if part.get(name) is not None]
    if len(given) != 1:
        fact = "is missing" if not given else f"is set beside {given[1]}, must be the only one of {', '.join(names)}"
        raise ClientError(f"{place}.{given[0] if given else names[0]}", fact)
    at, written = f"{place}.{given[0]}", part[given[0]]
    options = _options_in(part)
    if isinstance(written, Mapping):  # {"url": ..., "detail": ...}, or {"data": ..., "format": ...}
        options |= _options_in(written)
        written = written.get("url", written.get("data"))
    if written.__class__ is not str or not written:
        written = _piece(kind, at, written, own).written
    return GivenMedia(kind, at, written, options)


def _options_in(part: Mapping[str, Any]) -> dict[str, Any]:
    """Those that are given. Most parts have none, and a chat may have thousands of parts."""
    if _ANY_OPTION.isdisjoint(part):
        return {}
    given = {name: part[name] for name in OPTIONS if part.get(name) is not None}
    return {name: float(value) if isinstance(value, Decimal) else value for name, value in given.items()}


def _check_part(place: str, part: Mapping[str, Any]) -> None:
    """As that of a body, with a text in the place of what only a program can give. Raises ClientError."""
    _, names = PART_FIELDS[part["type"]]
    shown = {name: "own" if name in names and _is_own(value) else value for name, value in part.items()}
    for name in names:
        if isinstance(inner := shown.get(name), Mapping):
            shown[name] = {key: "own" if _is_own(value) else value for key, value in inner.items()}
    try:
        convert({"part": shown}, _OnePart)
    except ClientError as error:
        raise error.at(place + error.place.removeprefix("part")) from None


class _OnePart(Struct, frozen=True):
    part: MediaPart


def taken_out(messages: list[Any], taken: Collection[MediaKind]) -> tuple[list[Any], tuple[GivenMedia, ...]]:
    """What a chat template gets in the place of media, and these in order. Raises ClientError."""
    sources: list[GivenMedia] = []
    if not has_media(messages):
        return messages, ()
    return [_taken_out(message, sources, taken) for message in messages], tuple(sources)


def _taken_out(message: Any, sources: list[GivenMedia], taken: Collection[MediaKind]) -> Any:
    content = message.get("content")
    found = _found(content)
    if not found:
        return message
    for source in found:
        check_taken(source.place, source.kind, taken)
    sources += found
    parts = [template_part(part.kind.value) if isinstance(part, GivenMedia) else part for part in content]
    return {**message, "content": parts}


def _found(content: Any) -> list[GivenMedia]:
    return [part for part in content if isinstance(part, GivenMedia)] if isinstance(content, list) else []


# -- one piece ---------------------------------------------------------------------------------------------------------


def _piece(kind: MediaKind, place: str, written: Any, own: bool) -> GivenMedia:
    match written:
        case str() if written:
            return GivenMedia(kind, place, written)
        case Mapping():
            return _from_object(kind, place, written, own)
    if own and _is_own(written):
        return GivenMedia(kind, place, _plain(written))
    raise ClientError(place, f"is {shown(written)}, must be {WRITTEN}")


def _is_own(written: Any) -> bool:
    """Encoded bytes, a path, a picture of Pillow, an array of numpy, a tensor of torch."""
    if isinstance(written, bytes | bytearray | memoryview | os.PathLike):
        return True
    return hasattr(written, "__array__") or hasattr(written, "__array_interface__")


def _plain(written: Any) -> Any:
    if isinstance(written, bytearray | memoryview):
        return bytes(written)
    return os.fspath(written) if isinstance(written, os.PathLike) else written


def _from_object(kind: MediaKind, place: str, written: Mapping[str, Any], own: bool) -> GivenMedia:
    form = written.get("format")
    match form:
        case None if "url" in written:
            return GivenMedia(kind, place, written["url"], _options(kind, place, written))
        case None:
            raise ClientError(place, f"is {shown(written)}, must be {WRITTEN}")
        case "processor_output" | "precomputed_embedding":
            pass
        case _:
            fact = f"is {shown(form)}, must be 'processor_output' or 'precomputed_embedding'"
            raise ClientError(f"{place}.format", fact)
    modality = written.get("modality")
    if modality is not None and modality not in (kind.value, kind.value.upper(), "multi-images"):
        raise ClientError(f"{place}.modality", f"is {shown(modality)}, must be {kind.value!r} in this field")
    names = [name for name in written if name not in NOT_ARRAYS]
    if form == "precomputed_embedding" and "feature" not in names:
        raise ClientError(f"{place}.feature", "is missing, must be an array [tokens, hidden size]")
    if not names:
        raise ClientError(place, "has no arrays, must have those that the model's processor makes")
    check_most(place, "arrays", len(names), MAX_ARRAYS)
    arrays = {name: _array(f"{place}.{name}", written[name], own) for name in names}
    return GivenMedia(kind, place, arrays=Arrays(arrays, are_features=form == "precomputed_embedding"))


def _options(kind: MediaKind, place: str, written: Mapping[str, Any]) -> dict[str, Any]:
    try:
        asked = convert(dict(written), URLS[kind])
    except ClientError as error:
        raise error.at(f"{place}.{error.place}") from None
    return {name: value for name, value in asdict(asked).items() if value is not None and name != "url"}


# -- arrays ------------------------------------------------------------------------------------------------------------

Array = tuple[str, tuple[int, ...], bytes]  # dtype, shape and numbers


def _array(place: str, given: Any, own: bool) -> Array:
    """Raises ClientError."""
    if own and hasattr(given, "__array__"):
        return _of_program(given)
    if isinstance(given, Mapping):
        return _buffer(place, given)
    if isinstance(given, list | tuple | int | float):
        return _listed(place, given)
    raise ClientError(place, f"is {shown(given)}, must be an object with dtype, shape and data, or lists of numbers")


def _of_program(given: Any) -> Array:
    """An array of numpy, or a tensor of torch, which has no bfloat16 in numpy."""
    if hasattr(given, "detach"):
        given = given.detach().cpu()
        given = (given.float() if str(given.dtype) == "torch.bfloat16" else given).numpy()
    return str(given.dtype), tuple(given.shape), given.tobytes()


def _buffer(place: str, given: Mapping[str, Any]) -> Array:
    for name in ("dtype", "shape", "data"):
        if name not in given:
            raise ClientError(f"{place}.{name}", "is missing")
    dtype, shape, data = given["dtype"], given["shape"], given["data"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ClientError(f"{place}.dtype", f"is {shown(dtype)}, must be one of {', '.join(DTYPES)}")
    if not isinstance(shape, list) or len(shape) > MAX_DIMENSIONS or not all(map(_is_length, shape)):
        fact = f"is {shown(shape)}, must be a list of at most {MAX_DIMENSIONS} integers >= 0"
        raise ClientError(f"{place}.shape", fact)
    if not isinstance(data, str):
        raise ClientError(f"{place}.data", f"is {shown(data)}, must be base64")
    try:
        numbers = binascii.a2b_base64(data, strict_mode=True)
    except ValueError as error:
        raise ClientError(f"{place}.data", f"is not base64: {error}") from None
    if len(numbers) != (wanted := math.prod(shape) * DTYPES[dtype]):
        fact = f"has {len(numbers)} bytes, must have the {wanted} of {shown(shape)} {dtype}"
        raise ClientError(f"{place}.data", fact)
    return dtype, tuple(shape), numbers


def _is_length(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 31


def _listed(place: str, given: Any) -> Array:
    shape: list[int] = []
    numbers = [given]
    while any(isinstance(each, list | tuple) for each in numbers):
        length = len(numbers[0]) if isinstance(numbers[0], list | tuple) else -1
        if any(not isinstance(each, list | tuple) or len(each) != length for each in numbers):
            raise ClientError(place, f"has lists of unequal lengths at depth {len(shape) + 1}")
        shape.append(length)
        numbers = [number for each in numbers for number in each]
        hint = 'send {"dtype": ..., "shape": ..., "data": base64}'
        check_most(place, "numbers", len(numbers), MAX_LISTED, hint)
        check_most(place, "dimensions", len(shape), MAX_DIMENSIONS)
    return _packed(place, numbers, tuple(shape))


def _packed(place: str, numbers: list[Any], shape: tuple[int, ...]) -> Array:
    kinds = set(map(type, numbers))
    for each in numbers:
        if type(each) not in (bool, int, float):
            raise ClientError(place, f"has {shown(each)}, must have numbers")
    if kinds == {bool}:
        return "bool", shape, bytes(numbers)
    try:
        if kinds == {int}:
            return "int64", shape, array("q", numbers).tobytes()
        packed = array("f", numbers)
    except OverflowError:
        raise ClientError(place, "has a number that is too large") from None
    if not all(map(math.isfinite, packed)):
        raise ClientError(place, "has a number that is not finite")
    return "float32", shape, packed.tobytes()
