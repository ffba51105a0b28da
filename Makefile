# Every target sets up what it needs; only Python 3.11 or newer and make are required.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DOCS := .venv-docs
DOCS_STAMP := $(DOCS)/.installed
INTEROP := .venv-interop
INTEROP_STAMP := $(INTEROP)/.installed
# The first of these that is Python 3.11 or newer; `make PYTHON=... venv` overrides.
PYTHON ?= $(shell for python in python3.11 python3; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$python" && break; done)
# The folders with Python files. Never `.`: the links agents, games and vec would show the same files twice.
CODE = $(patsubst %/,%,$(sort $(dir $(wildcard $(addsuffix /*.py,entity_env tests examples benchmarks tools)))))

# If set, every process of the tests would compile all modules again: a fifth of their time.
unexport PYTHONDONTWRITEBYTECODE

export PIP_NO_INPUT := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

CLUSTER := .venv-cluster
CLUSTER_STAMP := $(CLUSTER)/.installed

BENCHMARKS = $(filter-out %/__init__.py %/common.py %/arena.py %/soak.py %/learning.py %/scale.py,$(wildcard benchmarks/*.py))

.PHONY: help venv demo test test-slow test-all test-pythons check check-pythons lint types prose wheel release format coverage bench bench-vec bench-batch bench-azul bench-latency bench-train bench-learning bench-pixel bench-scale cluster demo-pixel attack mutants fuzz soak interop clients docs docs-serve pictures pyodide clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## */\t/' | expand -t 15

venv: $(STAMP)  ## create .venv with everything for development
	@echo "To use entity-env in this terminal: . $(BIN)/activate"

SOURCES_IN_C := entity_env/authoring/_speedups.c entity_env/agents/rogue_net/numpy_net/_forward.c clients/c/entity_agent.h

# Recreated when the dependencies change. The stamp is written last, so an interrupted installation is resumed.
$(STAMP): pyproject.toml constraints.txt setup.py $(SOURCES_IN_C)
	@test -n "$(PYTHON)" || { echo "No Python 3.11 or newer found: install one, or name it: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "Installing everything for development into $(VENV): about two minutes the first time, then seconds."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --constraint constraints.txt --editable '.[all,dev]'
	@touch $@

# The original entity-gym, rogue-net and enn-trainer. Their releases require Python < 3.11 and their upper bounds conflict
# with ours, so they have a separate environment and are installed without their declared dependencies.
$(INTEROP_STAMP): pyproject.toml constraints.txt tests/upstream/requirements.txt tests/upstream/upstream.txt
	@test -n "$(PYTHON)" || { echo "No Python 3.11 or newer found: install one, or name it: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "Installing entity-gym, enn-trainer and kaggle-environments into $(INTEROP): a minute or two the first time."
	@$(PYTHON) -m venv $(INTEROP)
	@$(INTEROP)/bin/python -m pip install -qq --constraint constraints.txt --requirement tests/upstream/requirements.txt
	@$(INTEROP)/bin/python -m pip install -qq --no-deps --ignore-requires-python --requirement tests/upstream/upstream.txt
	@$(INTEROP)/bin/python -m pip install -qq --no-deps kaggle-environments==1.33.2  # asks for jax, transformers and 20 more
	@$(INTEROP)/bin/python -m pip install -qq --no-deps --editable .
	@touch $@

clients: $(STAMP)  ## test the clients for other languages, as far as their compilers and interpreters are installed
	$(BIN)/python -m pytest tests/vec/external tests/agents/rogue_net/c_agent -rs

interop: $(INTEROP_STAMP)  ## train our games with enn-trainer, play its environments, exchange agents; play games of Kaggle
	$(INTEROP)/bin/python -m pytest tests/upstream --override-ini='python_files=check_*.py'
	$(INTEROP)/bin/python -m pytest tests/interop/kaggle tests/docs/test_docstring_examples.py -k kaggle

# Zensical and Jupyter, which nothing else needs.
$(DOCS_STAMP): pyproject.toml constraints.txt tools/docs/requirements.txt
	@test -n "$(PYTHON)" || { echo "No Python 3.11 or newer found: install one, or name it: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "Installing Zensical and Jupyter into $(DOCS): a minute the first time."
	@$(PYTHON) -m venv $(DOCS)
	@$(DOCS)/bin/python -m pip install -qq --constraint constraints.txt --requirement tools/docs/requirements.txt --editable .
	@$(DOCS)/bin/python -m pip install -qq --no-deps axe-playwright-python==0.1.8  # for its axe-core alone
	@touch $@

# Generated pages need the games and their packages, the site only its builder: two environments.
docs: $(STAMP) $(DOCS_STAMP) pyodide  ## run the notebook, build the site into build/site, check its pages in Chromium
	$(DOCS)/bin/python -m tools.docs.run_notebook "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
	$(BIN)/python -m tools.docs.stage
	$(DOCS)/bin/zensical build --clean --strict
	$(BIN)/python -m tools.docs.finish
	$(DOCS)/bin/python -m tools.docs.check_site

pyodide: $(STAMP)  ## download Python for browsers with npm, for pages of games
	@$(BIN)/python -m tools.docs.pyodide

pictures: $(STAMP) pyodide  ## redraw the pictures of the docs with the program itself; needs Chromium
	$(BIN)/python -m tools.pictures

docs-serve: $(STAMP) $(DOCS_STAMP)  ## serve the site to this machine, and rebuild changed pages
	$(BIN)/python -m tools.docs.stage --serve $(DOCS)/bin/zensical serve

# Ray is half a gigabyte, which nothing else needs.
$(CLUSTER_STAMP): pyproject.toml constraints.txt
	@echo "Installing Ray into $(CLUSTER): a few minutes the first time."
	@$(PYTHON) -m venv $(CLUSTER)
	@$(CLUSTER)/bin/python -m pip install -qq --constraint constraints.txt --editable '.[cluster,fast,dev]' 'ray[rllib]' gymnasium
	@touch $@

cluster: $(CLUSTER_STAMP)  ## test sweeps, evaluation and learners on a local Ray cluster
	$(CLUSTER)/bin/python -m pytest tests/cluster

bench-scale: $(CLUSTER_STAMP)  ## measure training with several ranks, compared with one process and RLlib
	$(CLUSTER)/bin/python -m benchmarks.scale

demo: $(STAMP)  ## train snake for half a minute, then watch the trained agent play
	$(BIN)/python examples/demo.py

# Test files are distributed to processes; `make test TESTS=tests/vec` runs some of them.
TESTS ?= tests
# Three processes per two cores, up to eight: tests of processes and timeouts wait more than they compute.
PARALLEL = --numprocesses $(shell echo $$(( ($$(nproc 2>/dev/null || echo 2) * 3 + 1) / 2 ))) --maxprocesses 8 --dist loadfile

test: $(STAMP)  ## run the fast tests
	$(BIN)/python -m pytest $(TESTS) $(PARALLEL) -m "not slow" --hypothesis-profile $(if $(CI),ci-fast,fast)

test-slow: $(STAMP)  ## run the tests that `make test` leaves out
	$(BIN)/python -m pytest $(TESTS) $(PARALLEL) -m slow --hypothesis-profile $(if $(CI),ci-fast,fast)

test-all: $(STAMP)  ## run all tests, with all examples of every property
	$(BIN)/python -m pytest $(TESTS) $(PARALLEL)

# Other Pythons, and the lowest versions that pyproject.toml allows, with Python 3.11. All without torch: uv installs each in seconds.
# NAME of .venv-NAME; missing Pythons are left out.
OTHERS := 3.12 3.13 lowest
EXTRAS = fast,test
.venv-lowest/.installed: EXTRAS = fast,gymnasium,minari,parquet,pettingzoo,pictures,test
# The interface that games use.
CONTRACT_TESTS := tests/core tests/authoring tests/agents/channels
# Tests of the extras that are installed with their lowest versions.
EXTRA_TESTS := tests/interop tests/replay tests/contract
UV_INSTALL = $(BIN)/uv pip install --quiet --constraint constraints.txt --python

# OTHER: the interpreter.
$(OTHERS:%=.venv-%/.installed): pyproject.toml constraints.txt setup.py $(SOURCES_IN_C)
	@$(BIN)/uv venv --quiet --clear --python "$(OTHER)" $(@D)
	@$(UV_INSTALL) $(@D)/bin/python $(if $(findstring lowest,$@),--resolution lowest-direct) --editable '.[$(EXTRAS)]'
	@touch $@

check-pythons: $(STAMP)  ## test the contract with other Pythons, and with the lowest versions of dependencies
	@for name in $(OTHERS); do \
		python=$$($(BIN)/python tools/find_python.py $${name/lowest/3.11}) || { echo "Python $${name/lowest/3.11}: not found, left out"; continue; }; \
		$(MAKE) --silent OTHER="$$python" .venv-$$name/.installed; \
		echo "$$name: $$python, numpy $$(.venv-$$name/bin/python -c 'import numpy; print(numpy.__version__)')"; \
		.venv-$$name/bin/python -m pytest $(CONTRACT_TESTS) $(PARALLEL) -q -m "not slow" --hypothesis-profile $(if $(CI),ci-fast,fast); \
	done

# With everything except torch, which is large: tests that need it are skipped. Every run upgrades all
# packages: the newest numpy, which needs Python 3.12, is tested nowhere else. If numba does not support it yet, numba is
# uninstalled, and the tests that need it are skipped.
test-pythons: $(STAMP)  ## run the fast tests with every other Python that is found, and those of extras with their lowest versions
	@for version in $(filter 3.%,$(OTHERS)); do \
		python=$$($(BIN)/python tools/find_python.py $$version) || { echo "Python $$version: not found, left out"; continue; }; \
		$(MAKE) --silent OTHER="$$python" .venv-$$version/.installed; \
		venv=.venv-$$version/bin/python; \
		$(UV_INSTALL) $$venv --upgrade --editable '.[fast,gymnasium,onnx,pettingzoo,pictures,dev]' msgpack; \
		if $(BIN)/uv pip list --quiet --python $$venv --outdated | grep '^numpy ' >/dev/null; then \
			$(BIN)/uv pip uninstall --quiet --python $$venv numba; \
			$(UV_INSTALL) $$venv --upgrade numpy; \
		fi; \
		echo "Python $$version: $$python, numpy $$($$venv -c 'import numpy; print(numpy.__version__)')"; \
		$$venv -m pytest $(TESTS) $(PARALLEL) -m "not slow" --hypothesis-profile fast; \
	done
	@python=$$($(BIN)/python tools/find_python.py 3.11) || { echo "Python 3.11: not found, left out"; exit 0; }; \
	$(MAKE) --silent OTHER="$$python" .venv-lowest/.installed; \
	echo "lowest versions of the extras: $$python"; \
	.venv-lowest/bin/python -m pytest $(EXTRA_TESTS) $(PARALLEL) -m "not slow" --hypothesis-profile fast

# Ten minutes in total: the budget of the tests, plus their fixtures.
ATTACKS := tests/attack tests/contract/user_code tests/cli/test_named.py tests/vec/external/clients/test_texts.py
attack: $(STAMP)  ## attack the library for ten minutes: interrupts, faults, broken files, hostile code
	ENTITY_ENV_ATTACK_SECONDS=$${ENTITY_ENV_ATTACK_SECONDS:-480} $(BIN)/python -m pytest $(ATTACKS)

mutants: $(STAMP)  ## make small changes to the package and check that tests fail: an hour or more
	$(BIN)/python -m tools.mutants --jobs 2 --keep build/mutants.jsonl

check: lint types prose wheel check-pythons  ## check format, lint, types and prose; build the wheel and import it elsewhere; other Pythons

lint: $(STAMP)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)

# One cache per system, or every run would check all files again. Tests and benchmarks of processes are for POSIX.
types: $(STAMP)
	$(BIN)/mypy $(CODE)
	$(BIN)/mypy --platform darwin --cache-dir .mypy_cache/darwin $(CODE)
	$(BIN)/mypy --platform win32 --cache-dir .mypy_cache/win32 $(filter-out tests benchmarks,$(CODE))

prose: $(STAMP)
	$(BIN)/python -m tools.prose

wheel: $(STAMP)
	$(BIN)/python tools/check_wheel.py

# SKIP_TESTS=1: build without the tests of other Pythons, after they have passed.
release: $(if $(SKIP_TESTS),$(STAMP),test-pythons)  ## build the release into dist, twice, and test each file
	$(BIN)/python -m tools.release

format: $(STAMP)  ## format the code and apply lint fixes
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

coverage: $(STAMP)  ## run all tests and report the lines that they do not reach
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

bench: $(STAMP) $(INTEROP_STAMP)  ## run every benchmark
	@set -e; for script in $(BENCHMARKS); do $(BIN)/python "$$script"; done

bench-vec: $(STAMP)  ## measure many games at once, compared with other vectorized environments
	$(BIN)/python benchmarks/vec.py

bench-batch: $(STAMP)  ## measure batch environments, compared with Gymnasium and EnvPool
	$(BIN)/python benchmarks/batch.py

bench-azul: $(STAMP)  ## measure Azul: rules, environment, batches, search
	$(BIN)/python benchmarks/azul.py

bench-latency: $(STAMP) $(INTEROP_STAMP)  ## measure one decision, compared with rogue-net
	$(BIN)/python benchmarks/latency.py

bench-train: $(STAMP) $(INTEROP_STAMP)  ## measure training, compared with enn-trainer
	$(BIN)/python benchmarks/train.py

bench-learning: $(STAMP) $(INTEROP_STAMP)  ## measure learning, compared with Stable-Baselines3 and enn-trainer: hours
	$(BIN)/python benchmarks/learning.py --jobs 2 --keep runs/learning.jsonl

bench-pixel: $(STAMP)  ## measure the emulated machines, and rewards from their pixels
	$(BIN)/python benchmarks/pixel.py

demo-pixel: $(STAMP)  ## train on the maze for at most three minutes, then watch the trained agent
	$(BIN)/python examples/demo_pixel.py

soak: $(STAMP)  ## kill workers for half an hour and check all results
	$(BIN)/python benchmarks/soak.py

fuzz: $(STAMP)  ## read broken checkpoints for a minute, if atheris is installed
	$(BIN)/python tools/fuzz_checkpoints.py

clean:  ## remove the files of the other targets
	rm -rf $(VENV) $(INTEROP) $(CLUSTER) $(DOCS) .venv-learning .venv-peers .venv-3.* .venv-lowest build dist *.egg-info .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache
