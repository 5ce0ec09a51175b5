#!/bin/sh
# Measure agentflow beside its peers: tools/bench.sh PYTHON FOLDER [options of benchmarks/run.py]
#
# The peers get an environment of their own in FOLDER, made once. With AGENTFLOW_BENCH_PG set to the address of a
# PostgreSQL database that may be written to, that is measured too.
set -eu

python=$1
work=$2
shift 2

if [ ! -e "$work/.installed" ]; then
    rm -rf "$work"
    "$python" -m venv "$work/venv"
    "$work/venv/bin/python" -m pip install --quiet --requirement benchmarks/requirements.txt
    "$work/venv/bin/python" -m pip install --quiet .
    touch "$work/.installed"
fi
"$work/venv/bin/python" -V
exec "$work/venv/bin/python" benchmarks/run.py --python "$work/venv/bin/python" --work "$work" \
    ${AGENTFLOW_BENCH_PG:+--pg "$AGENTFLOW_BENCH_PG"} "$@"
