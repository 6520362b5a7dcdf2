"""A real Prometheus that scrapes a server every second, in a folder of its own."""

import json
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import requests

CONFIG = """
global: {{scrape_interval: 500ms}}
scrape_configs: [{{job_name: ramet, static_configs: [{{targets: ["{target}"]}}]}}]
"""
WITHIN_S = 60.0


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


class Prometheus:
    """While the block lasts."""

    def __init__(self, folder: Path, target: str) -> None:
        (folder / "prometheus.yml").write_text(CONFIG.format(target=target))
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        command = [
            "prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
        ]  # fmt: skip
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def __enter__(self) -> "Prometheus":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(20)

    def wait_for(self, query: str) -> None:
        """Until it finds something."""
        deadline = time.monotonic() + WITHIN_S
        while time.monotonic() < deadline:
            assert self._process.poll() is None, "prometheus has ended"
            try:
                if self.query(query):
                    return
            except requests.ConnectionError:
                pass  # it has just begun
            time.sleep(0.2)
        raise AssertionError(f"{query} found nothing")

    def query(self, query: str) -> list[dict[str, Any]]:
        """The series of an instant query."""
        answer = requests.get(f"{self.url}/api/v1/query", params={"query": query}, timeout=20).json()
        assert answer["status"] == "success", f"{query}: {json.dumps(answer)}"
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found

    def values(self, label: str) -> list[str]:
        """Those of a label, as a dashboard's variable asks for them."""
        answer: dict[str, Any] = requests.get(f"{self.url}/api/v1/label/{label}/values", timeout=20).json()
        return list(answer["data"])

    def targets(self) -> list[dict[str, Any]]:
        answer: dict[str, Any] = requests.get(f"{self.url}/api/v1/targets", timeout=20).json()
        return list(answer["data"]["activeTargets"])
