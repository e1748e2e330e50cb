# On a fresh machine with Python 3.11, make and a network, start with `make quickstart` or `make test`.

PYTHON ?= python3.11
VENV ?= .venv
STORE ?= .loopscale
BIN := $(VENV)/bin
STAGE := .ci/stage
CHECKED := loopscale.core.prompt,loopscale.tasks,loopscale.models,loopscale.solvers,loopscale.theory,loopscale.training,loopscale.evaluate,loopscale.regret,loopscale.stats,loopscale.analysis
comma := ,
# Stamps of what is installed: the package, the tools of `make test`, the tools of all other tests.
RUNS := $(VENV)/ready-to-run
READY := $(VENV)/ready
ALL := $(VENV)/ready-for-all-tests
export OMP_NUM_THREADS ?= 1
# The tests start Python hundreds of times. Without bytecode files each start compiles the package again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help quickstart test lint shapes slow hosts soak processors bench notebooks pictures findings noise docs dist ui install clean

help:  ## print this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: $(READY)  ## make a virtual environment with all that `make test` needs, in the versions of constraints.txt

# Packages come from a network, so a failed download is tried once more.
define install
	@command -v $(PYTHON) > /dev/null || { echo "$(PYTHON) is not installed; run make PYTHON=python3 if python3 is 3.11 or newer"; exit 1; }
	@echo "Installing $(1) into $(VENV): about 2 GB, 2 to 5 minutes the first time"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(call pip,$(1)) || { echo "pip has failed; trying once more"; $(call pip,$(1)); }
	@touch $@
endef
pip = $(BIN)/pip install --quiet --progress-bar on --disable-pip-version-check -c constraints.txt torch -e '$(1)'

$(RUNS): pyproject.toml constraints.txt
	$(call install,.)

$(READY): pyproject.toml constraints.txt
	$(call install,.[test])
	@touch $(RUNS)

$(ALL): $(READY)
	$(call install,.[test$(comma)slow$(comma)docs])

quickstart: $(RUNS)  ## train, tune, replicate and compare three models on linear regression (minutes)
	$(BIN)/loopscale run studies/quickstart.yaml --store $(STORE)

lint: $(READY)  ## check format, style, import contracts and types
	@$(STAGE) "style" $(BIN)/ruff check .
	@$(STAGE) "format" $(BIN)/ruff format --check .
	@$(STAGE) "import contracts" $(BIN)/lint-imports
	@$(STAGE) "types" $(BIN)/pyright --pythonpath $(BIN)/python

test: lint  ## run lint and every quick test (6 minutes)
	@$(STAGE) "quick tests" $(BIN)/pytest -m "not slow and not cuda" -n 2 --dist worksteal

shapes: $(READY)  ## run the contracts and the reference tests with checked shapes and types of tensors (a minute)
	@$(STAGE) "checked shapes" $(BIN)/pytest tests/contracts tests/reference tests/models -m "not slow and not cuda" \
	  -n 2 --dist worksteal --jaxtyping-packages=$(CHECKED),beartype.beartype

PART ?=
slow: $(ALL) shapes  ## run tests with real Ray, kills, servers, training, and coverage of intervals (PART=stats: one folder)
	@$(STAGE) "slow tests" $(BIN)/pytest tests/$(PART) -m "slow and not hosts and not cuda and not long" -n 3 --dist worksteal --durations 15

hosts: $(ALL)  ## run tests on clusters of several hosts: walk-through, Slurm, random faults (minutes each, as root)
	$(BIN)/pytest -m "hosts and not long" -n 2 --dist worksteal -v --durations 0

soak: $(ALL)  ## strike every fault alone and a hundred faults in a row, with many kills and examples (hours, as root)
	$(BIN)/pytest -m "long" -v --durations 0
	HYPOTHESIS_PROFILE=exploring $(BIN)/pytest tests/notation/test_space.py
	LOOPSCALE_KILLS=30 $(BIN)/pytest tests/runner/on_ray/test_killed.py -m slow -v
	$(BIN)/python benchmarks/soak.py --faults 100

processors:  ## run make test and make slow with the kernels of an older processor
	OPENBLAS_CORETYPE=Haswell NPY_DISABLE_CPU_FEATURES="X86_V4 AVX512_ICL" ATEN_CPU_CAPABILITY=avx2 \
	  ONEDNN_MAX_CPU_ISA=AVX2 $(MAKE) test slow

bench: $(READY)  ## measure speed against references; see benchmarks/README.md
	$(BIN)/python benchmarks/step.py --size b
	$(BIN)/python benchmarks/overhead.py

notebooks: $(ALL)  ## run every notebook in place, with pictures (needs chromium)
	for book in notebooks/*.ipynb; do \
	  PLOTLY_RENDERER=plotly_mimetype+png $(BIN)/jupyter execute --inplace $$book || exit 1; \
	done
	$(BIN)/python docs/site/pictures.py

pictures: $(ALL)  ## draw the pictures of README.md from the records in notebooks/data (needs chromium)
	$(BIN)/python docs/site/pictures.py

findings: $(READY)  ## write FINDINGS.md and the findings of README.md from the records in notebooks/data
	$(BIN)/python -m loopscale.analysis.report.findings_page

noise: $(READY)  ## measure the noise between replicates in notebooks/data again, for `loopscale plan` (a minute)
	$(BIN)/python -m loopscale.analysis.answers.noise notebooks/data src/loopscale/foresight/noise.csv

docs: $(READY)  ## build the documentation site in .site/, and end at the first warning
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict -f .mkdocs.yml

# The wheel is built from the source distribution, so both have the same content, whatever else lies in the checkout.
dist: $(READY)  ## build the source distribution and the wheel in dist/
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt build
	$(BIN)/python -m build --outdir dist .

ui: $(RUNS)  ## browse the results of the quickstart
	$(BIN)/loopscale ui --store $(STORE)

clean:  ## remove the virtual environment and caches; keep the records
	rm -rf $(VENV) .pytest_cache .ruff_cache .import_linter_cache
