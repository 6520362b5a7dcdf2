#!/usr/bin/env bash
# Install the wheel of `make build` as people do, by pip, uv and pipx, into folders of its own; start it, get a token.
# Each start finds an empty cache, and must not compile: kernels are in the wheel. Prints sizes and times of starts.
# PYTHON: a Python with venv. TORCH: further arguments of pip and uv, by which torch is the build for CPUs.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
wheel=$(ls -t dist/ramet-*.whl | head -1)
[ -n "$wheel" ] || { echo "no wheel in dist/: make build" >&2; exit 1; }
wheel=$root/$wheel
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" # not in the checkout: what is imported is the wheel's
unset PYTHONPATH
export XDG_CACHE_HOME=$work/cache UV_CACHE_DIR=$work/uv PIPX_HOME=$work/pipx PIPX_BIN_DIR=$work/bin
pins=$work/pins.txt
torch=$(sed -n 's/^torch==//p' "$root/constraints.txt")
sed "s/^torch==.*/torch==$torch+cpu/" "$root/constraints.txt" >"$pins"
read -ra more <<<"${TORCH:---extra-index-url https://download.pytorch.org/whl/cpu}"

token() { # NAME COMMAND...: start a server with the command, and ask it
    local name=$1 port began
    shift
    rm -rf "$work/cache"
    began=$(date +%s.%N)
    "$@" serve --port 0 --log-level warning >"$work/out" 2>"$work/err" &
    local pid=$!
    until port=$(sed -n 's/.*at http:.*:\([0-9]*\) (ready in .*/\1/p' "$work/out") && [ -n "$port" ]; do
        kill -0 $pid 2>/dev/null || { cat "$work/err" >&2; exit 1; }
        sleep 0.1
    done
    "$python" - "$name" "$port" "$began" <<'PY'
import json, sys, time, urllib.request
name, port, began = sys.argv[1:]
asked = {"text": "The capital of France is", "sampling_params": {"temperature": 0, "max_new_tokens": 4}}
request = urllib.request.Request(f"http://127.0.0.1:{port}/generate", json.dumps(asked).encode(), {"Content-Type": "application/json"})
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
text = json.load(opener.open(request, timeout=60))["text"]
assert text.strip().startswith("Paris"), text
page = opener.open(f"http://127.0.0.1:{port}/ui", timeout=10).read()
assert b"<html" in page, page[:100]
print(f"{name}: a token {time.time() - float(began):.1f} s after the command", flush=True)
PY
    kill $pid
    wait $pid || { echo "$name: it ended with $?" >&2; cat "$work/err" >&2; exit 1; }
    if grep -q compiling "$work/err"; then
        echo "$name: kernels were compiled, but the wheel has some" >&2
        exit 1
    fi
}

"${PYTHON:-python3}" -m venv "$work/tools"
python=$work/tools/bin/python
"$python" -m pip --disable-pip-version-check install -q -c "$pins" uv pipx
echo "wheel: $(du -k "$wheel" | cut -f1) KB, kernels for: $(unzip -l "$wheel" | sed -n 's|.*/built/\(.*\)\.so$|\1|p' | tr '\n' ' ')"

"$python" -m venv "$work/venv"
"$work/venv/bin/python" -m pip --disable-pip-version-check install -q -c "$pins" "${more[@]}" "$wheel[serve]"
echo "pip: an environment of $(du -sm "$work/venv" | cut -f1) MB"
token pip "$work/venv/bin/ramet"
"$work/venv/bin/ramet" completion bash | grep -q _ramet

export UV_COMPILE_BYTECODE=1 UV_CONSTRAINT=$pins UV_INDEX_STRATEGY=unsafe-best-match
uvx=("$work/tools/bin/uvx" --python "$python" "${more[@]}" --from "ramet[serve] @ file://$wheel" ramet)
"${uvx[@]}" version # installs
token uvx "${uvx[@]}"

"$work/tools/bin/pipx" install -q --python "$python" --pip-args "-c $pins ${more[*]}" "ramet[serve] @ file://$wheel" >/dev/null
token pipx "$work/bin/ramet"
