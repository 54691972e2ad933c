# Everything a newcomer needs: `make plan` and `make test`. Wants Python >= 3.11 and make, nothing else.
#
#   make plan WORKLOAD=deepseek-r1-1k-1k SLO=tpot=30ms
#   make test PYTHON=python3.12 VENV=/tmp/venv

VENV     ?= .venv
PYTHON   ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
                "$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; break; }; done)
WORKLOAD ?= deepseek-r1-4k-256
SLO      ?= tpot=50ms

BIN  := $(VENV)/bin
USER_STAMP := $(VENV)/.installed
DEV_STAMP  := $(VENV)/.installed-dev
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.DEFAULT_GOAL := help
.PHONY: help plan test lint format docs calibrate check golden bench clean

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | awk -F '\t' '{ printf "make %-9s %s\n", $$1, $$2 }'

plan: $(USER_STAMP) ## print the plan for WORKLOAD at SLO
	@$(BIN)/cm384 plan $(WORKLOAD) --slo $(SLO)

test: lint ## lint, type check and every test
	$(BIN)/python -m pytest -n auto

lint: $(DEV_STAMP) ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(DEV_STAMP) ## rewrite the sources in the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(DEV_STAMP) ## write the generated pages and tables again
	$(BIN)/python docs/generate.py

check: $(USER_STAMP) ## compare the predicted numbers with the golden ones
	$(BIN)/cm384 check --only-changed

golden: $(USER_STAMP) ## move every golden number to what it is today; say why in the commit
	$(BIN)/cm384 check --only-changed --update '*'
	$(BIN)/cm384 check --only-changed --update --cases docs/examples/check/check/cases.toml '*'

calibrate: $(USER_STAMP) ## fit the constants of the shipped data files to the published rows again
	$(BIN)/cm384 calibrate --in-place

bench: $(DEV_STAMP) ## measure the planner's rate, sweeps, the cold start and the dependencies
	$(BIN)/python benchmarks/plan_rate.py
	$(BIN)/python benchmarks/sweep_rate.py
	$(BIN)/python benchmarks/cold_start.py
	$(BIN)/python benchmarks/dependencies.py

clean: ## remove caches and builds, keep the virtual environment
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests docs benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps: pip runs only when pyproject.toml is newer. A plan needs no development tools. pip compiles
# what it copies but not an editable checkout, and an environment may forbid Python to.
$(USER_STAMP): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet -e .
	@$(BIN)/python -m compileall -q src
	@touch $@

$(DEV_STAMP): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	@$(BIN)/python -m compileall -q src
	@touch $(USER_STAMP) $@

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "error: no Python >= 3.11 found; name one: make PYTHON=/path/to/python3.12" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
