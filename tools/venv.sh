#!/bin/sh
# Make the development environment: tools/venv.sh PYTHON FOLDER
#
# Plain venv and pip, with every version and hash taken from requirements.lock. Debian splits venv into packages of
# their own, so there are two ways in, and one line that says what to install where neither is open.
set -eu

python=$1
venv=$2

die() {
    echo "$1" >&2
    exit 1
}

command -v "$python" >/dev/null || die "$python is missing: apt-get install python3 python3-venv"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    die "Python 3.11 or newer is needed, $python is $("$python" -V 2>&1 | cut -d' ' -f2): make PYTHON=python3.12 ..."

rm -rf "$venv"
if "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    "$python" -m venv "$venv"
    pip() { "$venv/bin/python" -m pip "$@"; }
elif "$python" -c 'import pip, venv' 2>/dev/null; then
    "$python" -m venv --without-pip "$venv"
    pip() { "$python" -m pip --python "$venv/bin/python" "$@"; }
else
    die "python3-venv is missing: apt-get install python3-venv"
fi

echo "installing the locked packages into $venv ..."
pip install --quiet --require-hashes --requirement requirements.lock
pip install --quiet --no-deps --no-build-isolation --editable .
