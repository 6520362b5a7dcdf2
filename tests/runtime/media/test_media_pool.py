"""Media prepared by real worker processes: what each asker gets, and what becomes of processes that fail.

A worker that is stopped (SIGSTOP) stands for one that decodes for ever.
"""

import asyncio
import io
import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import media_files
import numpy as np
import psutil
import pytest
from PIL import Image
from samples import slow
from tiny_media import FAMILIES, make_llava

from ramet.ipc.content import Content
from ramet.ipc.loop_thread import LoopThread
from ramet.ipc.media import MediaKind, Prepared
from ramet.ipc.params import SamplingParams
from ramet.ipc.spec import RequestSpec
from ramet.runtime.engine_client.media import Preparing as EnginePreparing
from ramet.runtime.engine_client.media import counted, with_media
from ramet.runtime.engine_client.prompt import Prompt
from ramet.runtime.errors import ClientError, ServerError
from ramet.runtime.media import worker_process
from ramet.runtime.media.formats.registry import format_of
from ramet.runtime.media.pool import MediaPool
from ramet.runtime.media.service import MediaIntake
from ramet.runtime.media.source import GivenMedia
from ramet.runtime.media.turns import MediaTurns
from ramet.runtime.media.worker import MediaDone, MediaJob, MediaRefused, Outcome, Preparer
from ramet.runtime.options.media_options import MediaArgs
from ramet.runtime.workers.subordinate import NICENESS

WAIT_S = 60.0
MODULE = "ramet.runtime.media.worker"
RED = media_files.picture(Image.new("RGB", (48, 40), "red"))
IMAGE = GivenMedia(MediaKind.IMAGE, "image_data[0]", RED)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_llava(tmp_path_factory.mktemp("llava"))


# -- what a worker makes of a piece, in this process -------------------------------------------------------------------


class Preparing:
    def __init__(self, folder: Path, files: Path, **args: Any) -> None:
        self._files, self._preparer = files, Preparer(folder, MediaArgs(**args))
        self.num = 0

    def run(self, data: bytes = RED, max_bytes: int = 1 << 20, **more: Any) -> Outcome:
        self.num += 1
        given: dict[str, Any] = {"kind": MediaKind.IMAGE, "options": {}, **more}
        file = str(self._files / f"{self.num}")
        return self._preparer.run(MediaJob(file=file, max_bytes=max_bytes, data=data, **given))

    def done(self, *given: Any, **more: Any) -> MediaDone:
        outcome = self.run(*given, **more)
        assert isinstance(outcome, MediaDone), outcome
        return outcome

    def refused(self, *given: Any, **more: Any) -> MediaRefused:
        outcome = self.run(*given, **more)
        assert isinstance(outcome, MediaRefused) and not (self._files / f"{self.num}").exists()
        return outcome


@pytest.fixture
def preparing(folder: Path, tmp_path: Path) -> Preparing:
    return Preparing(folder, tmp_path)


def test_a_file_has_what_transformers_makes_of_a_picture(preparing: Preparing, folder: Path, tmp_path: Path):
    from transformers import CLIPImageProcessorPil

    image = media_files.noise(50, 70)
    done = preparing.done(media_files.picture(image))
    (array,) = done.arrays
    assert (array.name, array.dtype, array.shape, array.offset) == ("pixel_values", "float32", (1, 3, 32, 32), 0)
    file = tmp_path / "1"
    wanted = CLIPImageProcessorPil.from_pretrained(folder)(images=[image], return_tensors="np")["pixel_values"]
    assert file.read_bytes() == wanted.tobytes() and done.num_bytes == wanted.nbytes
    assert file.stat().st_mode & 0o777 == 0o600
    assert done.expansion == (16,)


def test_a_key_is_of_pixels_and_not_of_a_file(preparing: Preparing):
    image = media_files.noise(30, 20)
    png, bmp = (preparing.done(media_files.picture(image, form)) for form in ("PNG", "BMP"))
    assert png.key == bmp.key and len(png.key) == 32
    assert preparing.done(media_files.picture(media_files.noise(30, 20, seed=1))).key != png.key
    assert preparing.done(media_files.picture(image.rotate(180))).key != png.key


def test_a_key_is_of_settings_as_well(preparing: Preparing, folder: Path, tmp_path: Path):
    key = preparing.done().key
    other = tmp_path / "other"
    other.mkdir()
    for file in folder.iterdir():
        (other / file.name).write_bytes(file.read_bytes())
    settings = json.loads((other / "preprocessor_config.json").read_text())
    (other / "preprocessor_config.json").write_text(json.dumps({**settings, "image_mean": [0.5, 0.5, 0.5]}))
    assert Preparing(other, other).done().key != key


def test_a_picture_is_the_same_with_options_that_change_nothing(preparing: Preparing):
    key = preparing.done().key
    for options in ({"detail": "auto", "fps": None}, {"detail": "low"}, {"num_pictures": 3}):
        assert preparing.done(options=options).key == key


def test_an_option_that_a_model_does_not_have_is_refused(preparing: Preparing):
    refused = preparing.refused(options={"min_pixels": 784})
    assert refused.fact == "has the option min_pixels, which this model's images do not have"
    assert refused.hint == "it has no options"


def test_a_file_is_no_larger_than_it_may_be(preparing: Preparing):
    refused = preparing.refused(max_bytes=12_287)
    assert refused.status == 503 and "others leave less" in refused.fact and "--media-files-mb" in refused.fact
    assert preparing.done(max_bytes=12_288).num_bytes == 12_288


def test_a_piece_larger_than_all_files_may_be_is_its_client_s_fault(folder: Path, tmp_path: Path):
    refused = Preparing(folder, tmp_path, media_files_mb=11 / 1024).refused(max_bytes=11 << 10)
    assert refused.status == 413 and "0.0117 MiB" in refused.fact and "--media-files-mb" in refused.fact


def test_a_full_disk_is_no_client_s_fault(folder: Path, tmp_path: Path):
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    preparer = Preparer(folder, MediaArgs())
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, most))  # a file that cannot grow stands for a full disk
    try:
        outcome = preparer.run(MediaJob(IMAGE.kind, str(tmp_path / "1"), 1 << 20, RED, {}))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        signal.signal(signal.SIGXFSZ, before)
    assert isinstance(outcome, MediaRefused) and outcome.status == 503 and "cannot be written" in outcome.fact


def test_limits_are_named(folder: Path, tmp_path: Path):
    refused = Preparing(folder, tmp_path, max_image_pixels=1000).refused()
    assert refused.status == 413 and "48 x 40" in refused.fact and "--max-image-pixels" in refused.hint


def features(dtype: str = "float32", shape: tuple[int, ...] = (5, 64), data: bytes | None = None, **more: Any) -> Any:
    whole = np.arange(320, dtype=np.float32).tobytes() if data is None else data
    return {"data": b"", "are_features": True, "arrays": {"feature": (dtype, shape, whole)}, **more}


def test_features_go_on_as_they_are(preparing: Preparing, tmp_path: Path):
    done = preparing.done(**features())
    assert done.expansion == (5,) and done.arrays[0].shape == (5, 64)
    assert (tmp_path / "1").read_bytes() == features()["arrays"]["feature"][2]
    assert preparing.done(**features()).key == done.key
    assert preparing.done(**features(data=np.ones(320, np.float32).tobytes())).key != done.key


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_features_of_other_widths_become_float32(preparing: Preparing, tmp_path: Path, dtype: str):
    preparing.done(**features(dtype, data=np.arange(320).astype(dtype).tobytes()))
    assert (tmp_path / "1").read_bytes() == features()["arrays"]["feature"][2]


def test_bfloat16_becomes_float32(preparing: Preparing, tmp_path: Path):
    exact = np.full(320, 1.5, np.float32)
    preparing.done(**features("bfloat16", data=(exact.view(np.uint32) >> 16).astype(np.uint16).tobytes()))
    assert (tmp_path / "1").read_bytes() == exact.tobytes()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (features(data=np.full(320, np.nan, np.float32).tobytes()), "NaN or infinity"),
        (features("float64", data=np.full(320, 1e300).tobytes()), "NaN or infinity"),
        (features("bfloat16", data=b"\x80\x7f" * 320), "NaN or infinity"),
        (features(shape=(-5, -64)), "positive"),
        (features(shape=(0, 64), data=b""), "positive"),
        (features(shape=()), "positive"),
        (features(shape=(1,) * 9), "positive"),
        (features(shape=(1 << 40, 1 << 40)), "has 1280 bytes|of 1280 bytes"),
        (features(data=b"abc"), "of 3 bytes"),
        (features("complex64"), "dtype 'complex64'"),
        (features("object"), "dtype 'object'"),
        (features(shape=(10, 32)), "of shape"),
        ({**features(), "arrays": {"other": ("float32", (5, 64), bytes(1280))}}, "has no 'feature'"),
        ({**features(), "are_features": False}, "has no 'pixel_values'"),
    ],
)
def test_broken_arrays_are_refused(preparing: Preparing, given: Any, says: str):
    refused = preparing.refused(**given)
    assert refused.status == 400
    assert re.search(says, refused.fact), refused


def test_the_output_of_a_processor_goes_on_as_it_is(preparing: Preparing, tmp_path: Path):
    pixels = np.random.default_rng(0).normal(size=(1, 3, 32, 32)).astype(np.float32)
    arrays = {"pixel_values": ("float32", pixels.shape, pixels.tobytes())}
    done = preparing.done(data=b"", arrays=arrays, are_features=False)
    assert done.expansion == (16,) and (tmp_path / "1").read_bytes() == pixels.tobytes()


def test_pictures_of_a_prompt_are_counted():
    film = GivenMedia(MediaKind.VIDEO, "video_data", b"film")
    assert counted([IMAGE, film]) == [IMAGE, film]
    first, between, last = counted([IMAGE, film, IMAGE])
    assert first.options == last.options == {"num_pictures": 2} and between is film


def test_a_piece_that_prompts_share_is_prepared_once_for_each_number_of_pictures():
    asked: list[Sequence[GivenMedia]] = []

    async def prepare(sources: Sequence[GivenMedia]) -> tuple[Prepared, ...]:
        asked.append(sources)
        return tuple(Prepared(s.kind, b"", (s.options.get("num_pictures", 1),), (), "") for s in sources)

    spec = RequestSpec(SamplingParams())
    other = GivenMedia(MediaKind.IMAGE, "image_data[1]", RED)
    prompts = [Prompt("", spec, Content(""), sources=own) for own in ((IMAGE,), (IMAGE,), (IMAGE, other))]
    made = asyncio.run(with_media(prompts, EnginePreparing({}, prepare)))
    assert [[media.num_tokens for media in prompt.content.media] for prompt in made] == [[1], [1], [2, 2]]
    assert len(asked) == 1 and len(asked[0]) == 3


# -- turns -------------------------------------------------------------------------------------------------------------


def test_an_owner_has_no_more_than_its_share_of_workers_and_of_what_waits():
    async def body() -> None:
        turns: MediaTurns = MediaTurns(["first", "second"], 4, 0.5)  # type: ignore[list-item]
        mine = await turns.take("one", "a", "a")
        waiting = [asyncio.ensure_future(turns.take("one", "a", "a")) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(ClientError, match=r"2 pieces of media that wait at once \(--max-share-per-key\)") as error:
            await turns.take("other", "a", "a")
        assert error.value.status == 429 and turns.num_waiting == 2
        other = await turns.take("other", "a", "b")
        assert {mine, other} == {"first", "second"}, "one is left for others, though pieces wait"
        turns.give(other)
        await asyncio.sleep(0)
        assert not any(each.done() for each in waiting)
        turns.give(mine)
        assert await waiting[0] == mine and not waiting[1].done()
        nobodys = await turns.take("admin", "a")
        turns.give(nobodys)
        turns.give(mine)
        assert await waiting[1] == mine

    asyncio.run(body())


def test_requests_take_turns():
    async def served() -> list[str]:
        turns: MediaTurns = MediaTurns(["worker"], 100)  # type: ignore[list-item]
        order: list[str] = []

        async def piece(request: str) -> None:
            worker = await turns.take(request, "place")
            order.append(request)
            await asyncio.sleep(0)
            turns.give(worker)

        many = [asyncio.ensure_future(piece("many")) for _ in range(6)]
        await asyncio.sleep(0)
        others = [asyncio.ensure_future(piece(name)) for name in ("one", "two")]
        await asyncio.gather(*many, *others)
        return order

    assert asyncio.run(served()) == ["many", "many", "many", "one", "two", "many", "many", "many"]


def test_one_who_left_takes_no_turn():
    async def served() -> None:
        turns: MediaTurns = MediaTurns(["worker"], 2)  # type: ignore[list-item]
        worker = await turns.take("first", "")
        waiting = [asyncio.ensure_future(turns.take(name, "")) for name in ("gone", "next")]
        await asyncio.sleep(0)
        with pytest.raises(ServerError, match="2 pieces of media wait already"):
            await turns.take("late", "image_data")
        waiting[0].cancel()
        await asyncio.sleep(0)
        assert turns.num_waiting == 1
        turns.give(worker)
        waiting[1].cancel()  # it has the worker, and does not know it yet
        await asyncio.sleep(0)
        assert await asyncio.wait_for(turns.take("last", ""), WAIT_S) == worker

    asyncio.run(served())


# -- processes ---------------------------------------------------------------------------------------------------------


class Asking:
    """A pool, of one worker where nothing else is said, and a client of it."""

    def __init__(self, folder: Path, files: Path, **args: Any) -> None:
        self.files = files
        self.loop = LoopThread("media-test")
        self.intake = MediaIntake(folder, files, MediaArgs(**{"media_workers": 1, **args}))
        self.pool: MediaPool = self.intake.pool

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run(coroutine)

    def prepare(self, data: bytes = RED, **options: Any) -> Prepared:
        source = GivenMedia(MediaKind.IMAGE, "image_data[0]", data, options)
        (prepared,) = self.run(self.intake.prepare([source]))
        return prepared

    def release(self, *prepared: Prepared) -> None:
        async def release() -> None:
            self.intake.release(prepared)

        self.run(release())

    @property
    def left(self) -> list[str]:
        return os.listdir(self.files)

    @property
    def worker(self) -> psutil.Process:
        (only,) = self.pool._workers
        assert only.pid is not None
        return psutil.Process(only.pid)

    def close(self) -> None:
        self.loop.close(self.intake.close())


def workers_of(process: psutil.Process) -> list[psutil.Process]:
    def is_worker(child: psutil.Process) -> bool:
        try:
            return MODULE in child.cmdline()
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            return False

    return [child for child in process.children(recursive=True) if is_worker(child)]


@pytest.fixture(scope="module")
def asking(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asking]:
    """Its worker takes 128 MiB and six seconds for a piece. Of its files an eighth, less than one, stays unused."""
    limits = {"media_memory_mb": 128, "media_timeout_s": 6, "media_files_mb": 92 / 1024}
    made = Asking(folder, tmp_path_factory.mktemp("files"), **limits)
    made.run(_warmed(made.pool))
    yield made
    made.close()
    assert not workers_of(psutil.Process()) and not made.left


async def _warmed(pool: MediaPool) -> None:
    pool.warm()
    await asyncio.wait(pool._tasks)


def test_every_worker_is_begun_ahead(folder: Path, tmp_path: Path):
    own = Asking(folder, tmp_path, media_workers=2)
    own.run(_warmed(own.pool))
    try:
        assert len(workers_of(psutil.Process())) == 2
    finally:
        own.close()


def test_what_is_prepared_is_a_file_until_all_have_released_it(asking: Asking):
    prepared = asking.prepare()
    assert Path(prepared.file).parent == asking.files and prepared.place == "image_data[0]"
    assert prepared.num_tokens == 16 and asking.left == [Path(prepared.file).name]
    again = asking.prepare()
    assert again.key == prepared.key and again.file == prepared.file
    asking.release(prepared)
    assert asking.left == [Path(prepared.file).name]
    asking.release(again)
    asking.release(prepared)
    assert asking.left == [] and asking.pool.num_bytes == 0


def test_a_worker_is_below_decoding_in_priority(asking: Asking):
    asking.release(asking.prepare())
    assert asking.worker.nice() == NICENESS
    most, _ = asking.worker.rlimit(psutil.RLIMIT_AS)
    assert asking.worker.memory_info().vms < most < asking.worker.memory_info().vms + (512 << 20)


def test_a_picture_that_needs_too_much_memory_is_refused_by_itself(asking: Asking):
    out = io.BytesIO()
    Image.new("RGB", (7000, 7000)).save(out, "PNG", compress_level=1)
    asking.release(asking.prepare())
    pid = asking.worker.pid
    with pytest.raises(ClientError, match="--media-memory-mb") as refused:
        asking.prepare(out.getvalue())
    assert refused.value.status == 413 and refused.value.place == "image_data[0]"
    asking.release(asking.prepare())
    assert asking.worker.pid == pid and asking.left == []


def test_a_worker_that_somebody_killed_comes_back(asking: Asking):
    asking.release(asking.prepare())
    before = asking.worker
    before.kill()
    asking.release(asking.prepare())
    assert asking.worker.pid != before.pid and asking.left == []


def test_a_piece_whose_worker_is_killed_is_tried_again(asking: Asking):
    asking.release(asking.prepare())
    before = asking.worker
    before.suspend()
    preparing = asking.loop.start(asking.intake.prepare([IMAGE]))
    before.kill()
    asking.release(*preparing.result(WAIT_S))
    assert asking.worker.pid != before.pid and asking.left == []


@pytest.mark.slow
def test_a_piece_that_crashes_its_worker_is_refused(asking: Asking):
    asking.release(asking.prepare())
    before = asking.worker
    before.suspend()
    preparing = asking.loop.start(asking.intake.prepare([IMAGE]))
    before.send_signal(signal.SIGSEGV)
    before.resume()
    with pytest.raises(ClientError, match="ended with signal SIGSEGV") as refused:
        preparing.result(WAIT_S)
    assert refused.value.status == 400 and refused.value.place == "image_data[0]"


@pytest.fixture
def hurried(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Asking]:
    """A piece may take 0.3 seconds, which a small one does not."""
    monkeypatch.setattr(worker_process, "STRETCH", 4)
    made = Asking(folder, tmp_path, media_timeout_s=0.3, media_workers=1, media_files_mb=92 / 1024)
    made.release(made.prepare())
    yield made
    made.close()


def test_a_piece_that_takes_too_long_is_refused_and_its_worker_ends(hurried: Asking, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(worker_process, "STRETCH", 1000)  # it gets its time, however busy the machine is
    out, before = io.BytesIO(), hurried.worker
    Image.new("RGB", (8000, 8000)).save(out, "PNG", compress_level=1)
    with pytest.raises(ClientError, match=r"takes longer than the 0\.3 s of --media-timeout-s") as refused:
        hurried.prepare(out.getvalue())
    assert refused.value.status == 413 and not before.is_running()
    hurried.release(hurried.prepare())
    assert hurried.left == []


def test_the_time_of_a_piece_is_that_of_its_process(hurried: Asking):
    """A machine without time for it is not its fault."""
    before = hurried.worker
    before.suspend()
    resuming = threading.Timer(0.5, before.resume)
    resuming.start()
    hurried.release(hurried.prepare())
    resuming.join()
    assert hurried.worker == before
    before.suspend()
    with pytest.raises(ServerError, match="the machine was too busy") as failed:
        hurried.prepare()
    assert failed.value.status == 503 and not before.is_running()
    hurried.release(hurried.prepare())
    assert hurried.left == []


def test_a_client_that_goes_away_frees_its_place(asking: Asking):
    """The worker that hangs on its piece is ended before the time of the piece is over."""
    asking.release(asking.prepare())
    stopped = asking.worker
    stopped.suspend()
    preparing = asking.loop.start(asking.intake.prepare([IMAGE]))
    while asking.pool._turns._free:  # until it has the worker: bytes are read on threads, so a second may overtake it
        time.sleep(0.01)
    waiting = asking.loop.start(asking.intake.prepare([IMAGE]))
    while not asking.pool.num_waiting:
        time.sleep(0.01)
    preparing.cancel()
    asking.release(*waiting.result(WAIT_S))
    assert not stopped.is_running() and asking.left == []


def test_where_one_piece_fails_the_others_are_given_up(asking: Asking):
    bad = GivenMedia(MediaKind.IMAGE, "image_data[2]", b"no picture")
    with pytest.raises(ClientError, match=r"image_data\[2\] is no picture"):
        asking.run(asking.intake.prepare([IMAGE, IMAGE, bad, IMAGE, IMAGE, IMAGE]))
    asking.release(asking.prepare())  # what was running has ended by now
    assert asking.left == [] and asking.pool.num_waiting == 0


def test_mutated_pictures_end_no_worker(asking: Asking):
    random = np.random.default_rng(3)
    asking.release(asking.prepare())
    pid = asking.worker.pid
    for form in ("PNG", "JPEG", "GIF", "WEBP", "BMP"):
        data = np.frombuffer(media_files.picture(media_files.noise(24, 24), form), np.uint8)
        for _ in range(10):
            mutated = data.copy()
            mutated[random.integers(0, len(data), 4)] = random.integers(0, 256, 4)
            try:
                asking.release(asking.prepare(mutated.tobytes()))
            except ClientError as refused:
                assert refused.place == "image_data[0]" and refused.status in (400, 413)
    assert asking.worker.pid == pid and asking.left == []


def test_files_are_bounded_together(folder: Path, tmp_path: Path, asking: Asking):
    """Twelve kilobytes each."""
    own = Asking(folder, tmp_path, media_files_mb=30 / 1024)
    first, second, third = (media_files.picture(media_files.noise(24, 24, seed=seed)) for seed in range(3))
    try:
        needed = [own.prepare(first), own.prepare(second)]
        with pytest.raises(ServerError, match="--media-files-mb"):
            own.prepare(third)
        own.release(needed[0])
        own.prepare(third)
    finally:
        own.close()
    assert os.listdir(tmp_path) == []
    with pytest.raises(ServerError):
        LoopThread("late").run(own.intake.prepare([IMAGE]))


@pytest.mark.slow
def test_a_folder_that_cannot_prepare_media_is_our_fault(folder: Path, tmp_path: Path):
    for file in folder.iterdir():
        if file.name != "preprocessor_config.json":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    files = tmp_path / "files"
    files.mkdir()
    own = Asking(tmp_path, files)
    try:
        with pytest.raises(ServerError, match="media cannot be prepared"):
            own.prepare()
    finally:
        own.close()


PIECES = {
    MediaKind.IMAGE: RED,
    MediaKind.VIDEO: media_files.film(range(0, 240, 40)),
    MediaKind.AUDIO: media_files.sound(media_files.tone(0.7)),
}


@pytest.mark.parametrize("family", [each if each == "qwen2-audio" else slow(each) for each in FAMILIES])
def test_a_worker_makes_what_its_code_makes_here(family: str, tmp_path: Path):
    """A worker of pictures has no torch."""
    folder, files = FAMILIES[family](tmp_path / "model"), tmp_path / "files"
    files.mkdir()
    own, here = Asking(folder, files), Preparer(folder, MediaArgs())
    try:
        for kind in format_of(folder).tokens:
            (made,) = own.run(own.intake.prepare([GivenMedia(kind, "", PIECES[kind])]))
            done = here.run(MediaJob(kind, str(tmp_path / kind.value), 1 << 30, PIECES[kind], {}))
            assert isinstance(done, MediaDone) and (done.key, done.expansion, done.grids) == (
                made.key,
                made.expansion,
                made.grids,
            )
            assert Path(made.file).read_bytes() == (tmp_path / kind.value).read_bytes()
    finally:
        own.close()


PARENT = """
import asyncio, sys
sys.path[:] = {path!r}
from pathlib import Path
from ramet.runtime.media.worker_process import MediaWorker
from ramet.runtime.options.media_options import MediaArgs
worker = MediaWorker(Path({folder!r}), MediaArgs(), "media-1")
worker.start()
print(worker.pid, flush=True)
input()
"""


def test_a_worker_does_not_outlive_its_killed_parent(folder: Path):
    code = PARENT.format(path=sys.path, folder=str(folder))
    parent = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    worker = psutil.Process(int(parent.stdout.readline()))
    assert worker.ppid() == parent.pid
    parent.kill()
    parent.communicate()
    worker.wait(WAIT_S)
