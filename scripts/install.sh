#!/usr/bin/env bash
# Make $VENV and install ramet with everything that serving and testing need.
# Decides which build of torch: without an NVIDIA driver the CPU build, so that nobody downloads gigabytes of CUDA
# by accident. Says what it chose.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
VENV=${VENV:-.venv}

"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "ramet needs Python 3.11 or newer; $PYTHON is $("$PYTHON" --version 2>&1). Try: make PYTHON=python3.12" >&2
    exit 1
}
[ -x "$VENV/bin/python" ] || "$PYTHON" -m venv "$VENV" || {
    echo "no virtual environment could be made; on Debian and Ubuntu: apt install python3-venv" >&2
    exit 1
}
pip() { "$VENV/bin/python" -m pip --disable-pip-version-check "$@"; }

torch=$(sed -n 's/^torch==//p' constraints.txt)
if "$VENV/bin/python" -c 'import torch' 2>/dev/null; then
    echo "torch: keeping what is installed"
    if { [ -e /proc/driver/nvidia/version ] || command -v nvidia-smi >/dev/null 2>&1; } &&
        ! "$VENV/bin/python" -c 'import sys, torch; sys.exit(torch.version.cuda is None)'; then
        echo "torch: that is a build for CPUs, and there is an NVIDIA driver. For a GPU: $VENV/bin/pip uninstall torch," \
            "then run this again"
    fi
elif [ "$(uname -s)" != Linux ]; then
    echo "torch: $torch, the build for this system"
    pip install -q "torch==$torch"
elif [ -e /proc/driver/nvidia/version ] || command -v nvidia-smi >/dev/null 2>&1; then
    echo "torch: $torch with CUDA, since there is an NVIDIA driver"
    pip install -q "torch==$torch"
elif pip install -q --no-deps "torch==$torch+cpu" 2>/dev/null; then
    echo "torch: $torch for CPU, from a local wheel (there is no NVIDIA driver)"
else
    echo "torch: $torch for CPU, from PyTorch's index of CPU builds (there is no NVIDIA driver)"
    pip install -q --no-deps --index-url https://download.pytorch.org/whl/cpu "torch==$torch+cpu" || {
        echo "no CPU build of torch $torch could be had. Install one into $VENV yourself and run this again." >&2
        exit 1
    }
fi
echo "installing ramet and what it needs (about a minute the first time)"
pins=$(mktemp)
trap 'rm -f "$pins"' EXIT
cp constraints.txt "$pins"
if "$VENV/bin/python" -c 'import sys, torch; sys.exit(torch.version.cuda is None)' 2>/dev/null; then
    sed -i.bak '/^triton==/d' "$pins" # torch with CUDA asks for a triton of its own
fi
# compat: the clone stands on the path. The default's finder would come behind a folder named ramet beside a script, which
# the clone itself is for scripts in the folder that it lies in.
pip install -q -c "$pins" -e ".[serve,dev]" --config-settings editable_mode=compat
