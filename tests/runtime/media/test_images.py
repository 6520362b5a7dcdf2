"""Pictures as they are decoded: what is seen, what is refused, and before which pixel."""

import io
import tracemalloc

import media_files
import numpy as np
import pytest
from PIL import Image

from ramet.runtime.errors import ClientError
from ramet.runtime.media.image import FORMATS, ORIENTATION, TURNS, decode_picture

LIMIT = 1 << 20
LOSSLESS = {"PNG": {}, "BMP": {}, "WEBP": {"lossless": True, "exact": True}}


def decoded(data: bytes) -> Image.Image:
    image = decode_picture(data, LIMIT)
    assert image.mode == "RGB"
    return image


def same(one: Image.Image, other: Image.Image) -> bool:
    return one.size == other.size and one.tobytes() == other.tobytes()


@pytest.mark.parametrize("form", LOSSLESS)
def test_a_picture_is_what_was_written(form: str):
    image = media_files.noise(33, 21)
    assert same(decoded(media_files.picture(image, form, **LOSSLESS[form])), image)


def test_a_jpeg_is_what_pillow_makes_of_it():
    data = media_files.picture(media_files.noise(33, 21), "JPEG")
    assert same(decoded(data), Image.open(io.BytesIO(data)).convert("RGB"))


@pytest.mark.parametrize("orientation", [1, *TURNS])
@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP"])
def test_a_picture_is_turned_as_its_exif_says(form: str, orientation: int):
    """Whatever the camera stored, the same picture is seen: its corners are red, green, blue and black."""
    upright = Image.new("RGB", (64, 32))
    for at, color in (((0, 0), "red"), ((32, 0), "lime"), ((0, 16), "blue")):
        upright.paste(color, (*at, at[0] + 32, at[1] + 16))
    stored = {turn: Image.Transpose(turn) for turn in Image.Transpose}
    back = {6: Image.Transpose.ROTATE_90, 8: Image.Transpose.ROTATE_270}  # the others undo themselves
    turn = back.get(orientation, TURNS.get(orientation))
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    data = media_files.picture(upright if turn is None else upright.transpose(stored[turn]), form, exif=exif)
    image = decoded(data)
    assert image.size == (64, 32)
    corners = [image.getpixel(at) for at in ((8, 8), (56, 8), (8, 24), (56, 24))]
    for corner, color in zip(corners, ((255, 0, 0), (0, 255, 0), (0, 0, 255), (0, 0, 0)), strict=True):
        assert np.abs(np.subtract(corner, color)).max() < 24, (orientation, corners)


def test_broken_exif_says_nothing():
    image = media_files.noise(8, 8)
    assert same(decoded(media_files.picture(image, exif=b"Exif\0\0MM\0*\0\0\xff\xff broken")), image)


def test_what_is_transparent_shows_white():
    clear = media_files.noise(4, 4, mode="RGBA")
    clear.putalpha(Image.new("L", (4, 4), 0))
    assert decoded(media_files.picture(clear)).getcolors() == [(16, (255, 255, 255))]
    half = Image.new("RGBA", (1, 1), (0, 0, 0, 128))
    assert decoded(media_files.picture(half)).getpixel((0, 0)) == (127, 127, 127)
    assert decoded(media_files.picture(half, "WEBP", lossless=True)).getpixel((0, 0)) == (127, 127, 127)


@pytest.mark.parametrize("form", ["PNG", "GIF"])
def test_a_transparent_entry_of_a_palette_shows_white(form: str):
    image = Image.new("P", (2, 1))
    image.putpalette([255, 0, 0, 0, 255, 0])
    image.putpixel((1, 0), 1)
    seen = decoded(media_files.picture(image, form, transparency=0))
    assert [seen.getpixel((0, 0)), seen.getpixel((1, 0))] == [(255, 255, 255), (0, 255, 0)]


def test_a_transparent_color_without_alpha_shows_white():
    image = Image.new("RGB", (2, 1), (9, 9, 9))
    image.putpixel((1, 0), (1, 2, 3))
    seen = decoded(media_files.picture(image, transparency=(9, 9, 9)))
    assert [seen.getpixel((0, 0)), seen.getpixel((1, 0))] == [(255, 255, 255), (1, 2, 3)]


def test_grey_of_sixteen_bits_keeps_its_shades():
    grey = Image.fromarray(np.array([[0, 257 * 16, 257 * 200, 65535]], np.uint16))
    seen = decoded(media_files.picture(grey))
    assert [seen.getpixel((i, 0)) for i in range(4)] == [(v,) * 3 for v in (0, 16, 200, 255)]


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P"])
def test_other_modes_are_seen_as_pillow_shows_them(mode: str):
    image = media_files.noise(9, 7, mode="L").convert(mode)
    assert same(decoded(media_files.picture(image)), image.convert("RGBA").convert("RGB"))


def test_cmyk_is_seen_in_rgb():
    data = media_files.picture(Image.new("CMYK", (16, 16), (255, 0, 0, 0)), "JPEG", quality=95)
    assert np.abs(np.subtract(decoded(data).getpixel((4, 4)), (0, 255, 255))).max() < 8


@pytest.mark.parametrize("form", ["GIF", "WEBP", "PNG"])
def test_of_an_animation_the_first_frame_is_taken(form: str):
    frames = [Image.new("RGB", (8, 8), color) for color in ("red", "blue")]
    data = media_files.picture(frames[0], form, save_all=True, append_images=frames[1:], lossless=True)
    assert decoded(data).getcolors() == [(64, (255, 0, 0))]


@pytest.mark.parametrize("form", FORMATS)
def test_a_picture_that_is_cut_off_is_refused(form: str):
    for data in media_files.cut(media_files.picture(media_files.noise(40, 30), form)):
        with pytest.raises(ClientError) as refused:
            decoded(data)
        assert refused.value.status == 400, refused.value


BOMBS = {
    "PNG": media_files.png_of(50_000, 50_000, bytes(1 << 20)),
    "GIF": media_files.gif_of(50_000, 50_000),
    "BMP": media_files.bmp_of(50_000, 50_000),
    "JPEG": media_files.jpeg_of(50_000, 50_000),
    "WEBP": media_files.webp_of(16_000, 16_000),
}


@pytest.mark.parametrize("form", BOMBS)
def test_pixels_are_counted_before_one_is_decoded(form: str):
    data = BOMBS[form]
    assert len(data) < 4096
    tracemalloc.start()
    with pytest.raises(ClientError, match="must be at most 1048576") as refused:
        decoded(data)
    assert refused.value.status == 413 and "--max-image-pixels" in refused.value.hint
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1 << 20


def test_a_frame_beyond_its_screen_is_no_way_around_the_limit():
    data = bytearray(media_files.picture(Image.new("P", (1, 1)), "GIF"))
    at = data.index(b",", 13)
    data[at + 5 : at + 9] = (60_000).to_bytes(2, "little") * 2
    with pytest.raises(ClientError):
        decoded(bytes(data))


@pytest.mark.parametrize(
    "data", [b"", b"abc", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", b"<svg/>", bytes(99)]
)
def test_what_is_no_picture_is_refused(data: bytes):
    with pytest.raises(ClientError, match="is no picture"):
        decoded(data)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "HEIC"),
        (b"\0\0\0\x20ftypavif", "AVIF"),
        (b"\0\0\0\x20ftypisom", "a film"),
        (b"II*\0", "TIFF"),
        (b"%PDF-1.7", "PDF"),
        (b'<?xml version="1.0"?>\n<svg/>', "SVG"),
        (b"<!DOCTYPE html><html></html>", "a web page"),
    ],
)
def test_what_is_not_read_is_named(data: bytes, says: str):
    with pytest.raises(ClientError, match=f"is no picture that is read, but {says}"):
        decoded(data)


@pytest.mark.parametrize("form", ["TIFF", "ICO", "PPM", "TGA", "PDF", "EPS"])
def test_formats_that_browsers_do_not_show_are_refused(form: str):
    with pytest.raises(ClientError, match="is no picture"):
        decoded(media_files.picture(media_files.noise(16, 16), form))


def test_mutated_pictures_are_seen_or_refused():
    random = np.random.default_rng(5)
    for form in FORMATS:
        data = np.frombuffer(media_files.picture(media_files.noise(24, 24), form), np.uint8)
        for _ in range(60):
            mutated = data.copy()
            for at in random.integers(0, len(data), random.integers(1, 8)):
                mutated[at] = random.integers(256)
            try:
                decoded(mutated.tobytes())
            except ClientError as refused:
                assert refused.fact and refused.status in (400, 413)
