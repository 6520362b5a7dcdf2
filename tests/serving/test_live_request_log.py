"""The log of requests on a real server: what is said until the end is in the file, and the levels can be changed."""

import json
from pathlib import Path

import requests
from live import Live


def test_every_request_until_the_end_is_in_the_file_and_levels_change(tmp_path: Path) -> None:
    options = {"log_requests": True, "log_requests_format": "json", "log_requests_level": 2}
    with Live(log_requests_target=tmp_path / "logs", max_total_tokens=4096, admin_api_key="admin", **options) as server:
        params = {"temperature": 0, "max_new_tokens": 4}
        replies = [server.generate(text=f"number {i}", rid=f"r{i}", sampling_params=params).json() for i in range(20)]
        url, admin = server.url + "/configure_logging", {"Authorization": "Bearer admin"}
        assert requests.post(url, json={"log_level": "debug"}, timeout=10).status_code == 401
        body = {"log_level": "warning", "log_requests_level": 0}
        assert requests.post(url, json=body, headers=admin, timeout=20).status_code == 200
        num_lines = len(server.lines)
        server.generate(text="unseen", rid="last", sampling_params=params)
        assert not [line for line in list(server.lines)[num_lines:] if " INFO " in line]
        assert server.stop() == 0
    lines = [json.loads(line) for line in (tmp_path / "logs" / "requests.log").read_text().splitlines()]
    finished = {line["rid"]: line for line in lines if line["event"] == "request.finished"}
    assert len(lines) == 42 and len(finished) == 21
    for i, reply in enumerate(replies):
        assert finished[f"r{i}"]["obj"]["text"] == f"number {i}" and finished[f"r{i}"]["out"]["text"] == reply["text"]
    assert finished["last"]["obj"] == {} and "text" not in finished["last"]["out"]
    assert (tmp_path / "logs").stat().st_mode & 0o777 == 0o700
