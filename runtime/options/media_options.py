"""Options of media: where they may be fetched from, how large one piece may be, and what decoding it may take.

Fetching is runtime/media/fetch.py's, decoding that of the workers. What no option allows is refused: without any, media
come in the request alone.
"""

import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

from msgspec import Struct

from ramet.runtime.access.origins import HOST
from ramet.runtime.errors import ConfigError
from ramet.runtime.options.option import about

MAX_PIXELS = 1 << 30  # of one picture: no more than 4 GiB as RGBA
MAX_S = 86400.0


class MediaArgs(Struct, frozen=True, kw_only=True):
    """Pictures, films and sound in prompts."""

    allowed_media_domains: Annotated[
        tuple[str, ...],
        about(
            "hosts that media may be fetched from by http and https, each as pictures.example, pictures.example:8080 "
            "or an address, which alone may be a private one; empty: nothing is fetched"
        ),
    ] = ()
    allowed_local_media_path: Annotated[
        str, about("folder that files of this machine are read from, as file:///... or a path in it; empty: none is")
    ] = ""
    max_media_mb: Annotated[  # a photograph has 10 at most, a film of some minutes fits
        float, about("largest file of one piece, before it is decoded", gt=0, le=65536)
    ] = 64.0
    max_image_pixels: Annotated[  # phones take pictures of 50 million
        int, about("largest picture, by its header, before it is decoded; of a film: each frame", ge=1, le=MAX_PIXELS)
    ] = 1 << 26
    max_video_seconds: Annotated[float, about("longest film", gt=0, le=MAX_S)] = 600.0
    max_video_frames: Annotated[  # as many as processors of Qwen-VL take of a long film
        int, about("most frames that are taken of one film, whatever a request asks for", ge=1, le=1 << 16)
    ] = 768
    max_audio_seconds: Annotated[float, about("longest sound", gt=0, le=MAX_S)] = 600.0
    max_media_per_request: Annotated[int, about("pieces in one request", ge=0, le=1 << 16)] = 64
    media_workers: Annotated[  # two, so that one that decodes a long film does not hold up all pictures
        int, about("processes that decode; a server starts them when its model is there", ge=1, le=64)
    ] = 2
    media_timeout_s: Annotated[
        float, about("CPU time that decoding one piece may take; its worker is ended then", gt=0, le=MAX_S)
    ] = 30.0
    media_fetch_timeout_s: Annotated[
        float, about("how long fetching one piece may take, redirects included", gt=0, le=MAX_S)
    ] = 10.0
    media_memory_mb: Annotated[  # the largest picture in RGBA and RGB, turned, takes 700
        float, about("memory that a worker may take to decode one piece, beside its libraries", ge=64, le=1 << 20)
    ] = 2048.0
    media_files_mb: Annotated[  # a film of 768 frames at full size of a Qwen-VL takes 1200
        float,
        about("files of media that requests need, an eighth for those of late", gt=0, le=1 << 24),
    ] = 8192.0
    max_vision_tokens_per_step: Annotated[  # seven pictures of LLaVA-1.5
        int, about("tokens of media that towers compute between two steps; a larger piece goes alone", ge=1, le=1 << 20)
    ] = 4096
    media_cache_mb: Annotated[  # 100 pictures of LLaVA-1.5 in 16 bits
        float, about("memory of the host for computed features, the least recently used go first", ge=0, le=1 << 20)
    ] = 512.0


class MediaHost(NamedTuple):
    name: str  # in lower case without a last dot, or an address as Python writes it
    port: int | None  # None: the one of http or https


def read_media_hosts(words: Sequence[str]) -> frozenset[MediaHost]:
    """Of --allowed-media-domains. Raises ConfigError."""
    hosts = set[MediaHost]()
    for word in words:
        found = HOST.fullmatch(word.lower())
        name = None if found is None else _host_name(found[1])
        if found is None or name is None or (found[2] and not 0 < int(found[2]) < 65536):
            fact = (
                f"--allowed-media-domains has {word!r}, must be a host with or without a port, as pictures.example, "
                "192.168.0.7:8080 or [fd00::7]: no scheme, no path, no * (each host is named)"
            )
            raise ConfigError(fact)
        hosts.add(MediaHost(name, int(found[2]) if found[2] else None))
    return frozenset(hosts)


def _host_name(name: str) -> str | None:
    """None for what looks like an address and is none in its usual spelling."""
    if name[0] != "[" and not name.rpartition(".")[2].isdigit():
        return name
    try:
        return str(ipaddress.ip_address(name.strip("[]")))
    except ValueError:
        return None


def check_media(media: MediaArgs) -> None:
    """Raises ConfigError."""
    read_media_hosts(media.allowed_media_domains)
    folder = media.allowed_local_media_path
    if not folder:
        return
    if not Path(folder).is_dir():
        raise ConfigError(f"--allowed-local-media-path {folder} is not a folder on this machine")
    if Path(folder).resolve() == Path("/"):
        raise ConfigError("--allowed-local-media-path is /, must be a folder of media: every file would be open")
