#!/bin/sh
# Resolve requirements.lock from pyproject.toml: runtime, extras and the dev group, for every platform and Python.
#
# The lock holds versions and hashes but no address, so that it works with any index. Pins that still fit are kept;
# UPGRADE=1 takes the newest. uv comes into a throw-away environment: nothing else needs it.
set -eu
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
"${PYTHON:-python3}" -m venv "$work/venv"
"$work/venv/bin/python" -m pip install --quiet 'uv>=0.13,<0.14'

unset UV_INDEX_URL UV_EXTRA_INDEX_URL UV_FIND_LINKS UV_CUSTOM_COMPILE_COMMAND
"$work/venv/bin/uv" pip compile pyproject.toml \
    --all-extras --group dev \
    --universal --python-version 3.11 \
    --generate-hashes \
    --no-config --system-certs --no-emit-index-url --no-emit-find-links \
    --custom-compile-command "make lock" \
    ${UPGRADE:+--upgrade} \
    --quiet --output-file requirements.lock
echo "requirements.lock: $(grep -c '==' requirements.lock) packages"
