"""Reads the first bytes of an MP3: whether it is one, and how many frames it has, if it says so.

The frame's header follows ISO/IEC 11172-3 and 13818-3. Encoders write a tag named Xing or Info into the first frame,
with the number of frames that follow it; an encoder that writes to a pipe leaves the number at zero.
"""

ID3_HEADER = 10  # bytes
TAGS = (b"Xing", b"Info")
HAS_FRAMES = 1  # the flag of a tag with a number of frames
TAG_AT = {(True, True): 36, (True, False): 21, (False, True): 21, (False, False): 13}  # by (MPEG-1, several channels)


def is_mp3(data: bytes | memoryview) -> bool:
    """Whether it begins as an MP3 does: with an ID3 tag, or with a frame of layer III."""
    head = bytes(data[:3])
    return head == b"ID3" or (len(head) > 1 and head[0] == 0xFF and head[1] & 0xE6 == 0xE2)


def num_frames(data: bytes | memoryview) -> int | None:
    """The number of frames that follow the first one, as its tag says. None: no tag says so."""
    at = 0
    while bytes(data[at : at + 3]) == b"ID3":
        at += ID3_HEADER + _of_seven_bits(data[at + 6 : at + ID3_HEADER])
    head = bytes(data[at : at + 4])
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE6 != 0xE2:
        return None
    is_mpeg1, is_mono = head[1] & 0x18 == 0x18, head[3] & 0xC0 == 0xC0
    at += TAG_AT[is_mpeg1, not is_mono]
    if bytes(data[at : at + 4]) not in TAGS or not data[at + 7] & HAS_FRAMES:
        return None
    return int.from_bytes(data[at + 8 : at + 12], "big") or None


def _of_seven_bits(digits: bytes | memoryview) -> int:
    """A number with seven bits in each byte (ID3v2, 6.2)."""
    value = 0
    for each in digits:
        value = value << 7 | each & 0x7F
    return value
