# make demo    train and profile the reference model      make evidence [PARTS="module truth"]  each figure anew, two hours
# make test    run the tests                              make gpu     tests and benchmarks that need CUDA
# make test TORCH=newest  the same with the newest torch of the index, in an environment of its own
# make check   linter, formatter, types                   make laws    thousands of new random nests against the laws
# make test-zoo  models of four packages, unharmed?
# make test-frameworks  transformers, Lightning, …: the callbacks, with each framework
# make launchers  torchrun, accelerate, DeepSpeed, SLURM's variables, spawn, Lightning, Ray: two ranks each
# make test-slow a signal at every line, long pages        make dist   wheel and sdist, each tried in a clean environment
# make figures the pictures of docs/figures.md, from real runs
# make api     api.md, verdict.md from docstrings          make asan    the extension under AddressSanitizer, UBSan
# make pages   outputs of the tutorial and how-to pages    make pictures  the README's, from a run of the demo (Chromium)
# make debug-python  the extension in a debug build of Python: assertions, and a count of references
# make python314 [SUITE=1] [OPTIONS="--version 3.15"]  the extension, or all tests, on a newer Python: root, debootstrap
# make site    the documentation as a site, build/site     make workflows  linters of the workflows
# make acceptance  431 programs with known answers: is the default report right on each? 20 to 30 minutes
#
# The targets make their own virtual environment, .venv, from pyproject.toml and constraints.txt. `make demo` installs only
# what the demo needs; the others install everything that the tests need.

PYTHON ?= python3
# `make demo DEVICE=sim` trains on the simulated accelerator of the tests (needs a C++ compiler).
DEVICE ?= cpu
DEMO_OPTIONS ?= $(if $(filter sim,$(DEVICE)),--size tiny,)
# `make test TORCH=newest`, or any target, takes the newest torch in place of the pinned one.
TORCH ?= pinned
VENV := .venv$(if $(filter newest,$(TORCH)),-newest,)
CONSTRAINTS := $(VENV)/.constraints
RUN := $(VENV)/bin/python
DEMO := $(VENV)/.demo
READY := $(VENV)/.ready
SOURCES := pyproject.toml setup.py constraints.txt $(wildcard autoprof/capture/marks/*.[ch])
# By a path, not by a finder of setuptools: from the folder above a clone, whose name is that of the package, a finder comes too
# late.
INSTALL := $(RUN) -m pip install --quiet --disable-pip-version-check --constraint $(CONSTRAINTS) \
  --config-settings editable_mode=compat --editable

.PHONY: site workflows python314 demo test acceptance test-slow check laws test-zoo test-frameworks launchers evidence api figures pages pictures dist asan debug-python gpu clean
.DEFAULT_GOAL := help

help:
	@sed -n '1,/^$$/s/^#\{1,\} \{0,1\}//p' Makefile

$(RUN):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "autoprof needs Python 3.10 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1). Set PYTHON=python3.11 or such."; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(CONSTRAINTS): constraints.txt | $(RUN)
	$(if $(filter newest,$(TORCH)),sed '/^torch==/d',cat) constraints.txt > $@

$(DEMO): $(SOURCES) $(CONSTRAINTS) | $(RUN)
	$(INSTALL) '.[demo]'
	@touch $@

$(READY): $(SOURCES) $(CONSTRAINTS) | $(RUN)
	$(INSTALL) '.[dev]'
	@touch $@ $(DEMO)

demo: $(DEMO)
	$(RUN) -m $(if $(filter sim,$(DEVICE)),tests.simulated,autoprof) demo --device $(DEVICE) $(DEMO_OPTIONS)

# Bytecode is kept also where the environment forbids it: each worker and child would compile every file again.
test: $(READY)
	PYTHONDONTWRITEBYTECODE= $(RUN) -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

test-slow: $(READY)
	$(RUN) -m pytest -m slow

check: $(READY)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

ZOO := $(VENV)/.zoo

$(ZOO): $(READY)
	$(INSTALL) '.[dev,zoo]'
	@touch $@

test-zoo: $(ZOO)
	AUTOPROF_ZOO=1 $(RUN) -m pytest tests/zoo

FRAMEWORKS := $(VENV)/.frameworks

$(FRAMEWORKS): $(READY)
	$(INSTALL) '.[dev,frameworks]'
	@touch $@

test-frameworks: $(FRAMEWORKS)
	$(RUN) -m pytest tests/integrations

LAUNCHERS := $(VENV)/.launchers

$(LAUNCHERS): $(FRAMEWORKS)
	$(INSTALL) '.[dev,frameworks]' deepspeed 'ray[train]'
	@touch $@

launchers: $(LAUNCHERS)
	$(RUN) -m pytest -m launchers tests/launchers

# Programs with known answers and a healthy or a known defect: is the default report right on each? 20 minutes.
acceptance: $(READY)
	$(RUN) -m tests.acceptance

SCRIPTS := $(VENV)/.scripts

$(SCRIPTS): $(ZOO)
	$(INSTALL) '.[dev,scripts]'
	@touch $@

# Every figure of README and docs, part after part; docs/evidence.md describes it.
evidence: $(SCRIPTS)
	$(RUN) -m benchmarks $(PARTS)

laws: $(READY)
	AUTOPROF_LAWS=5000 $(RUN) -m pytest tests/engine/test_engine_laws.py

# The extension alone, built for the purpose: no virtual environment, no torch. Leaks are counted by `make debug-python`,
# for the interpreter itself keeps memory until the process ends.
ALONE := tests/extension/extension_alone.py
BUILD_ALONE := tests/extension/build_extension.py
DEBUG_PYTHON ?= $(shell command -v python3-dbg || echo $(PYTHON))

asan:
	$(PYTHON) $(BUILD_ALONE) build/asan/_c.so -fsanitize=address,undefined -fno-sanitize-recover=undefined
	LD_PRELOAD="$$($(CC) -print-file-name=libasan.so) $$($(CC) -print-file-name=libubsan.so)" \
	  ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 PYTHONMALLOC=malloc $(PYTHON) $(ALONE) build/asan/_c.so

debug-python:
	$(DEBUG_PYTHON) $(BUILD_ALONE) build/debug-python/_c.so
	$(DEBUG_PYTHON) -X dev $(ALONE) build/debug-python/_c.so

python314:
	$(PYTHON) .ci/debian_python.py $(if $(SUITE),--suite) $(OPTIONS)

site: $(CONSTRAINTS) | $(RUN)
	$(INSTALL) '.[site]'
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict

workflows: $(CONSTRAINTS) | $(RUN)
	$(INSTALL) '.[workflows]'
	$(VENV)/bin/actionlint
	$(VENV)/bin/zizmor --offline .github

api: $(READY)
	$(RUN) -m docs.api
	$(RUN) -m docs.rules

figures: $(READY)
	$(RUN) -m docs.figures

# The pages whose outputs are generated, not typed: each is run as a reader would run it.
PAGES := docs/tutorial.md docs/zh.md docs/commands.md $(wildcard docs/howto/*.md)

pages: $(READY)
	$(RUN) -m docs.blocks $(PAGES)

pictures: $(READY)
	$(INSTALL) '.[dev,pictures]'
	$(RUN) -m docs.pictures

dist:
	rm -rf dist
	$(PYTHON) .ci/dist.py $(PYTHONS)

# On a machine with CUDA the torch that is installed there is the one to measure: no venv of ours. What is in C is built
# where that can be done. The tests and all measurements share nine minutes; `make gpu DEVICE=sim` tries the whole run.
gpu:
	-$(PYTHON) setup.py --quiet build_ext --inplace
	$(PYTHON) -m benchmarks gpu $(if $(filter sim,$(DEVICE)),--quick)

clean:
	rm -rf .venv .venv-newest build dist *.egg-info autoprof/capture/marks/*.so .pytest_cache .mypy_cache .ruff_cache .hypothesis
