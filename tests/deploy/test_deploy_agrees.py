"""The files of deploy/ agree with the options and limits of the server, and with each other."""

import asyncio
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from ramet.runtime.config import ServeArgs
from ramet.runtime.flags import BY_NAME
from ramet.runtime.processes.supervise import GRACE_S
from tests.fakes.server import Served, served
from tests.fakes.tls_files import Files

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
DEFAULTS = ServeArgs()


def seconds(pattern: str, file: str) -> float:
    found = re.search(pattern, (DEPLOY / file).read_text(), re.MULTILINE)
    assert found is not None, f"{file} has no {pattern}"
    return float(found[1])


def test_compose_kills_later_than_the_server_ends() -> None:
    ramet = COMPOSE["services"]["ramet"]
    drain_s = float(ramet["environment"]["RAMET_DRAIN_TIMEOUT_S"])
    assert float(ramet["stop_grace_period"].removesuffix("s")) > drain_s + GRACE_S


def test_systemd_kills_later_than_the_server_ends() -> None:
    assert seconds(r"^TimeoutStopSec=(\d+)$", "systemd/ramet.service") > DEFAULTS.drain_timeout_s + GRACE_S


def test_nginx_uses_no_connection_that_the_server_closes() -> None:
    assert seconds(r"keepalive_timeout (\d+)s;", "nginx/ramet.conf") < DEFAULTS.keep_alive_timeout_s


def test_nginx_takes_bodies_as_large_as_the_server_does() -> None:
    assert seconds(r"client_max_body_size (\d+)m;", "nginx/ramet.conf") == DEFAULTS.max_body_mb


@pytest.mark.parametrize(
    "file", ["Dockerfile", "compose.yaml", "compose.keys.yaml", "healthcheck.py", "systemd/ramet.service"]
)
def test_every_variable_is_an_option(file: str) -> None:
    named = set(re.findall(r"RAMET_([A-Z_]+)", (DEPLOY / file).read_text())) - {"BUILD_KERNELS"}
    assert {name.lower() for name in named} <= set(BY_NAME)


def test_every_image_has_a_version() -> None:
    images = [service["image"] for service in COMPOSE["services"].values() if "build" not in service]
    images += re.findall(r"^ARG BASE=(\S+)$", DOCKERFILE, re.MULTILINE)
    assert len(images) == 3 and all(re.search(r":v?\d+\.\d+\.\d+", image) for image in images)


def test_stages_begin_with_the_base_or_another_stage() -> None:
    stages = re.findall(r"^FROM (\S+) AS (\S+)$", DOCKERFILE, re.MULTILINE)
    assert {source for source, _ in stages} <= {"${BASE}", *(name for _, name in stages)}


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_an_image_runs_as_a_user_that_is_not_root(target: str) -> None:
    stage = DOCKERFILE.split(f"FROM base AS {target}\n")[1].split("\nFROM ")[0]
    assert stage.rstrip().endswith("USER 10001:10001")


def test_what_is_copied_into_an_image_is_part_of_what_is_sent() -> None:
    lines = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    sent = re.findall(r"^!(\S+)$", (DEPLOY / "Dockerfile.dockerignore").read_text(), re.MULTILINE)
    copied = [name for line in lines for name in line.split()]
    assert all(any(fnmatch(name, pattern) for pattern in sent) for name in copied)
    assert all((ROOT / name).exists() for name in copied)


def test_grafana_reads_the_folders_that_compose_mounts() -> None:
    mounts = dict(each.split(":")[:2] for each in COMPOSE["services"]["grafana"]["volumes"])
    provider = yaml.safe_load((DEPLOY / "grafana/provisioning/dashboards/ramet.yaml").read_text())["providers"][0]
    assert provider["options"]["path"] == mounts["./grafana/dashboards"]


@pytest.mark.parametrize("name", ["prometheus.yml", "prometheus-keys.yml"])
def test_prometheus_asks_the_server_by_a_name_that_compose_has(name: str) -> None:
    scrapes = yaml.safe_load((DEPLOY / "prometheus" / name).read_text())["scrape_configs"]
    host, port = scrapes[0]["static_configs"][0]["targets"][0].split(":")
    assert host in COMPOSE["services"] and int(port) == DEFAULTS.port


async def health(port: int, **env: str) -> int:
    """The exit code of the container's health check."""
    argv = [sys.executable, str(DEPLOY / "healthcheck.py")]
    process = await asyncio.create_subprocess_exec(*argv, env={"RAMET_PORT": str(port), **env}, stderr=-3)
    return await process.wait()


@pytest.mark.parametrize("tls", [False, True])
def test_the_health_check_asks_the_server(tmp_path: Path, tls: bool) -> None:
    options: dict[str, Any] = Files(tmp_path).options if tls else {}

    async def check(server: Served) -> None:
        env = {"RAMET_SSL_CERTFILE": options["ssl_certfile"]} if tls else {}
        assert await health(server.port, **env, http_proxy="http://127.0.0.1:1", https_proxy="http://127.0.0.1:1") == 0

    served(check, **options, api_key="k")


def test_the_health_check_fails_without_a_server() -> None:
    assert asyncio.run(health(1)) == 1


@pytest.mark.parametrize(
    ("user", "apt_get", "why"),
    [(1000, True, "only root installs packages"), (0, False, "there is no apt-get to install it"),
     (0, True, "apt-get install prometheus failed, see above")],
)  # fmt: skip
def test_a_test_whose_program_is_missing_is_named_and_the_others_run(
    user: int, apt_get: bool, why: str, tmp_path: Path
) -> None:
    """`make test-deploy` on a machine without promtool. What it starts is written here and does nothing else."""
    programs = {
        "dirname": f"echo {ROOT}/scripts",
        "id": f"echo {user}",
        "python": 'echo "$*"',
        "nginx": "",
        "openssl": "",
        "systemd-analyze": "",
    }
    for name, body in (programs | ({"apt-get": "exit 100"} if apt_get else {})).items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o700)
    env = {"PATH": str(tmp_path), "PYTHON": str(tmp_path / "python")}
    command = [shutil.which("bash") or "", str(ROOT / "scripts/test_deploy.sh"), "-x"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    test = "test_promtool_reads_the_scrapes"
    file = "tests/deploy/test_deploy_lint.py"
    assert done.stdout == f"-m pytest {file} --deselect={file}::{test} -x\n"
    said = f"make test-deploy: NOT RUN: {test} needs promtool, which is not on this machine: {why}\n"
    assert done.stderr == said and f"def {test}(" in (ROOT / file).read_text()
