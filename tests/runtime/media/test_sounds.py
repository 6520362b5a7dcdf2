"""Sound as it is decoded: one channel at the model's rate, and what is refused before and while."""

import io
from typing import Any

import media_files
import numpy as np
import pytest
import soundfile
import soxr

from ramet.runtime.errors import ClientError
from ramet.runtime.media.audio import MAX_CHANNELS, decode_sound
from ramet.runtime.options.media_options import MediaArgs

RATE = 16_000
EXACT = {
    "wav": dict(form="WAV", subtype="FLOAT"),
    "wav of 16 bits": dict(form="WAV", subtype="PCM_16"),
    "flac": dict(form="FLAC", subtype="PCM_24"),
}
LOSSY = {"ogg": dict(form="OGG"), "mp3": dict(form="MP3")}
IN_CONTAINERS = {
    "m4a": ("ipod", "aac"),
    "webm": ("webm", "libopus"),
    "mkv": ("matroska", "aac"),
    "adts": ("adts", "aac"),
}


def decoded(data: bytes, rate: int = RATE, **limits: float) -> np.ndarray:
    found = decode_sound(data, rate, MediaArgs(**limits))
    assert found.rate == rate and found.samples.dtype == np.float32 and found.samples.ndim == 1
    return found.samples


@pytest.mark.parametrize("name", EXACT)
def test_samples_are_what_was_written(name: str):
    tone = media_files.tone(0.7)
    np.testing.assert_allclose(decoded(media_files.sound(tone, **EXACT[name])), tone, atol=1e-4)


@pytest.mark.parametrize("name", LOSSY)
def test_files_that_lose_some_are_heard_as_libsndfile_hears_them(name: str):
    data = media_files.sound(media_files.tone(0.7), **LOSSY[name])
    heard, _ = soundfile.read(io.BytesIO(data), dtype="float32")
    np.testing.assert_allclose(decoded(data), heard, atol=4e-6)  # MP3: another decoder, and each rounds for itself


@pytest.mark.parametrize("name", IN_CONTAINERS)
def test_other_files_are_read_by_ffmpeg(name: str):
    form, codec = IN_CONTAINERS[name]
    heard = decoded(media_files.sound_in_container(media_files.tone(1.0, 48_000), 48_000, form, codec))
    assert abs(len(heard) - RATE) < 2048
    middle = heard[4000:12_000]
    pitch = np.abs(np.fft.rfft(middle * np.hanning(len(middle)))).argmax() * RATE / len(middle)
    assert abs(pitch - 440) < 3 and 0.3 < np.abs(middle).max() < 0.8


def test_channels_are_averaged():
    tone = media_files.tone(0.3, channels=3)
    data = media_files.sound(tone, subtype="FLOAT")
    np.testing.assert_allclose(decoded(data), tone.mean(axis=1), atol=1e-6)


@pytest.mark.parametrize("channels", range(2, 9))
def test_channels_of_flac_are_averaged_as_those_of_wav(channels: int):
    tone = np.random.default_rng(0).integers(-9999, 9999, (2 * RATE, channels), np.int16)
    wav, flac = (decoded(media_files.sound(tone, form=form)) for form in ("WAV", "FLAC"))
    np.testing.assert_allclose(flac, wav, atol=1e-7)


@pytest.mark.parametrize("rate", [8000, 22_050, 44_100, 48_000])
def test_samples_are_resampled_by_soxr(rate: int):
    tone = media_files.tone(0.5, rate)
    data = media_files.sound(tone, rate, subtype="FLOAT")
    assert np.array_equal(decoded(data), soxr.resample(tone, rate, RATE, quality="HQ"))
    assert np.array_equal(decoded(data, rate), tone)


@pytest.mark.parametrize("name", [*EXACT, *LOSSY])
def test_sound_that_takes_longer_than_it_may_is_refused(name: str):
    data = media_files.sound(media_files.tone(3.0), **{**EXACT, **LOSSY}[name])
    with pytest.raises(ClientError, match="must take at most 2 s") as refused:
        decoded(data, max_audio_seconds=2.0)
    assert refused.value.status == 413 and "--max-audio-seconds" in str(refused.value)


@pytest.mark.parametrize("name", IN_CONTAINERS)
def test_so_is_that_of_containers(name: str):
    form, codec = IN_CONTAINERS[name]
    data = media_files.sound_in_container(media_files.tone(3.0), RATE, form, codec)
    with pytest.raises(ClientError, match="must take at most 2 s"):
        decoded(data, max_audio_seconds=2.0)


def test_what_a_header_says_of_flac_is_no_way_around_the_limit():
    """It says ten samples; none is decoded beyond the limit, whoever is right."""
    data = bytearray(media_files.sound(media_files.tone(3.0), **EXACT["flac"]))
    data[22:26] = (10).to_bytes(4, "big")  # of STREAMINFO, behind four bits that stay
    try:
        assert len(decoded(bytes(data), max_audio_seconds=2.0)) <= 2 * RATE
    except ClientError as refused:
        assert refused.status in (400, 413)


LONG_S = 40.0  # so that an estimate from the first frames is far off
UNTAGGED = {"container_options": {"write_xing": "0"}}
PIPED = {"piped": True}
LENGTHS: dict[str, dict[str, Any]] = {  # files whose headers tell no length, an estimate, or a placeholder
    "MP3 with a tag": dict(form="mp3", codec="libmp3lame"),
    "MP3 of constant rate without a tag": dict(form="mp3", codec="libmp3lame", **UNTAGGED),
    "MP3 from a pipe": dict(form="mp3", codec="libmp3lame", **PIPED),
    "FLAC from a pipe": dict(form="flac", codec="flac", **PIPED),
    "WAV from a pipe": dict(form="wav", codec="pcm_s16le", **PIPED),
    "Ogg from a pipe": dict(form="ogg", codec="libopus", **PIPED),
    "WebM from a pipe": dict(form="webm", codec="libopus", **PIPED),
    "ADTS": dict(form="adts", codec="aac"),
}


def variable_mp3(seconds: float, loud_first: bool) -> bytes:
    """An MP3 without a tag, of which one half is silence in few bits and the other is noise in many."""
    halves = [np.zeros(round(seconds * RATE / 2), np.float32), np.zeros(round(seconds * RATE / 2), np.float32)]
    halves[0 if loud_first else 1][:] = np.random.default_rng(0).uniform(-0.5, 0.5, len(halves[0]))
    rate = {"qscale": True, "global_quality": 1}
    return media_files.sound_in_container(np.concatenate(halves), RATE, "mp3", "libmp3lame", **UNTAGGED, **rate)


def assert_counted(data: bytes) -> None:
    assert abs(len(decoded(data, max_audio_seconds=LONG_S + 1)) / RATE - LONG_S) < 0.25
    with pytest.raises(ClientError, match="must take at most 39 s"):
        decoded(data, max_audio_seconds=LONG_S - 1)


@pytest.mark.parametrize("name", LENGTHS)
def test_a_length_that_no_header_knows_is_counted(name: str):
    rate = 48_000 if LENGTHS[name]["codec"] == "libopus" else RATE
    assert_counted(media_files.sound_in_container(media_files.tone(LONG_S, rate), rate, **LENGTHS[name]))


@pytest.mark.parametrize("loud_first", [False, True])
def test_so_is_that_of_an_mp3_of_variable_rate_without_a_tag(loud_first: bool):
    """What its first frames are like says nothing of the others: the estimate is too long, or too short."""
    assert_counted(variable_mp3(LONG_S, loud_first))


@pytest.mark.parametrize("subtype", ["PCM_16", "DOUBLE", "ULAW", "IMA_ADPCM", "MS_ADPCM"])
@pytest.mark.parametrize("size", [0, 0x7FFFF000, 0xFFFFFFFF, None])
@pytest.mark.parametrize("size_of_data", [0, 0xFFFFFFFF, None])
def test_a_wav_whose_sizes_are_placeholders_is_heard_whole(subtype: str, size: int | None, size_of_data: int | None):
    """0 and the largest numbers are what programs write before they know. None: the true size."""
    data = bytearray(media_files.sound(media_files.tone(1.0), subtype=subtype))
    num, at = len(decoded(bytes(data))), data.index(b"data") + 4
    assert num - RATE in range(2048)  # in whole blocks
    for where, each in ((4, size), (at, size_of_data)):
        if each is not None:
            data[where : where + 4] = each.to_bytes(4, "little")
    assert len(decoded(bytes(data))) == num


def test_a_wav_without_samples_has_none():
    """The part behind the empty one is no sound."""
    data = media_files.sound(media_files.tone(0.0))
    for more in (b"", b"LIST\x04\x00\x00\x00INFO"):
        with pytest.raises(ClientError, match="has no sample"):
            decoded(data + more)


def test_two_mp3s_in_one_file_are_heard_both():
    """The tag of the first one counts its own frames."""
    assert_counted(2 * media_files.sound(media_files.tone(LONG_S / 2), form="MP3"))


ID3 = b"ID3\x04\x00\x00\x00\x00\x07\x76" + bytes(1014)
NOISE = np.random.default_rng(0).bytes(4000)


@pytest.mark.parametrize("more", [{}, UNTAGGED], ids=["with a tag", "without a tag"])
@pytest.mark.parametrize("behind", [bytes(5000), b"LYRICSBEGIN" + b"x" * 3000 + b"LYRICS200", NOISE], ids=len)
def test_what_is_no_frame_of_an_mp3_is_passed_over(more: dict[str, Any], behind: bytes):
    """Programs write lyrics, covers and zeros behind the sound."""
    data = media_files.sound_in_container(media_files.tone(LONG_S), RATE, "mp3", "libmp3lame", **more)
    assert_counted(data + behind)
    half = len(data) // 2
    assert_counted(data[:half] + behind + data[half:])


def test_an_mp3_that_is_damaged_within_is_not_cut_off():
    """Its tag counts the frames that are lost, but the file is as long as it says."""
    data = bytearray(media_files.sound_in_container(media_files.tone(LONG_S), RATE, "mp3", "libmp3lame"))
    data[len(data) // 2 : len(data) // 2 + 300] = NOISE[:300]
    assert_counted(bytes(data))
    with pytest.raises(ClientError, match="is cut off"):
        decoded(bytes(data[:-1000]))


def test_an_mp3_without_a_frame_is_refused():
    data = media_files.sound(media_files.tone(2.0), form="MP3")
    with pytest.raises(ClientError, match="is broken sound"):
        decoded(data[:4] + NOISE)


@pytest.mark.parametrize(("form", "codec"), [("flac", "flac"), ("mp3", "libmp3lame"), ("adts", "aac")])
def test_a_tag_in_front_says_nothing_of_the_form(form: str, codec: str):
    data = media_files.sound_in_container(media_files.tone(LONG_S), RATE, form, codec)
    assert_counted(ID3 + data)
    assert_counted(ID3 + ID3 + data)


@pytest.mark.parametrize("piped", [False, True])
def test_the_length_of_an_mp3_in_a_wav_is_an_estimate(piped: bool):
    assert_counted(media_files.sound_in_container(media_files.tone(LONG_S), RATE, "wav", "libmp3lame", piped=piped))


def test_an_mp3_whose_tag_counts_frames_that_are_not_there_is_cut_off():
    data = media_files.sound(media_files.tone(2.0), form="MP3")
    with pytest.raises(ClientError, match=r"is cut off: it has \d+ of \d+ frames"):
        decoded(data[: len(data) // 2])


@pytest.mark.parametrize("name", ["wav", "wav of 16 bits", "flac", "m4a", "mkv"])
def test_sound_that_is_cut_off_is_refused(name: str):
    tone = media_files.tone(2.0)
    if name in EXACT:
        data = media_files.sound(tone, **EXACT[name])
    else:
        data = media_files.sound_in_container(tone, RATE, *IN_CONTAINERS[name])
    for part in media_files.cut(data):
        with pytest.raises(ClientError) as refused:
            decoded(part)
        assert refused.value.status == 400, refused.value


def test_samples_must_be_finite():
    tone = media_files.tone(0.1)
    tone[7] = np.nan
    with pytest.raises(ClientError, match="are not finite numbers"):
        decoded(media_files.sound(tone, subtype="FLOAT"))


def test_rates_and_channels_are_bounded():
    with pytest.raises(ClientError, match="has 100 samples per second"):
        decoded(media_files.sound(media_files.tone(0.5, 100), 100))
    with pytest.raises(ClientError, match=f"channels, must be in .1, {MAX_CHANNELS}"):
        decoded(media_files.sound(np.zeros((10, MAX_CHANNELS + 1), np.float32)))


def test_no_sample_is_no_sound():
    with pytest.raises(ClientError, match="has no sample"):
        decoded(media_files.sound(np.zeros(0, np.float32)))


@pytest.mark.parametrize("data", [b"", b"RIFF", b"abc" * 99, b"fLaC" * 99, b"#EXTM3U\nhttp://127.0.0.1:21100/a.aac\n"])
def test_what_is_no_sound_is_refused(data: bytes):
    with pytest.raises(ClientError, match=r"is (not audio, or is damaged|broken sound)") as refused:
        decoded(data)
    assert "0x" not in refused.value.fact, "an address of the process is nobody's business"


def test_a_picture_and_a_film_without_sound_are_refused():
    for data in (media_files.picture(media_files.noise(8, 8), "JPEG"), media_files.film([9] * 3)):
        with pytest.raises(ClientError):
            decoded(data)
