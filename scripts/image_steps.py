"""Runs the steps of deploy/Dockerfile where no Docker is, in folders that programs take for the whole system (chroot).

    debootstrap --include=ca-certificates,python3-venv,python3-pip bookworm BASE
    ln -s /usr/bin/python3 BASE/usr/local/bin/python
    python scripts/image_steps.py BASE WORK --target cpu [--build-arg NAME=VALUE]

BASE stands for the image that the stages begin with; each stage is a copy of it below WORK, as is the target's image.
Then the image's command is started as its user, asked for its health and for a token, and stopped as `docker stop`
does. Runs as root on Linux. Knows the instructions that this Dockerfile has, and refuses others.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# In a mount namespace of its own, so that nothing stays mounted
INSIDE = "mount -t proc proc $0/proc && mount --rbind /dev $0/dev && exec chroot $1 $0 env -i $2"
READY_WITHIN_S = 300.0
ASKED = {"text": "The capital of France is", "sampling_params": {"temperature": 0, "max_new_tokens": 4}}


@dataclass
class Stage:
    """What the instructions so far make."""

    folder: Path
    env: dict[str, str] = field(default_factory=lambda: {"PATH": SYSTEM_PATH})
    args: dict[str, str] = field(default_factory=dict)
    shell: list[str] = field(default_factory=lambda: ["/bin/sh", "-c"])
    workdir: str = "/"
    user: str = "0:0"
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    healthcheck: list[str] = field(default_factory=list)

    def argv(self, words: list[str], user: str = "0:0") -> list[str]:
        variables = [f"{name}={value}" for name, value in {**self.args, **self.env}.items()]
        inside = shlex.join([*variables, "sh", "-c", f"cd {shlex.quote(self.workdir)} && exec {shlex.join(words)}"])
        script = INSIDE.replace("$2", inside)
        return ["unshare", "--mount", "sh", "-c", script, str(self.folder), f"--userspec={user}"]


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Word and rest of each, without comments and with continued lines joined."""
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for line in re.sub(r"\s*\\\n\s*", " ", lines).splitlines():
        if line.strip():
            word, _, rest = line.partition(" ")
            yield word, rest.strip()


class Build:
    def __init__(self, base: Path, work: Path, build_args: dict[str, str]) -> None:
        self._base, self._work, self._given = base, work, build_args
        self._stages: dict[str, Stage] = {}

    def build(self, target: str) -> Stage:
        """Every stage up to the target that it needs."""
        blocks = re.split(r"^(?=FROM )", DOCKERFILE.read_text(), flags=re.MULTILINE)[1:]
        named = {re.findall(r"AS (\S+)", block)[0]: block for block in blocks}
        return self._stage(target, named)

    def _stage(self, name: str, named: dict[str, str]) -> Stage:
        if name in self._stages:
            return self._stages[name]
        source = re.findall(r"^FROM (\S+)", named[name])[0]
        stage = Stage(self._work / name)
        if source in named:
            before = self._stage(source, named)
            stage = Stage(stage.folder, dict(before.env), {}, before.shell, before.workdir, before.user)
            stage.entrypoint, stage.command, stage.healthcheck = before.entrypoint, before.command, before.healthcheck
        print(f"== {name}", flush=True)
        start = self._stages[source].folder if source in named else self._base
        subprocess.run(["cp", "-a", "--reflink=auto", str(start), str(stage.folder)], check=True)
        for word, rest in list(instructions(named[name]))[1:]:
            for other in re.findall(r"--from=(\S+)", rest):
                self._stage(other, named)
            print(f"-- {word} {rest[:100]}", flush=True)
            self._step(stage, word, rest)
        self._stages[name] = stage
        return stage

    def _step(self, stage: Stage, word: str, rest: str) -> None:
        match word:
            case "ARG":
                name, _, value = rest.partition("=")
                stage.args[name] = self._given.get(name, value)
            case "ENV":
                for pair in shlex.split(rest):
                    name, _, value = pair.partition("=")
                    stage.env[name] = re.sub(r"\$\{(\w+)\}", lambda found: stage.env[found[1]], value)
            case "SHELL":
                stage.shell = json.loads(rest)
            case "WORKDIR":
                stage.workdir = rest
                (stage.folder / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
            case "USER":
                stage.user = rest
            case "COPY":
                self._copy(stage, rest.split())
            case "RUN":
                subprocess.run(stage.argv([*stage.shell, rest]), check=True)
            case "ENTRYPOINT":
                stage.entrypoint = json.loads(rest)
            case "CMD":
                stage.command = json.loads(rest)
            case "HEALTHCHECK":
                stage.healthcheck = json.loads(rest.partition(" CMD ")[2])
            case "VOLUME" | "EXPOSE" | "STOPSIGNAL":
                pass  # of Docker alone
            case _:
                raise SystemExit(f"this script does not know the instruction {word}")

    def _copy(self, stage: Stage, words: list[str]) -> None:
        source = ROOT
        if words[0].startswith("--from="):
            source = self._stages[words.pop(0).removeprefix("--from=")].folder
        *names, target = words
        place = stage.folder / target.lstrip("/") if target.startswith("/") else (
            stage.folder / stage.workdir.lstrip("/") / target
        )  # fmt: skip
        for name in names:
            path = source / name.lstrip("/")
            if path.is_dir():
                shutil.copytree(path, place, symlinks=True, dirs_exist_ok=True)
            else:
                file = place / path.name if target.endswith("/") else place
                file.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, file)


def try_out(stage: Stage) -> None:
    """Start the image's command, ask it, stop it as Docker does."""
    started = time.monotonic()
    server = subprocess.Popen(stage.argv([*stage.entrypoint, *stage.command], stage.user))
    try:
        while subprocess.run(stage.argv(stage.healthcheck, stage.user), stderr=subprocess.DEVNULL).returncode:
            assert server.poll() is None and time.monotonic() - started < READY_WITHIN_S, "it did not become healthy"
            time.sleep(1)
        print(f"healthy after {time.monotonic() - started:.1f} s", flush=True)
        url = f"http://127.0.0.1:{stage.env['RAMET_PORT']}/generate"
        request = urllib.request.Request(url, json.dumps(ASKED).encode(), {"Content-Type": "application/json"})
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        print("generated:", json.load(opener.open(request, timeout=60))["text"], flush=True)
    finally:
        server.send_signal(signal.SIGTERM)
        code = server.wait(120)
    print(f"ended with {code} after SIGTERM")
    assert code == 0


def size_mb(folder: Path) -> int:
    return int(subprocess.run(["du", "-sm", str(folder)], capture_output=True, text=True, check=True).stdout.split()[0])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("base", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--target", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--build-arg", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    if os.geteuid():
        raise SystemExit("only root may chroot")
    options.work.mkdir(parents=True)
    given = dict(pair.split("=", 1) for pair in options.build_arg)
    stage = Build(options.base.resolve(), options.work.resolve(), given).build(options.target)
    print(f"{size_mb(stage.folder)} MB, of which the base is {size_mb(options.base)} MB")
    if options.target == "cpu":
        try_out(stage)
    return 0


if __name__ == "__main__":
    sys.exit(main())
