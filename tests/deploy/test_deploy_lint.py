"""The files of deploy/ as their programs read them: hadolint, Compose, Helm, Kubernetes' schemas, systemd, nginx.

`make test-deploy` brings the packages; promtool, nginx and systemd-analyze are programs of the system.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import compose
import kubernetes_validate
import pytest
import yaml
from helm_python import HelmError
from helm_python.chart import Chart, lint

from ramet.runtime.access.key_file import check_keys, read_key_file
from ramet.runtime.access.origins import read_hosts
from ramet.runtime.flags import parse
from ramet.runtime.processes.supervise import GRACE_S

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
CHART = DEPLOY / "helm" / "ramet"
HADOLINT = str(Path(sys.executable).parent / "hadolint")
DOCKER_COMPOSE = str(Path(compose.__file__).parent / "docker-compose")  # the command of that name hides its exit code
OF_OPERATORS = ("ServiceMonitor", "ScaledObject")  # kinds that Kubernetes itself does not know
VARIANTS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "keys": {"keys": {"apiKey": "k", "adminApiKey": "a"}, "model": {"path": "/models/m", "name": "m"}},
    "own secret": {"keys": {"existingSecret": "mine"}, "replicas": 3, "disruptionBudget": {"enabled": True}},
    "clients": {"keys": {"adminApiKey": "a", "clients": {"search": "12345678"}}, "serviceMonitor": {"enabled": True}},
    "clients in a secret": {"keys": {"existingSecret": "mine", "clientsInSecret": True, "cacheIsolation": "none"}},
    "tls": {"tls": {"secretName": "t"}, "serviceMonitor": {"enabled": True}, "ingress": {"enabled": True}},
    "ingress": {"ingress": {"enabled": True, "className": "nginx", "tlsSecretName": "t"}},
    "claims": {"models": {"create": True, "storageClass": "fast"}, "cache": {"existingClaim": "c"}, "gpus": 2},
    "hpa": {"autoscaling": {"hpa": {"enabled": True}}, "cache": {"create": True}},
    "keda": {"autoscaling": {"keda": {"enabled": True}, "min": 0}, "shutdown": {"drainS": 300}},
    "pods": {
        "args": ["--page-size=16", "--log-requests"],
        "env": [{"name": "HTTPS_PROXY", "value": "http://proxy.example"}],
        "podAnnotations": {"a": "b"},
        "nodeSelector": {"kubernetes.io/arch": "amd64"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "image": {"pullSecrets": [{"name": "p"}]},
        "priorityClassName": "high",
    },
}


def rendered(values: dict[str, Any]) -> list[dict[str, Any]]:
    """What Helm gives to Kubernetes."""
    files = Chart.load(CHART).render(values, name="llm", namespace="serving")
    texts = [text for name, text in files.items() if not name.endswith("NOTES.txt")]
    return [each for text in texts for each in yaml.safe_load_all(text) if each]


def pod(values: dict[str, Any]) -> dict[str, Any]:
    (deployment,) = [each for each in rendered(values) if each["kind"] == "Deployment"]
    return dict(deployment["spec"]["template"]["spec"])


def checked(*argv: str, **env: str) -> None:
    done = subprocess.run(argv, env={**os.environ, **env}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    checked(HADOLINT, str(DEPLOY / "Dockerfile"))


@pytest.mark.parametrize("added", [[], ["compose.cuda.yaml"], ["compose.keys.yaml"]])
def test_compose_reads_its_files(added: list[str]) -> None:
    flags = [word for name in ["compose.yaml", *added] for word in ("-f", str(DEPLOY / name))]
    checked(DOCKER_COMPOSE, *flags, "config", "--quiet", GRAFANA_PASSWORD="x", RAMET_ADMIN_API_KEY="a", KEYS="/keys")


def test_compose_asks_for_a_password() -> None:
    argv = [DOCKER_COMPOSE, "-f", str(DEPLOY / "compose.yaml"), "config", "--quiet"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "GRAFANA_PASSWORD" in done.stderr


def test_compose_gives_the_server_no_api_key_beside_a_file_of_keys() -> None:
    files = [word for name in ("compose.yaml", "compose.keys.yaml") for word in ("-f", str(DEPLOY / name))]
    given = {"GRAFANA_PASSWORD": "x", "RAMET_ADMIN_API_KEY": "a", "KEYS": "/keys", "RAMET_API_KEY": "k"}
    argv = [DOCKER_COMPOSE, *files, "config", "--format", "json"]
    done = subprocess.run(argv, env={**os.environ, **given}, capture_output=True, text=True, check=True)
    read = json.loads(done.stdout)
    env = {name: str(value) for name, value in read["services"]["ramet"]["environment"].items()}
    args = parse([], env)
    assert not args.serve.api_key and args.serve.admin_api_key == "a" and args.serve.api_key_file == "/keys/keys"
    scrapes = yaml.safe_load((DEPLOY / "prometheus" / "prometheus-keys.yml").read_text())["scrape_configs"]
    (secret,) = read["services"]["prometheus"]["secrets"]
    assert scrapes[0]["authorization"]["credentials_file"] == secret["target"]


def test_promtool_reads_the_scrapes() -> None:
    checked("promtool", "check", "config", str(DEPLOY / "prometheus" / "prometheus.yml"))
    # the file with the key is in the container alone
    checked("promtool", "check", "config", "--syntax-only", str(DEPLOY / "prometheus" / "prometheus-keys.yml"))


def test_systemd_reads_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "ramet.service"
    unit.write_text((DEPLOY / "systemd" / "ramet.service").read_text().replace("/opt/ramet/bin/ramet", "/usr/bin/env"))
    checked("systemd-analyze", "verify", "--man=no", str(unit))


def test_nginx_reads_the_server_block(tmp_path: Path) -> None:
    made = ["-newkey", "rsa:2048", "-nodes", "-subj", "/CN=llm.example", "-days", "1"]
    checked("openssl", "req", "-x509", *made, "-keyout", f"{tmp_path}/privkey.pem", "-out", f"{tmp_path}/fullchain.pem")
    block = tmp_path / "ramet.conf"
    text = (DEPLOY / "nginx" / "ramet.conf").read_text().replace("/etc/nginx/tls", str(tmp_path))
    block.write_text(text.replace("listen 443 ", "listen 8443 "))  # nginx -t binds it, as 443 only root may
    whole = tmp_path / "nginx.conf"
    http = f"http {{ access_log off; include {block}; }}"
    whole.write_text(f"pid {tmp_path}/pid; error_log stderr; events {{}}\n{http}\n")
    checked("nginx", "-t", "-c", str(whole))


def test_helm_finds_nothing_but_the_missing_icon() -> None:
    report = lint(CHART, strict=True)
    assert not report["errors"] and [each["error"] for each in report["messages"]] == ["icon is recommended"]


@pytest.mark.parametrize("name", VARIANTS)
def test_kubernetes_knows_what_the_chart_makes(name: str) -> None:
    made = rendered(VARIANTS[name])
    assert {"Deployment", "Service", "ServiceAccount"} <= {each["kind"] for each in made}
    for each in made:
        if each["kind"] not in OF_OPERATORS:
            kubernetes_validate.validate(each, "1.34", strict=True)


@pytest.mark.parametrize("name", VARIANTS)
def test_the_server_takes_the_arguments_of_the_chart(name: str) -> None:
    command, *argv = pod(VARIANTS[name])["containers"][0]["args"]
    serve = parse(argv, {}).serve
    assert command == "serve" and serve.port == 30000
    assert read_hosts(serve.allowed_hosts).allow("llm-ramet.serving.svc.cluster.local")


@pytest.mark.parametrize("name", VARIANTS)
def test_a_pod_is_killed_later_than_its_server_ends(name: str) -> None:
    spec = pod(VARIANTS[name])
    (container,) = spec["containers"]
    sleep_s = float(container["lifecycle"]["preStop"]["exec"]["command"][1])
    drain_s = parse(container["args"][1:], {}).serve.drain_timeout_s
    assert spec["terminationGracePeriodSeconds"] > sleep_s + drain_s + GRACE_S


def test_a_pod_may_write_to_its_cache_and_to_tmp_alone() -> None:
    (container,) = pod({"models": {"create": True}, "tls": {"secretName": "t"}})["containers"]
    written = [each["mountPath"] for each in container["volumeMounts"] if not each.get("readOnly")]
    assert container["securityContext"]["readOnlyRootFilesystem"] and written == ["/cache", "/tmp"]


def test_probes_give_a_busy_server_time() -> None:
    (container,) = pod({})["containers"]
    probes = [container[f"{name}Probe"] for name in ("startup", "liveness", "readiness")]
    assert all(probe["timeoutSeconds"] >= 15 for probe in probes)
    assert probes[0]["periodSeconds"] * probes[0]["failureThreshold"] >= 900


def test_a_changed_key_makes_new_pods() -> None:
    def annotations(key: str) -> Any:
        (made,) = [each for each in rendered({"keys": {"apiKey": key}}) if each["kind"] == "Deployment"]
        return made["spec"]["template"]["metadata"]["annotations"]

    assert annotations("a") != annotations("b") and annotations("a") == annotations("a")


def test_clients_keys_are_a_file_that_the_server_reads(tmp_path: Path) -> None:
    keys = {"adminApiKey": "secret", "clients": {"search": "k8Zr2v0mTq1xJw7e", "chatbot": "Vb3nYc5uHs9dLf2a"}}
    made = {each["kind"]: each for each in rendered({"keys": keys, "serviceMonitor": {"enabled": True}})}
    spec = made["Deployment"]["spec"]["template"]["spec"]
    (container,), secret = spec["containers"], made["Secret"]
    file = tmp_path / "keys"
    file.write_text(secret["stringData"]["api-keys"])
    file.chmod(0o440)
    check_keys(str(file), "", "secret")
    assert {(each.name, each.key) for each in read_key_file(str(file), "secret")} == set(keys["clients"].items())
    serve = parse(container["args"][1:], {}).serve
    (volume,) = [each for each in spec["volumes"] if each["name"] == "keys"]
    (mount,) = [each for each in container["volumeMounts"] if each["name"] == "keys"]
    assert f"{mount['mountPath']}/{volume['secret']['items'][0]['path']}" == serve.api_key_file
    assert volume["secret"]["secretName"] == secret["metadata"]["name"] and not volume["secret"]["defaultMode"] & 0o007
    assert [each["name"] for each in container["env"]] == ["RAMET_ADMIN_API_KEY"]  # never RAMET_API_KEY beside a file
    scrape = made["ServiceMonitor"]["spec"]["endpoints"][0]["authorization"]["credentials"]
    assert scrape == {"name": secret["metadata"]["name"], "key": "admin-api-key"}


def test_a_changed_key_of_a_client_makes_no_new_pods() -> None:
    def deployment(key: str) -> Any:
        (made,) = [
            each
            for each in rendered({"keys": {"adminApiKey": "a", "clients": {"search": key}}})
            if each["kind"] == "Deployment"
        ]
        return made

    assert deployment("12345678") == deployment("87654321")


@pytest.mark.parametrize("isolation", ["auto", "key", "none"])
def test_the_chart_says_what_is_cached_for_a_key(isolation: str) -> None:
    keys = {"existingSecret": "mine", "clientsInSecret": True, "cacheIsolation": isolation}
    (container,) = pod({"keys": keys})["containers"]
    assert parse(container["args"][1:], {}).cache.cache_isolation == isolation


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"clients": {"search": "12345678"}}, "keys.adminApiKey"),
        ({"clients": {"search": "12345678"}, "apiKey": "k", "adminApiKey": "a"}, "keys.apiKey"),
        ({"clients": {"search": "12345678"}, "existingSecret": "mine"}, "keys.clientsInSecret"),
        ({"clientsInSecret": True}, "keys.existingSecret"),
        ({"cacheIsolation": "key", "apiKey": "k"}, "keys.clients"),
    ],
)
def test_keys_that_the_server_would_refuse_are_refused(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(HelmError, match=words):
        rendered({"keys": keys})


def test_two_autoscalers_are_refused() -> None:
    both = {"autoscaling": {"hpa": {"enabled": True}, "keda": {"enabled": True}}}
    with pytest.raises(HelmError, match="not both"):
        rendered(both)


@pytest.mark.parametrize(
    "values",
    [{"replica": 2}, {"tls": {"secret": "t"}}, {"shutdown": {"drainS": -1}}, {"keys": {"cacheIsolation": "keys"}},
     {"keys": {"clients": {"admin": "12345678"}}}, {"keys": {"clients": {"search": "short"}}}],
)  # fmt: skip
def test_a_misspelt_value_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(HelmError):
        Chart.load(CHART).validate_schema(Chart.load(CHART).merge_values(values))
