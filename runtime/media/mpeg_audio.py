"""Reads the first bytes of an MP3: whether it is one, and how many frames and bytes it has, if it says so.

The frame's header follows ISO/IEC 11172-3 and 13818-3. Encoders write a tag named Xing or Info into the first frame,
with the number of frames that follow it, and mostly the number of bytes from that frame on; an encoder that writes to
a pipe leaves the numbers at zero.
"""

from typing import NamedTuple

ID3_HEADER = 10  # bytes
TAGS = (b"Xing", b"Info")
HAS_FRAMES, HAS_BYTES = 1, 2  # flags of a tag
TAG_AT = {(True, True): 36, (True, False): 21, (False, True): 21, (False, False): 13}  # by (MPEG-1, several channels)


def is_mp3(data: bytes | memoryview) -> bool:
    """Whether it begins as an MP3 does: with an ID3 tag, or with a frame of layer III."""
    head = bytes(data[:3])
    return head == b"ID3" or (len(head) > 1 and head[0] == 0xFF and head[1] & 0xE6 == 0xE2)


def after_tags(data: bytes | memoryview) -> int:
    """The number of bytes that ID3 tags at the beginning take; files of other forms have such tags, too."""
    at = 0
    while bytes(data[at : at + 3]) == b"ID3":
        at += ID3_HEADER + _of_seven_bits(data[at + 6 : at + ID3_HEADER])
    return at


class Length(NamedTuple):
    num_frames: int  # that follow the first one
    end: int | None  # of the last frame, in bytes of the file


def length_of(data: bytes | memoryview) -> Length | None:
    """What the tag says. None: no tag says so."""
    start = after_tags(data)
    head = bytes(data[start : start + 4])
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE6 != 0xE2:
        return None
    is_mpeg1, is_mono = head[1] & 0x18 == 0x18, head[3] & 0xC0 == 0xC0
    at = start + TAG_AT[is_mpeg1, not is_mono]
    if bytes(data[at : at + 4]) not in TAGS or not data[at + 7] & HAS_FRAMES:
        return None
    num_frames, num_bytes = (int.from_bytes(data[i : i + 4], "big") for i in (at + 8, at + 12))
    if not num_frames:
        return None
    return Length(num_frames, start + num_bytes if data[at + 7] & HAS_BYTES and num_bytes else None)


def _of_seven_bits(digits: bytes | memoryview) -> int:
    """A number with seven bits in each byte (ID3v2, 6.2)."""
    value = 0
    for each in digits:
        value = value << 7 | each & 0x7F
    return value
