"""`ramet doctor`: what this machine has, what ramet will choose on it, and what is missing with the command that helps.

Decides what serving needs and reports it as lines of three kinds: ok, note (it works, less well) and missing (it does
not). Exit code 1 if anything is missing. Looks at what `ramet serve` would take: options from RAMET_ variables, the
compiler that kernels/cpu/build.py finds. Reads installed versions from metadata and loads no torch, unless --deep asks
for what only torch knows.
"""

import argparse
import errno
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path

from ramet.kernels.cpu import build, measured
from ramet.kernels.cpu.classes import features_here
from ramet.kernels.cpu.measured import Measured
from ramet.runtime.commands.findings import Finding
from ramet.runtime.config import Args, resolve
from ramet.runtime.errors import ConfigError
from ramet.runtime.flags import parse
from ramet.runtime.machine import MIN_CAPABILITY, available_memory, usable_cores
from ramet.runtime.options.placement import num_cores, placement_of
from ramet.version import __version__

NEEDED = (  # what a serving process imports
    "torch", "tokenizers", "numpy", "aiohttp", "msgspec", "orjson", "pyzmq", "prometheus-client",
    "jinja2", "cachetools", "llguidance",
)  # fmt: skip
USEFUL = {  # what is lost without it
    "uvloop": "asyncio's own event loop serves, slower",
    "pyyaml": "no --config",
    "safetensors": "no `ramet convert`",
    "tqdm": "no `ramet bench serving`",
    "transformers": "nothing to compare with in `ramet bench offline` and the differential tests",
}
INSTALL = 'pip install "ramet[serve]"'
FAST_FLAGS = (
    "avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8", "asimd", "asimddp", "bf16", "sve",
)  # fmt: skip
GIB = 2**30
MIN_MEMORY = 1 * GIB  # the bundled model and its processes
WITHOUT_KERNELS = "the CPU runs plain torch instead of our kernels"
USE_GCC = "apt install g++, or name one in RAMET_CXX"
BUNDLED = ("bundled model", "reinstall ramet")
KERNELS = "cpu kernels"
COMPILE_S = "10 to 60 s"
OF_BYTES = "byte products, inputs rounded to 8 bits"
LAYERS = {"int8": OF_BYTES, "int8wo": "float32 products, inputs as they are"}  # of --quantization; others: OF_BYTES


def main(argv: Sequence[str], env: Mapping[str, str]) -> int:
    parser = make_parser()
    options, rest = parser.parse_known_args(list(argv))
    if options.model_path is None:
        if rest or options.contexts:
            parser.error(f"{rest[0] if rest else '--contexts'} needs --model-path")
        findings, works = examine(env, options.deep, options.measure), "`ramet serve` will work"
    else:
        from ramet.runtime.commands.model_report import examine_model  # loads torch

        args = parse(["--model-path", options.model_path, *rest], env, "ramet doctor")
        findings, works = examine_model(args, options.contexts), "`ramet serve` will serve it"
    missing = []
    for finding in findings:
        print(finding, flush=True)
        missing += [finding.what] if finding.kind == "missing" else []
    print(f"\nserving cannot work: {', '.join(missing)}" if missing else f"\nready: {works}")
    return 1 if missing else 0


def make_parser() -> argparse.ArgumentParser:
    about = "What this machine has and what is missing; with --model-path what a model is and needs, before it is read."
    parser = argparse.ArgumentParser(prog="ramet doctor", description=about, allow_abbrev=False)
    parser.add_argument("--deep", action="store_true", help="also load torch and run a matrix product (seconds)")
    parser.add_argument("--measure", action="store_true", help="measure the CPU again, beside nothing else (seconds)")
    parser.add_argument(
        "--model-path", metavar="FOLDER", help="look at this model instead; takes options of serve, too"
    )
    contexts = "with --model-path: lengths at which its memory is shown, as 4096,32768"
    parser.add_argument("--contexts", metavar="N,N", type=_lengths, default=(), help=contexts)
    return parser


def _lengths(text: str) -> tuple[int, ...]:
    lengths = tuple(map(int, text.split(",")))
    if min(lengths) < 1:
        raise ValueError(text)
    return lengths


def examine(env: Mapping[str, str], deep: bool, again: bool = False) -> Iterator[Finding]:
    yield Finding("ok", "ramet", f"{__version__}, python {platform.python_version()}, {platform.platform()}")
    yield from packages(metadata.version)
    yield cpu(_cpu_flags(), usable_cores())
    yield memory(available_memory())
    gpu = nvidia()
    yield gpu
    of_kernels = list(kernels())
    yield from of_kernels
    has_kernels = of_kernels[-1].what == KERNELS and of_kernels[-1].kind != "missing"
    try:
        args = parse([], env)
    except ConfigError as error:
        yield Finding("missing", "options", str(error), "set the variable right, or unset it")
        args = Args()
    yield placement(args)
    yield model(args)
    yield port(args.serve.host, args.serve.port)
    if deep:
        yield _torch()
    threads = _threads(args)
    yield speed(threads, has_kernels, again)
    lacking = lacks_of_cuda(gpu, _version("torch"), _version("triton"))
    if has_kernels and _device(args, lacking) == "cpu":
        yield from quantised(args)
    yield choice(args, lacking, gpu.kind == "ok")


def packages(version: Callable[[str], str]) -> Iterator[Finding]:
    """`version` raises PackageNotFoundError for what is not installed."""
    found: list[str] = []
    for name in NEEDED:
        try:
            found.append(f"{name} {version(name)}")
        except metadata.PackageNotFoundError:
            yield Finding("missing", name, "not installed", INSTALL)
    for name, lost in USEFUL.items():
        try:
            found.append(f"{name} {version(name)}")
        except metadata.PackageNotFoundError:
            yield Finding("note", name, f"not installed: {lost}", f"pip install {name}")
    for i in range(0, len(found), 5):
        yield Finding("ok", "" if i else "packages", ", ".join(found[i : i + 5]))


def cpu(flags: frozenset[str], cores: int) -> Finding:
    fast = [flag for flag in FAST_FLAGS if flag in flags]
    usable = f"{cores} core{'s' * (cores > 1)} usable"
    return Finding("ok", "cpu", f"{usable}, {' '.join(fast) or 'no vector flags known'}")


def memory(available: int) -> Finding:
    found = f"{available / GIB:.1f} GiB available"
    if available < MIN_MEMORY:
        return Finding("missing", "memory", found, f"free at least {MIN_MEMORY / GIB:.0f} GiB")
    return Finding("ok", "memory", found)


def placement(args: Args) -> Finding:
    affinity = args.execute.cpu_affinity
    try:
        return Finding("ok", "placement", f"--cpu-affinity {affinity}: {placement_of(affinity)}")
    except ConfigError as error:
        return Finding("missing", "placement", str(error), "set RAMET_CPU_AFFINITY right, or unset it")


def nvidia() -> Finding:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return Finding("note", "gpu", "no NVIDIA driver: the model runs on the CPU")
    query = ["--query-gpu=name,memory.total,driver_version,compute_cap", "--format=csv,noheader"]
    done = subprocess.run([tool, *query], capture_output=True, text=True, timeout=30, check=False)
    if done.returncode != 0:
        return Finding(
            "note", "gpu", f"nvidia-smi fails: {done.stdout.strip() or done.stderr.strip()}", "check the driver"
        )
    return Finding("ok", "gpu", "; ".join(done.stdout.strip().splitlines()))


def kernels() -> Iterator[Finding]:
    """Those that came with the wheel or are compiled, for which nothing is tried, or the compiler that makes them."""
    try:
        built, flags, asked = build.built_library(), build.chosen_flags(), build.class_asked_for(features_here())
    except build.WrongKernels as error:
        yield Finding("missing", KERNELS, str(error), "unset RAMET_KERNELS")
        return
    if built is not None:
        yield Finding("ok", KERNELS, f"came built for CPUs with {built.stem}")
        return
    target = "this CPU" if asked is None else f"CPUs with {asked.name}"
    try:
        if build.compiled_libraries(build.cache_folder()):
            yield Finding("ok", KERNELS, f"already compiled for {target}")
            return
        when = Finding("ok", KERNELS, f"not compiled yet: the first start does it for {target}, in {COMPILE_S}")
    except build.NoCache as why:
        remedy = "name another folder in XDG_CACHE_HOME"
        when = Finding("note", KERNELS, f"compiled for {target} by every start, in {COMPILE_S}: {why}", remedy)
    found = compiler(flags)
    yield found
    if found.kind == "ok":
        yield when


def compiler(flags: Sequence[str] = build.FLAGS) -> Finding:
    """The first compiler that takes the kernels: not every one knows the vector built-ins they use."""
    refused = []
    for path in build.find_compilers():
        why = _refusal_of(path, flags)
        if why is None:
            return Finding("ok", "c++ compiler", f"{path}, takes the kernels")
        refused.append(why)
    if not refused:
        tried = ", ".join(build.compiler_names())
        return Finding("note", "c++ compiler", f"none of {tried}: {WITHOUT_KERNELS}", "apt install g++")
    return Finding("note", "c++ compiler", f"{'; '.join(refused)}; {WITHOUT_KERNELS}", USE_GCC)


def _refusal_of(path: Path, flags: Sequence[str]) -> str | None:
    sources = [str(build.FOLDER / name) for name in build.SOURCES]
    command = [str(path), *flags, *build.WARNINGS, "-fsyntax-only", *sources]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=build.TIMEOUT_S, check=False)
    except OSError as error:
        return f"{path} does not run: {error.strerror}"
    if done.returncode == 0:
        return None
    said = next((line for line in done.stderr.splitlines() if "error" in line), f"exit code {done.returncode}")
    return f"{path} refuses the kernels ({said})"


def model(args: Args) -> Finding:
    """The files that a start reads: of the bundled model, or of the folders that the options name."""
    asked = not args.is_bundled or args.model.tokenizer_path
    what, remedy = ("model", "correct RAMET_MODEL_PATH, RAMET_TOKENIZER_PATH") if asked else BUNDLED
    folder, needs_weights = args.model_folder, args.model.load_format != "dummy" and args.execute.runner == "model"
    if folder.is_file():
        try:
            folder = resolve(args).model_folder
        except ConfigError as error:
            return Finding("missing", what, str(error), remedy)
        return Finding("ok", what, f"{args.model_folder}, config and tokenizer in {folder}")
    lacking = [
        str(path) for path in (folder / "config.json", args.tokenizer_folder / "tokenizer.json") if not path.is_file()
    ]
    if needs_weights and not list(folder.glob("*.safetensors")):
        lacking.append(str(folder / "*.safetensors"))
    if lacking:
        return Finding("missing", what, f"there is no {', no '.join(lacking)}", remedy)
    return Finding("ok", what, str(folder))


def port(host: str, number: int) -> Finding:
    what = f"port {number}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return Finding("note", what, f"taken on {host}", "ramet serve --port 0 picks a free one")
        return Finding("missing", what, f"cannot listen on {host}: {error.strerror}", "choose another --host or --port")
    return Finding("ok", what, f"free on {host}" if number else f"a free one on {host}, chosen at the start")


def lacks_of_cuda(gpu: Finding, torch: str, triton: str) -> tuple[str, str]:
    """Why --device auto will not be cuda, and what to do; both empty where it will. A version is "" if there is none.

    As `choose_device`, by what the driver and the packages say of themselves: torch is not loaded here. A version like
    2.13.0+cpu is of a torch without CUDA.
    """
    if gpu.kind != "ok":
        return "no NVIDIA driver was seen here", "install it, or --device cpu"
    if not torch or "+cpu" in torch:
        return f"torch {torch} was built without CUDA", "pip uninstall torch, then make install"
    if not triton:
        return "the kernels of a GPU need the package triton", "pip install triton"
    capability = gpu.found.split(";")[0].rsplit(",", 1)[-1].strip()
    if not capability.replace(".", "", 1).isdigit() or float(capability) < MIN_CAPABILITY[0]:
        least = f"{MIN_CAPABILITY[0]}.{MIN_CAPABILITY[1]}"
        return f"its compute capability is {capability}, and auto takes {least} or more", "--device cuda tries it"
    return "", ""


def choice(args: Args, lacking: tuple[str, str], has_card: bool) -> Finding:
    """`lacking` as `lacks_of_cuda` has it. An option that ends the start is missing what it needs."""
    what, device = "ramet will choose", _device(args, lacking)
    attention: str = args.execute.attention_backend
    why, remedy = lacking
    if device == "cuda" and why and not why.startswith("its compute capability"):
        return Finding("missing", "--device cuda", why, remedy)
    if attention in ("triton", "flashinfer") and device == "cpu":
        return Finding("missing", f"--attention-backend {attention}", "needs --device cuda", "leave it out")
    if attention == "auto":
        on_gpu = "reference" if args.cache.kv_cache_dtype == "int8" else "triton"
        attention = on_gpu if device == "cuda" else "cpu"
    cache = "" if args.cache.kv_cache_dtype == "auto" else f" --kv-cache-dtype {args.cache.kv_cache_dtype}"
    found = f"--device {device} --attention-backend {attention}{cache}"
    if why and has_card and args.execute.device != "cpu":
        return Finding("note", what, f"{found}: {why}", remedy)
    return Finding("ok", what, found)


def quantised(args: Args) -> Iterator[Finding]:
    """How our kernels compute layers with such weights, and attention to keys and values of 8 bits."""
    asked: dict[str, str | None] = {"--quantization": args.model.quantization}
    if args.execute.attention_backend != "reference":  # plain torch reads float8, slowly
        asked["--kv-cache-dtype"] = args.cache.kv_cache_dtype
    for option in (name for name, value in asked.items() if value == "fp8"):
        yield Finding("missing", "float8", f"{option} is fp8, for which a CPU has no kernel", "use int8")
    if args.model.quantization not in (None, "fp8"):
        yield Finding("ok", f"{args.model.quantization} layers", LAYERS.get(args.model.quantization, OF_BYTES))
    if args.cache.kv_cache_dtype == "int8" and args.execute.attention_backend != "reference":
        yield Finding("ok", "int8 keys, values", "byte products for one or two queries of a head, floats for more")


def _device(args: Args, lacking: tuple[str, str]) -> str:
    asked = str(args.execute.device)
    return asked if asked != "auto" else "cpu" if any(lacking) else "cuda"


def _version(package: str) -> str:
    """Empty: it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def speed(threads: int, has_kernels: bool, again: bool = False) -> Finding:
    """What the first start on this machine measured, or what is measured now."""
    what, found = "cpu measured", None
    if has_kernels:
        found = _measure(threads) if again else measured.read(threads)
    if found is not None:
        return Finding("ok", what, str(found))
    if again or not has_kernels:
        return Finding("note", what, "nothing: only our kernels are measured")
    several = f"{threads} thread{'s' * (threads > 1)}"
    remedy = f"the first start with {threads} does it (small models take 1), or ramet doctor --measure"
    return Finding("note", what, f"not yet for {several}", remedy)


def _threads(args: Args) -> int:
    """As a start chooses them for a model that is not small."""
    try:
        cores = placement_of(args.execute.cpu_affinity).model
    except ConfigError:  # `placement` says so
        cores = None
    return args.execute.num_threads or num_cores(cores)


def _measure(threads: int) -> Measured | None:
    """None: what was to be compiled cannot be."""
    from ramet.runtime.engine.devices.cpu_kernels import compiled_library, measure  # loads torch

    library = compiled_library()
    return None if library is None else measure(library, threads)


def _torch() -> Finding:
    try:
        import torch
    except ImportError as error:
        return Finding("missing", "torch", f"does not load: {error}", INSTALL)
    ones = torch.ones(64, 64)
    if not bool(((ones @ ones) == 64).all()):
        return Finding("missing", "torch", "a 64 x 64 matrix product is wrong", INSTALL)
    cuda = torch.cuda.get_device_name() if torch.cuda.is_available() else "no CUDA"
    return Finding("ok", "torch", f"loads, multiplies, {torch.get_num_threads()} threads, {cuda}")


def _cpu_flags(path: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    lines = path.read_text().splitlines() if path.is_file() else []
    line = next((x for x in lines if x.lower().startswith(("flags", "features"))), ":")
    return frozenset(line.split(":", 1)[1].split())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
