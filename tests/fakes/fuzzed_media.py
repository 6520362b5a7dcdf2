"""Requests with media that are damaged, too large, of another kind or elsewhere. Number `index` is always the same.

Decides what is sent, and whether it must be refused. The servers that addresses lead to are real ones of the test, and
count: `Web` is listed by the server under test, its traps are not.
"""

import base64
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import media_files
import numpy as np
from media_files import noise, picture, sound, tone

BOMB = 50_000  # pixels of an edge
PATCHES = 32  # pixels of the model's pictures
HIDDEN, NUM_TOKENS = 64, 16  # of the model, and of a picture
INSIDE = "127.0.0.2"  # an address that nobody lists


class Case(NamedTuple):
    name: str
    path: str
    body: dict[str, Any]
    is_refused: bool  # else it may be answered


class Web:
    """Hosts of the test: `url` leads to one that is listed by its address, `traps` are two that nobody may reach: one
    that is listed by a name alone, which is this machine's, and one that is not listed. `tls`: of a host by https,
    which is listed by its address, too.
    """

    def __init__(self, tls: ssl.SSLContext) -> None:
        self.asked = 0
        self.trapped: list[str] = []
        web = self

        class Listed(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                web.asked += 1
                web.answer(self)

            def log_message(self, *_: Any) -> None: ...

        class Trap(Listed):
            def do_GET(self) -> None:
                web.trapped.append(self.path)
                self.send_error(404)

        self._servers = [
            ThreadingHTTPServer(("127.0.0.1", 0), Listed),
            ThreadingHTTPServer(("127.0.0.1", 0), Trap),
            ThreadingHTTPServer((INSIDE, 0), Trap),
            ThreadingHTTPServer(("127.0.0.1", 0), Listed),
        ]
        self.port, self.named_port, self.inside_port, self.tls_port = (each.server_port for each in self._servers)
        self._servers[-1].socket = tls.wrap_socket(self._servers[-1].socket, server_side=True)
        for server in self._servers:
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, daemon=True).start()

    @property
    def domains(self) -> str:
        return f"127.0.0.1:{self.port},127.0.0.1:{self.tls_port},localhost:{self.named_port},nowhere.invalid"

    def url(self, path: str = "/") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def tls_url(self, path: str = "/") -> str:
        return f"https://127.0.0.1:{self.tls_port}{path}"

    def close(self) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def elsewhere(self) -> list[str]:
        """What nobody may be led to."""
        named, inside = self.named_port, self.inside_port
        return [
            f"http://localhost:{named}/", f"http://127.0.0.1:{named}/", f"http://{INSIDE}:{inside}/",
            f"http://127.2:{inside}/", f"http://2130706434:{inside}/", f"http://0x7f000002:{inside}/",
            f"http://0177.0.0.2:{inside}/", f"http://[::ffff:{INSIDE}]:{inside}/", f"http://[64:ff9b::7f00:2]:{inside}/",
            f"http://user:word@127.0.0.1:{self.port}/good.png", f"http://127.0.0.1:{self.port}@{INSIDE}:{inside}/",
            f"//{INSIDE}:{inside}/", f"https://127.0.0.1:{named}/", f"HTTP://{INSIDE}:{inside}/", "http://[::1]/",
            "http://169.254.169.254/latest/meta-data/", "http://[fd00:ec2::254]/", "http://10.0.0.1/", "http://0/",
            "http://192.168.0.1/", "http://100.100.100.200/", "http://168.63.129.16/", "http://nowhere.invalid/",
            "http://metadata.google.internal/", "file:///etc/passwd", "file://localhost/proc/self/environ",
            "ftp://127.0.0.1/", "gopher://127.0.0.1/", "dict://127.0.0.1:11211/", "jar:http://a!/b", "http://",
            "http:///", "http://a b/", "http://[", "http://127.0.0.1:99999/", "http://127.0.0.1:-1/", "http://\x00/",
        ]  # fmt: skip

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        path = request.path
        if path.startswith("/to/"):
            request.send_response(302)
            request.send_header("Location", self.elsewhere()[int(path[4:])].replace("\x00", ""))
            request.end_headers()
        elif path.startswith("/loop"):
            request.send_response(307)
            request.send_header("Location", self.url(f"/loop{len(path)}" if len(path) < 9 else "/loop"))
            request.end_headers()
        elif path == "/good.png":
            self._send(request, PICTURE)
        elif path == "/endless":
            self._send(request, b"", None)
            with suppress(ConnectionError):
                while True:
                    request.wfile.write(bytes(1 << 16))
        elif path == "/long":
            self._send(request, PICTURE, 1 << 40)
        elif path == "/short":
            self._send(request, PICTURE, len(PICTURE) + 1)
        elif path == "/gzip":
            self._send(request, PICTURE, coding="gzip")
        elif path == "/slow":
            threading.Event().wait(3)
        elif path == "/raw":
            request.wfile.write(b"\x00\xff" * 100)
        else:
            request.send_error(404)

    def _send(self, request: Any, body: bytes, length: int | None = -1, coding: str = "") -> None:
        request.send_response(200)
        if length is not None:
            request.send_header("Content-Length", str(len(body) if length < 0 else length))
        if coding:
            request.send_header("Content-Encoding", coding)
        request.end_headers()
        request.wfile.write(body)


PICTURE = picture(noise(20, 30))
PICTURES = [
    PICTURE,
    picture(noise(20, 30, mode="L")),
    picture(noise(9, 30), "JPEG", progressive=True),
    picture(noise(40, 30), "JPEG"),
    picture(noise(20, 30), "WEBP"),
    picture(noise(20, 30), "WEBP", lossless=True),
    picture(noise(20, 30).convert("P"), "GIF", save_all=True, append_images=[noise(20, 30, 1).convert("P")] * 3),
    picture(noise(20, 30), "BMP"),
    picture(noise(20, 30, mode="RGBA")),
    picture(noise(20, 30), "PNG", exif=b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"),
]
BOMBS = [
    *(make(BOMB, BOMB) for make in (media_files.png_of, media_files.gif_of, media_files.bmp_of, media_files.jpeg_of)),
    media_files.webp_of(16_383, 16_383),
    media_files.png_of(2**31 - 1, 2**31 - 1),
    media_files.png_of(BOMB, BOMB, bytes(1 << 24), 1, 0),
    media_files.png_of(2**31 - 1, 1),
    media_files.bmp_of(-BOMB, -BOMB),
    media_files.bmp_of(BOMB, -BOMB),
]
OTHERS = [
    b"%PDF-1.4\n%%EOF", b"<svg xmlns='http://www.w3.org/2000/svg'><image href='file:///etc/passwd'/></svg>",
    b"<html><img src='http://127.0.0.1/'></html>", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\nshowpage\n",
    b"PK\x03\x04" + bytes(60), b"\x7fELF" + bytes(60), b"\x80\x04\x95cos\nsystem\n(S'id'\ntR.", b"", b"\0", b"x" * 4000,
    b"P6 99999 99999 255\n", b"GIF89a", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"RIFF\xff\xff\xff\xffWEBPVP8 ", b"BM",
    picture(noise(9, 9), "TIFF"), picture(noise(9, 9), "PPM"), picture(noise(9, 9), "ICO"), picture(noise(9, 9), "TGA"),
    picture(noise(9, 9), "PCX"), sound(tone(0.1)),
]  # fmt: skip
JUNK: tuple[Any, ...] = (
    0, -1, 1.5, True, "\x00", "\ud800", "x", "é", "data:", "data:,", "data:image/png;base64,", "data:;base64,QQ==QQ",
    "data:image/png;base64,AAAA", "base64", {}, {"url": None}, {"url": 5}, {"url": ["a"]}, {"url": "x", "detail": 5},
    {"url": {"url": "x"}}, {"format": "pickle"}, {"format": None, "url": 1}, [[["x"]]], [5], [None, 5], [{}],
    {"format": "processor_output"}, {"format": "precomputed_embedding"}, [True],
    {"format": "processor_output", "x": {}}, {"image": "x"}, 10**400,
    "/" * 5000, "../" * 300, "." * 5000, "%00.png", "con.png", "a\nb.png",
)  # fmt: skip


def case(index: int, web: Web, folder: Path) -> Case:
    """`folder`: the one that is open, as `make_files` filled it."""
    random = Random(index)
    (name,) = random.choices(list(MAKERS), [weight for weight, _ in MAKERS.values()])
    written, is_refused = MAKERS[name][1](random, web, folder)
    path, body = _request(random, written)
    return Case(f"{index} {name}", path, body, is_refused)


def _request(random: Random, written: Any) -> tuple[str, dict[str, Any]]:
    if random.random() < 0.3 and isinstance(written, str):
        part = random.choice(
            [
                {"type": "image_url", "image_url": {"url": written}},
                {"type": "image_url", "image_url": {"url": written, "detail": "low"}},
                {"type": "image", "image": written},
            ]
        )
        content = [{"type": "text", "text": "what"}, part]
        return "/v1/chat/completions", {"messages": [{"role": "user", "content": content}], "max_tokens": 2}
    many = random.random() < 0.1
    given = [uri(PICTURE), written] if many else written
    text = "<image>" * (2 if many else 1) + "what"
    return "/generate", {"text": text, "image_data": given, "sampling_params": {"max_new_tokens": 2}}


def uri(data: bytes) -> str:
    return "data:;base64," + base64.b64encode(data).decode()


def damaged(random: Random, data: bytes) -> bytes:
    at, end = sorted(random.randrange(len(data) + 1) for _ in range(2))
    match random.randrange(6):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + data[end:]
        case 2:
            return data[:at] + random.randbytes(random.randrange(1, 64)) + data[at:]
        case 3:
            return data[:end] + data[at:]
        case 4:
            return data[:at] + struct.pack("<I", random.choice([0, 1, 2**16, 2**31 - 1, 2**32 - 1])) + data[at + 4 :]
        case _:
            changed = bytearray(data)
            for _ in range(random.randrange(1, 20)):
                changed[random.randrange(len(changed))] = random.randrange(256)
            return bytes(changed)


def _damaged(random: Random, web: Web, folder: Path) -> tuple[Any, bool]:
    data = damaged(random, random.choice(PICTURES))
    return uri(data), not data


def _bomb(random: Random, web: Web, folder: Path) -> tuple[Any, bool]:
    return uri(random.choice(BOMBS)), True


def _other(random: Random, web: Web, folder: Path) -> tuple[Any, bool]:
    return uri(random.choice(OTHERS)), True


def _junk(random: Random, web: Web, folder: Path) -> tuple[Any, bool]:
    return random.choice(JUNK), True


def _url(random: Random, web: Web, folder: Path) -> tuple[Any, bool]:
    elsewhere = web.elsewhere()
    written = random.choice(
        [
            random.choice(elsewhere),
            random.choice(elsewhere),
            web.url(f"/to/{random.randrange(len(elsewhere))}"),
            web.tls_url(f"/to/{random.randrange(len(elsewhere))}"),
            web.url(random.choice(["/loop", "/endless", "/long", "/gzip", "/raw", "/404", "/good.png#\x01", "/short"])),
        ]
    )
    return written, True


def _slow(random: Random, web: Web, folder: Path) -> tuple[Any, bool]:
    return web.url("/slow"), True


def _good(random: Random, web: Web, folder: Path) -> tuple[Any, bool]:
    elsewhere = web.url("/good.png"), web.tls_url("/good.png"), "good.png", f"file://{folder}/good.png"
    return random.choice([*elsewhere, uri(random.choice(PICTURES))]), False


def make_files(folder: Path) -> None:
    """What is open, and beside it what is not."""
    folder.mkdir()
    (folder / "good.png").write_bytes(PICTURE)
    (folder.parent / "secret.png").write_bytes(PICTURE)
    (folder / "out.png").symlink_to("../secret.png")
    (folder / "up").symlink_to("..")
    (folder / "loop.png").symlink_to("loop.png")
    (folder / "environ.png").symlink_to("/proc/self/environ")
    (folder / "zero.png").symlink_to("/dev/zero")
    with (folder / "large.png").open("wb") as file:
        file.truncate(1 << 40)
    pipe = socket.socket(socket.AF_UNIX)
    pipe.bind(str(folder / "socket.png"))
    pipe.close()


def _file(random: Random, web: Web, folder: Path) -> tuple[Any, bool]:
    names = ["out.png", "up/secret.png", "loop.png", "environ.png", "zero.png", "large.png", "socket.png", "no.png"]
    name = random.choice(names)
    written = [
        f"file://{folder}/{name}", f"{folder}/{name}", name, f"file://{folder}/../secret.png", "../secret.png",
        f"file://{folder}/%2e%2e/secret.png", f"{folder.parent}/secret.png", "/etc/passwd", "/dev/zero",
        "/proc/self/mem", f"file://elsewhere{folder}/good.png", f"{folder}", "file:", "file://", "/dev/stdin",
        f"{folder}/good.png/x",
    ]  # fmt: skip
    return random.choice(written), True


# -- arrays --------------------------------------------------------------------------------------------------------


def buffer(array: Any, **changed: Any) -> dict[str, Any]:
    data = base64.b64encode(array.tobytes()).decode()
    return {"dtype": str(array.dtype), "shape": list(array.shape), "data": data, **changed}


def _array(random: Random, web: Web, folder: Path) -> tuple[Any, bool]:
    form, name, shape = random.choice(
        [
            ("processor_output", "pixel_values", (1, 3, PATCHES, PATCHES)),
            ("precomputed_embedding", "feature", (NUM_TOKENS, HIDDEN)),
        ]
    )
    numbers = np.random.default_rng(random.randrange(1 << 30)).standard_normal(shape).astype(np.float32)
    if random.random() < 0.1:
        return {"format": form, name: buffer(numbers)}, False
    at = tuple(random.randrange(size) for size in shape)
    match random.randrange(8):
        case 0:
            numbers[at] = random.choice([np.nan, np.inf, -np.inf])
            made = buffer(numbers)
        case 1:
            wrong = list(shape)
            axis = random.randrange(len(shape))
            wrong[axis] = random.choice(
                [-1, -wrong[axis], 0, 2**31, 2**63, 10**30, wrong[axis] + 1, 1.5, None, "4", True]
            )
            made = buffer(numbers, shape=wrong)
        case 2:
            made = buffer(numbers, shape=random.choice([[], None, 5, "x", [[1]], [-1], [1] * 40, {}, [numbers.size]]))
        case 3:
            dtypes = ["object", "O", "|O", "float128", "complex64", "str", "", None, 5, "<f4", "float64", "int8", "V4"]
            made = buffer(numbers, dtype=random.choice(dtypes))
        case 4:
            data = damaged(random, numbers.tobytes())
            data = data if len(data) != numbers.nbytes else data + b"x"
            made = buffer(numbers, data=base64.b64encode(data).decode())
        case 5:
            made = buffer(numbers, data=random.choice(["*", None, 5, "\ud800", "QQ=", [], {}, "x" * 5]))
        case 6:
            kept = {"dtype": 0, "shape": 0, "data": 0}
            del kept[random.choice(list(kept))]
            made = {key: value for key, value in buffer(numbers).items() if key in kept}
        case _:
            made = random.choice([[], [[1], [1, 2]], [["x"]], [None], "gASV", [[1e39]], {"__reduce__": 1}, [1, [2]], 5])
    return {"format": form, name: made}, True


MAKERS: dict[str, tuple[int, Callable[[Random, Web, Path], tuple[Any, bool]]]] = {
    "damaged": (40, _damaged), "bomb": (6, _bomb), "other": (8, _other), "junk": (10, _junk), "url": (14, _url),
    "slow": (1, _slow), "good": (3, _good), "file": (8, _file), "array": (16, _array),
}  # fmt: skip


# -- films of a model that takes them --------------------------------------------------------------------------------

FILMS = [
    media_files.film([0, 80, 160, 240] * 3),
    media_files.film([0, 80, 160, 240], "matroska", "mpeg4"),
    media_files.film([0, 80, 160, 240], "avi", "mjpeg"),
    media_files.film([0, 80, 160, 240], "gif", "gif"),
]
TEXT = "<|vision_start|><|video_pad|><|vision_end|>what"


def film_case(index: int) -> Case:
    """For a model that takes films, and is asked for those alone."""
    random = Random(index)
    kind = random.choices(["damaged", "other", "options", "bomb", "good"], [60, 15, 20, 4, 1])[0]
    film, is_refused = random.choice(FILMS), False
    options: dict[str, Any] = {}
    match kind:
        case "damaged":
            film = damaged(random, film)
        case "other":
            film, is_refused = random.choice([each for each in OTHERS if not each.startswith(b"GIF")]), True
        case "bomb":
            film, is_refused = media_files.gif_of(BOMB, BOMB), True
        case "options":
            option = random.choice(["fps", "num_frames", "max_frames", "min_pixels", "max_pixels"])
            options = {option: random.choice([0, -1, 1e-300, 1e300, 10**30, 2**63, None, "x", True, [1], 1, 2.5])}
    given = {"url": uri(film), **options}
    body = {"text": TEXT, "video_data": given, "sampling_params": {"max_new_tokens": 2}}
    return Case(f"{index} {kind}", "/generate", body, is_refused)


def many_frames(count: int) -> bytes:
    """A film of GIF with so many frames of one pixel each."""
    start = b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff"
    frame = b"!\xf9\x04\0\x01\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0"
    return start + frame * count + b";"
