"""The libraries of the page: compares them with the registry's (`make ui-vendor`). `--write` fetches them anew.

`manifest.json` names each package, its version and the tarball's integrity; of each file it says where it lies in the
tarball, its hash, and which texts are replaced in it (modules that name another one by its package's name are told its
file, for there is no bundler). Needs npm.
"""

import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from base64 import b64encode
from pathlib import Path
from typing import Any

VENDOR = Path(__file__).resolve().parent.parent / "runtime" / "server" / "ui" / "assets" / "vendor"
MANIFEST = VENDOR / "manifest.json"


def main() -> None:
    write = sys.argv[1:] == ["--write"]
    packages = json.loads(MANIFEST.read_text())
    wrong = [line for package in packages for line in (_write if write else _check)(package)]
    if write:
        MANIFEST.write_text(json.dumps(packages, indent=2) + "\n")
    for line in wrong:
        print(line, file=sys.stderr)
    if wrong:
        raise SystemExit(1)
    print(f"{'wrote' if write else 'checked'} {sum(len(each['files']) for each in packages)} files of "
          f"{len(packages)} packages")  # fmt: skip


def _check(package: dict[str, Any]) -> list[str]:
    """What differs from the registry, a line each."""
    name, (integrity, contents) = _name(package), _fetch(package)
    if integrity != package["integrity"]:
        return [f"{name}: its tarball's integrity is {integrity}, the manifest says {package['integrity']}"]
    wrong = []
    for each in package["files"]:
        made, kept = altered(contents[each["from"]], each["replaced"]), (VENDOR / each["file"]).read_bytes()
        if made != kept:
            wrong.append(f"{name}: {each['file']} is not {each['from']} of the tarball")
        if each["sha256"] != hashlib.sha256(kept).hexdigest():
            wrong.append(f"{name}: {each['file']} has another hash than the manifest says")
    return wrong


def _write(package: dict[str, Any]) -> list[str]:
    package["integrity"], contents = _fetch(package)
    for each in package["files"]:
        made = altered(contents[each["from"]], each["replaced"])
        (VENDOR / each["file"]).write_bytes(made)
        each["sha256"] = hashlib.sha256(made).hexdigest()
    return []


def altered(content: bytes, replaced: dict[str, str]) -> bytes:
    """With each text replaced, which must be there."""
    for old, new in replaced.items():
        if old.encode() not in content:
            raise SystemExit(f"{old} is not in the file in which it is to be replaced")
        content = content.replace(old.encode(), new.encode())
    return content


def _fetch(package: dict[str, Any]) -> tuple[str, dict[str, bytes]]:
    """Its tarball's integrity, which is the one that the registry names, and its files."""
    name = _name(package)
    promised = _npm("view", name, "dist.integrity")
    with tempfile.TemporaryDirectory() as folder:
        tarball = Path(folder, _npm("pack", name, "--silent", "--pack-destination", folder))
        integrity = "sha512-" + b64encode(hashlib.sha512(tarball.read_bytes()).digest()).decode()
        if integrity != promised:
            raise SystemExit(f"{name}: the tarball's integrity is {integrity}, the registry says {promised}")
        with tarfile.open(tarball) as archive:
            found = {each.name.removeprefix("package/"): archive.extractfile(each) for each in archive.getmembers()}
            return integrity, {path: file.read() for path, file in found.items() if file is not None}


def _name(package: dict[str, Any]) -> str:
    return f"{package['name']}@{package['version']}"


def _npm(*words: str) -> str:
    try:
        done = subprocess.run(["npm", *words], capture_output=True, text=True, check=True)
    except FileNotFoundError:
        raise SystemExit("make ui-vendor needs npm: install Node.js") from None
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"npm {' '.join(words)} failed:\n{error.stderr}") from None
    return done.stdout.strip()


if __name__ == "__main__":
    main()
