#!/usr/bin/env bash
# Makes .venv: the pinned packages, this project (editable) and its Jupyter kernels. `make setup`
# runs it. .venv/ready is written last, so whatever stops this half-way, the next run completes.
set -u
cd "$(dirname "$0")"
PYTHON=${PYTHON:-} TORCH_INDEX=${TORCH_INDEX:-}
PATH=${PATH//"$PWD/.venv/bin:"/} # or the python3 that is found would be the environment's own
log=.venv/setup.log

say() { echo "setup: $*"; }
stop() { echo "setup: $*" >&2; exit 1; }

# "3.12", or nothing where it does not run. A name on the PATH is not enough: it may be a shim.
version() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null; }
in_range() { case $1 in 3.11 | 3.12 | 3.13) true ;; *) false ;; esac; }
new_enough() { [ "${1%%.*}" -gt 3 ] || { [ "${1%%.*}" = 3 ] && [ "${1#*.}" -ge 11 ]; }; }

free_mb() { df -Pk . | awk 'NR == 2 { print int($4 / 1024) }'; }
no_space() {
    stop "The disk that holds $PWD has $(free_mb) MB free, and the course needs about 3 GB" \
        "(10 GB with a CUDA build of torch). Free some space and run this again."
}

if [ -n "$PYTHON" ]; then
    found=$(version "$PYTHON")
    [ -n "$found" ] || stop "PYTHON=$PYTHON does not run. Name a Python 3.11, 3.12 or 3.13."
    new_enough "$found" || stop "PYTHON=$PYTHON is Python $found, and the course needs 3.11 or newer." \
        "Name a newer one, or leave PYTHON out to have one looked for."
else
    names="python3 python3.13 python3.12 python3.11 python"
    seen=
    for name in $names; do
        found=$(version "$name")
        [ -n "$found" ] && seen="$seen $name is $found;"
        in_range "$found" && PYTHON=$name && break
    done
    [ -n "$PYTHON" ] || stop "No Python 3.11, 3.12 or 3.13 was found:${seen:- none of $names runs;}" \
        "the course needs one. Install one, or name yours: make setup PYTHON=/path/to/python3.12"
fi

# An environment is kept unless it is broken, stood elsewhere, or has another Python.
if [ "$(version .venv/bin/python)" != "$found" ] || ! .venv/bin/python -m pip --version >/dev/null 2>&1 ||
    { [ -e .venv/ready ] && [ "$(cat .venv/ready)" != "$PWD" ]; }; then
    "$PYTHON" -c 'import venv, ensurepip' 2>/dev/null || stop "$PYTHON has no venv module." \
        "On Debian and Ubuntu: apt-get install python3-venv. Then run this again."
    [ "$(free_mb)" -ge 3000 ] || no_space
    say "making .venv with $PYTHON (Python $found)"
    rm -rf .venv
    "$PYTHON" -m venv .venv || {
        rm -rf .venv
        stop "$PYTHON could not make the environment .venv; the lines above say why."
    }
fi
rm -f .venv/ready

# pip shows its progress to a person; where nobody watches (CI), only warnings. The log has it all.
[ -t 1 ] && quiet= || quiet="--quiet --progress-bar off"
pip_install() {
    .venv/bin/python -m pip install $quiet --log $log -c constraints.txt "$@" && return
    if grep -q 'No space left on device' $log; then no_space; fi
    if grep -qE 'NewConnectionError|ConnectTimeout|NameResolutionError|Network is unreachable' $log; then
        stop "pip cannot reach the package index. Check the network (or your pip's index and proxy" \
            "settings) and run this again: what is installed already stays."
    fi
    stop "pip could not install the packages; its lines above say why, and $PWD/$log has all of it."
}

: >$log
if [ -n "$TORCH_INDEX" ]; then
    say "installing the build of torch that $TORCH_INDEX has"
    # Without --force-reinstall another build of the same version would count as installed.
    pip_install --force-reinstall --no-deps --index-url "$TORCH_INDEX" "$(grep '^torch==' constraints.txt)"
fi
say "installing the pinned packages; the first time takes some minutes"
pip_install -e '.[dev]'
.venv/bin/autograder kernels || stop "The Jupyter kernels could not be installed; the lines above say why."
echo "$PWD" >.venv/ready
