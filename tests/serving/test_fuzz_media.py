"""Media that are damaged, too large, of another kind or elsewhere: 4xx by name, nothing fetched that must not be.

No process ends but decoders at their deadline, and memory stays bounded: that of the server, and of each worker.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import requests
from fuzzed_media import TEXT, Case, Web, case, film_case, make_files, many_frames, uri
from live import Live, running
from tiny_media import make_llava, make_qwen2_vl
from tls_files import Files

from ramet.runtime.media.service import KEPT_SHARE

COUNT = 1700  # of pictures, and
FILMS = 300  # of films
SAMPLE = 20  # each of these is sent by default
OPTIONS = {"dtype": "float32", "num_threads": 1, "max_total_tokens": 4096, "check_invariants": True}
LIMITS = {"media_workers": 1, "max_media_mb": 32, "media_memory_mb": 512, "media_fetch_timeout_s": 1}
SERVER_MB = 400  # that the server may take beyond what it began with
PICTURE_FILES_MB, FILM_FILES_MB = 1, 16  # for what requests need: an eighth is for less than all that the cases leave
WORKER_MB = 1500  # its libraries, and what LIMITS allow


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """Servers that start meanwhile trust the authority of its certificate, as an operator has them trust one."""
    files = Files(tmp_path_factory.mktemp("tls"))
    files.issue("127.0.0.1")
    found = Web(files.server)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SSL_CERT_FILE", str(files.authorities))
        yield found
    assert found.trapped == []
    found.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("files") / "open"
    make_files(made)
    return made


@pytest.fixture(scope="module")
def pictures(web: Web, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    model = make_llava(tmp_path_factory.mktemp("pictures") / "llava")
    where = {"allowed_media_domains": web.domains, "allowed_local_media_path": folder}
    with Live(model_path=model, media_files_mb=PICTURE_FILES_MB, **OPTIONS, **LIMITS, **where) as live:
        yield from watched(live, PICTURE_FILES_MB)


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    model = make_qwen2_vl(tmp_path_factory.mktemp("films") / "qwen2_vl")
    with Live(model_path=model, media_files_mb=FILM_FILES_MB, **OPTIONS, **LIMITS) as live:
        yield from watched(live, FILM_FILES_MB)


def watched(live: Live, files_mb: int) -> Iterator[Live]:
    """The server with what must hold when all has been sent."""
    processes = live.children()
    began = peak_mb(processes["server"])
    yield live
    reply = live.generate(text="still here", sampling_params={"max_new_tokens": 2})
    assert reply.status_code == 200, reply.text
    state = live.state()
    assert state["running_requests"] == state["leased_tokens"] == 0
    now = live.children()
    assert {name: each.pid for name, each in now.items()} == {name: each.pid for name, each in processes.items()}
    assert "ended with" not in live.output() and "Traceback" not in live.output(), live.output()[-4000:]
    assert peak_mb(now["server"]) < began + SERVER_MB
    assert all(peak_mb(worker) < WORKER_MB for worker in workers(live))
    places = {Path(each.laddr).parent for each in now["server"].net_connections("unix") if each.laddr}
    sizes = [file.stat().st_size for place in places for file in place.glob("media/*")]
    assert places and sum(sizes) == metric(live, "media_file_bytes") <= (files_mb << 20) // KEPT_SHARE
    assert metric(live, "num_media_in_use") == 0  # so each of these files is one of late


def metric(live: Live, name: str) -> float:
    lines = requests.get(live.url + "/metrics", timeout=10).text.splitlines()
    (value,) = (line.split()[-1] for line in lines if line.split()[0].partition("{")[0] == f"ramet:{name}")
    return float(value)


def workers(live: Live) -> list[psutil.Process]:
    return running("ramet.runtime.media.worker", psutil.Process(live.process.pid))


def peak_mb(process: psutil.Process) -> float:
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def send(live: Live, cases: Iterable[Case]) -> None:
    with ThreadPoolExecutor(4) as pool:
        wrong = [each for each in pool.map(lambda each: fault(live, each), cases) if each]
    assert not wrong, f"{len(wrong)} replies:\n" + "\n".join(wrong[:20])


def fault(live: Live, sent: Case) -> str:
    """What is wrong with the reply; empty: nothing."""
    body = requests.models.complexjson.dumps(sent.body).encode("utf-8", "surrogatepass")
    reply = requests.post(live.url + sent.path, data=body, headers={"Content-Type": "application/json"}, timeout=120)
    told = f"{sent.name}: {reply.status_code} {reply.text[:300]}"
    if reply.status_code == 200:
        return told if sent.is_refused else ""
    message = str(reply.json()["error"]["message"])
    is_named = (
        "not valid JSON" in message
        or "image_data" in message
        or "video_data" in message
        or "messages[0].content[1]" in message
    )
    secret = "root:" in message or "PATH=" in message or "word@" in message
    return "" if 400 <= reply.status_code < 500 and is_named and not secret and len(message) < 2000 else told


def sampled(make: Callable[[int], Case], count: int) -> list[Case]:
    return [make(i) for i in range(0, count, SAMPLE)]


def test_a_sample_of_pictures_is_refused_by_name(pictures: Live, web: Web, folder: Path) -> None:
    send(pictures, sampled(lambda i: case(i, web, folder), COUNT))


def test_a_sample_of_films_is_refused_by_name(films: Live) -> None:
    send(films, sampled(film_case, FILMS))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_all_pictures_are_refused_by_name(pictures: Live, web: Web, folder: Path) -> None:
    send(pictures, (case(i, web, folder) for i in range(COUNT)))
    assert web.asked > 100


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_all_films_are_refused_by_name(films: Live) -> None:
    send(films, (film_case(i) for i in range(FILMS)))


def test_a_picture_comes_by_https_from_who_has_a_certificate_of_the_operator(pictures: Live, web: Web) -> None:
    asked = web.asked
    for url in (web.tls_url("/good.png"), web.url("/good.png").replace("http:", "https:")):
        reply = pictures.generate(text="<image>", image_data=url, sampling_params={"max_new_tokens": 2})
        assert reply.status_code == (200 if url == web.tls_url("/good.png") else 400), reply.text
    assert web.asked == asked + 1


def test_more_pieces_than_a_request_may_have_are_refused(pictures: Live) -> None:
    reply = pictures.generate(text="<image>" * 65, image_data=["x"] * 65)
    assert reply.status_code == 400 and "image_data[64]" in reply.text and "--max-media-per-request" in reply.text


def test_a_million_frames_are_refused(films: Live) -> None:
    body = {"text": TEXT, "video_data": uri(many_frames(1_000_000)), "sampling_params": {"max_new_tokens": 2}}
    reply = films.generate(**body)
    assert 400 <= reply.status_code < 500 and "video_data" in reply.text
