#!/bin/sh
# Measure agentflow beside its peers: tools/bench.sh PYTHON FOLDER [options of benchmarks/run.py]
#
# The peers get an environment of their own in FOLDER, made anew when what they need has changed. agentflow is installed
# beside them from this checkout, with the versions of requirements.lock, so that all share one interpreter and one SQLite.
set -eu

python=$1
work=$2
shift 2

die() {
    echo "$1" >&2
    exit 1
}

installed="$work/.installed"
wanted=$({ "$python" -V; cat tools/bench.sh benchmarks/requirements.txt requirements.lock pyproject.toml; } | cksum)
if [ "$(cat "$installed" 2>/dev/null)" != "$wanted" ]; then
    "$python" -c 'import pip, venv' 2>/dev/null || die "$python has no pip: apt-get install python3-venv python3-pip"
    echo "installing agentflow and its peers into $work/venv ..."
    rm -rf "$work/venv" "$installed"
    "$python" -m venv --without-pip "$work/venv"
    # A constraint says which version, if any: the lock without its hashes, since the peers' own needs are in no lock.
    sed -n '/==/s/ *\\$//p' requirements.lock >"$work/constraints.txt"
    "$python" -m pip --python "$work/venv/bin/python" install --quiet --constraint "$work/constraints.txt" \
        --requirement benchmarks/requirements.txt --editable '.[postgres]'
    echo "$wanted" >"$installed"
fi
exec "$work/venv/bin/python" -m benchmarks.run --work "$work" "$@"
