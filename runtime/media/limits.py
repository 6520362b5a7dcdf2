"""How large media may be, and what preparing them may take. Exceeding one is the client's fault and named after it."""

import msgspec


class MediaLimits(msgspec.Struct, frozen=True, kw_only=True):
    image_pixels: int = 1 << 26  # of a picture, or of one frame of a film
    video_seconds: float = 600.0
    video_frames: int = 768  # that are taken of a film
    audio_seconds: float = 600.0
    workers: int = 2  # processes
    timeout_s: float = 30.0  # of one piece in a worker
    memory_mb: float = 2048.0  # of a worker, beside what its libraries take
    files_mb: float = 4096.0  # of all that is prepared and still needed
    queued: int = 256  # pieces that wait for a worker
