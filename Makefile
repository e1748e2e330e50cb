# Two commands do everything on a fresh machine with Python 3.11, make and a network: `make quickstart`, `make test`.

PYTHON ?= python3.11
VENV ?= .venv
STORE ?= .loopscale
BIN := $(VENV)/bin
READY := $(VENV)/ready
export OMP_NUM_THREADS ?= 1

.PHONY: help quickstart test lint slow hosts soak bench notebooks ui install clean

help:  ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: $(READY)  ## a virtual environment with everything in the versions of constraints.txt

$(READY): pyproject.toml constraints.txt
	@command -v $(PYTHON) > /dev/null || { echo "$(PYTHON) is not installed; say make PYTHON=python3 if that is 3.11 or newer"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	@touch $@

quickstart: $(READY)  ## set up, then train, tune, replicate and compare three models on linear regression (minutes)
	$(BIN)/loopscale run studies/quickstart.yaml --store $(STORE)

lint: $(READY)  ## formatting, mistakes, import contracts, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/pyright --pythonpath $(BIN)/python

test: lint  ## lint, and every quick test
	$(BIN)/pytest -m "not slow and not cuda" -n 2

slow: $(READY)  ## real Ray, real kills, real servers, learning, coverage of intervals
	$(BIN)/pytest -m "slow and not hosts and not cuda" -n 2 --dist loadfile --durations 15

hosts: $(READY)  ## clusters of several hosts: the walk-through, Slurm, random faults (minutes each, as root)
	$(BIN)/pytest -m "hosts and not long" -v --durations 0

soak: $(READY)  ## every fault by itself, many more kills and drawn examples, a hundred faults of a cluster (hours, as root)
	$(BIN)/pytest -m "long" -v --durations 0
	HYPOTHESIS_PROFILE=exploring $(BIN)/pytest tests/studies/test_space.py
	LOOPSCALE_KILLS=30 $(BIN)/pytest tests/runner/on_ray/test_killed.py -m slow -v
	$(BIN)/python benchmarks/soak.py --faults 100

bench: $(READY)  ## what is measured against what; see benchmarks/README.md
	$(BIN)/python benchmarks/step.py --size b
	$(BIN)/python benchmarks/overhead.py

notebooks: $(READY)  ## run every notebook where it lies, with pictures in it (needs chromium)
	for book in notebooks/*.ipynb; do \
	  PLOTLY_RENDERER=plotly_mimetype+png $(BIN)/jupyter execute --inplace $$book || exit 1; \
	done
	cd notebooks && $(abspath $(BIN))/python -c 'from loopscale.analysis.results import reading as read; \
	  found = read("algoformer/reduced/figure5"); \
	  found.against_loops(found.tasks()[0]).write_image("pictures/figure5.svg")'

ui: $(READY)  ## browse the results of the quickstart
	$(BIN)/loopscale ui --store $(STORE)

clean:  ## remove the virtual environment and caches; records stay
	rm -rf $(VENV) .pytest_cache .ruff_cache .import_linter_cache
