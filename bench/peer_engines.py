"""The engines of `ramet bench peers`, each with the settings that its documentation recommends for a CPU."""

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CORES = ",".join(map(str, sorted(os.sched_getaffinity(0))))
LIBRARIES = Path("/usr/lib/x86_64-linux-gnu")
WEIGHTS = ("two-byte", "int8", "int4")


@dataclass(frozen=True, slots=True)
class Peer:
    name: str
    worker: str  # its program in peer_workers/ and its environment in .peers/
    weights: str  # bytes of a weight in memory, one of WEIGHTS
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    prepares: bool = False  # converts the checkpoint before its first start
    preloads: tuple[str, ...] = ()  # libraries that its documentation has preloaded, where they are installed
    extra: str = ""  # folder of its environment with packages that no other entry of this environment may find

    @property
    def is_ramet(self) -> bool:
        return self.worker.startswith("ramet")

    @property
    def has_client(self) -> bool:
        """Whether the worker only starts the engine and sends it requests."""
        return self.worker == "ramet_http"

    @property
    def python(self) -> Path:
        """The interpreter of its environment."""
        return Path(sys.executable) if self.is_ramet else self.home / "bin" / "python"

    @property
    def home(self) -> Path:
        return ROOT / ".peers" / self.worker

    @property
    def is_installed(self) -> bool:
        return self.python.is_file() and (not self.extra or (self.home / self.extra).is_dir())

    def variables(self) -> dict[str, str]:
        """What its processes find in their environment beside what is there."""
        paths = [folder / name for name in self.preloads for folder in (self.home / "lib", LIBRARIES)]
        found = ":".join(str(path) for path in paths if path.is_file())
        return {
            **self.environment,
            **({"PYTHONPATH": str(ROOT)} if self.is_ramet else {}),
            **({"PYTHONPATH": str(self.home / self.extra)} if self.extra else {}),
            **({"LD_PRELOAD": found} if found else {}),
        }


def _vllm(name: str, *arguments: str, extra: str = "") -> Peer:
    settings = {"VLLM_CPU_KVCACHE_SPACE": "3", "VLLM_CPU_OMP_THREADS_BIND": CORES, "VLLM_LOGGING_LEVEL": "ERROR"}
    preloads = "libtcmalloc_minimal.so.4", "libiomp5.so"
    return Peer(name, "vllm", "two-byte", arguments, settings, preloads=preloads, extra=extra)


def _converted(name: str, worker: str, weights: str, *arguments: str) -> Peer:
    return Peer(name, worker, weights, arguments, prepares=True)


PEERS = (
    Peer("transformers", "transformers", "two-byte"),
    _vllm("vLLM"),
    _vllm("vLLM, SGLang's kernels", "--switch", "VLLM_CPU_SGL_KERNEL"),
    _vllm("vLLM, AMD's kernels", extra="zentorch"),
    _converted("OpenVINO fp16", "openvino", "two-byte"),
    _converted("OpenVINO int8", "openvino", "int8", "--weights", "int8"),
    _converted("OpenVINO int4", "openvino", "int4", "--weights", "int4"),
    _converted("llama.cpp bf16", "llama_cpp", "two-byte"),
    _converted("llama.cpp q8_0", "llama_cpp", "int8", "--weights", "q8_0"),
    _converted("llama.cpp q4_0", "llama_cpp", "int4", "--weights", "q4_0"),
    _converted("CTranslate2 float32", "ctranslate2", "two-byte"),  # it takes no two-byte weights on a CPU
    _converted("CTranslate2 int8", "ctranslate2", "int8", "--compute", "int8_float32"),
)
NAMES = tuple(peer.name for peer in PEERS)


def ramet(weights: str) -> Peer:
    """In process."""
    return Peer("ramet", "ramet", weights, _settings(weights))


def ramet_http(weights: str, path: str) -> Peer:
    """`ramet serve` and a streaming client; `path` is generate or completions."""
    name = {"generate": "ramet /generate", "completions": "ramet /v1/completions"}[path]
    return Peer(name, "ramet_http", weights, (*_settings(weights), "--path", path))


def _settings(weights: str) -> tuple[str, ...]:
    """Beside weights of 8 bits keys and values of 8 bits, as OpenVINO keeps them beside weights of any kind."""
    kv_cache = ("--kv-cache-dtype", "int8") if weights == "int8" else ()
    return () if weights == "two-byte" else ("--quantization", weights, *kv_cache)
