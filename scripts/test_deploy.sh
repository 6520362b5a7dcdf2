#!/usr/bin/env bash
# The tests of `make test-deploy`, with the arguments that are given; PYTHON: one with the extra deploy.
# As root, programs of the system that are missing are installed by apt. Tests of one that is missing still are left out,
# and named at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PATH:/usr/sbin:/sbin # where Debian has nginx, and which no user has on the PATH
FILE=tests/deploy/test_deploy_lint.py
NEEDED=( # program, package, test
    "nginx nginx test_nginx_reads_the_server_block"
    "openssl openssl test_nginx_reads_the_server_block"
    "promtool prometheus test_promtool_reads_the_scrapes"
    "systemd-analyze systemd test_systemd_reads_the_unit"
)

installed() { # PACKAGE; sets why where it is not
    [ "$(id -u)" = 0 ] || { why="only root installs packages"; return 1; }
    command -v apt-get >/dev/null || { why="there is no apt-get to install it"; return 1; }
    apt-get install -y --no-install-recommends "$1" >&2 || { why="apt-get install $1 failed, see above"; return 1; }
}

left_out=()
options=()
for each in "${NEEDED[@]}"; do
    read -r program package test <<<"$each"
    command -v "$program" >/dev/null && continue
    why="the package $package does not have it"
    installed "$package" && command -v "$program" >/dev/null && continue
    left_out+=("$test needs $program, which is not on this machine: $why")
    options+=("--deselect=$FILE::$test")
done

code=0
"$PYTHON" -m pytest "$FILE" "${options[@]}" "$@" || code=$?
for each in "${left_out[@]}"; do echo "make test-deploy: NOT RUN: $each" >&2; done
exit $code
