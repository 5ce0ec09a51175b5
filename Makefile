# Everything a developer runs. `make help` lists it.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST := $(BIN)/python -m pytest

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help demo test check format accept proof bench build lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(STAMP) ## run the shipped workflows offline, with a scripted model
	$(BIN)/agentflow demo

test: $(STAMP) ## run the tests (without `proof` and `accept`)
	$(PYTEST)

check: $(STAMP) ## style, types, architecture, dependencies
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports --no-logo
	$(BIN)/deptry .

format: $(STAMP) ## let ruff rewrite what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

accept: $(STAMP) ## whole workflows over real input: make accept DATA=folder
	@test -d "$(DATA)" || { echo "make accept needs real input: make accept DATA=folder"; exit 1; }
	AGENTFLOW_DATA="$(abspath $(DATA))" $(PYTEST) -m accept

proof: $(STAMP) ## slow evidence: kills at random moments (DATA=folder: of the real messages)
	AGENTFLOW_DATA="$(if $(DATA),$(abspath $(DATA)))" $(PYTEST) -s -m proof

bench: ## speed beside the peers (QUICK=1: beside raw SQLite alone)
	@tools/bench.sh "$(PYTHON)" .bench $(if $(QUICK),--quick)

build: $(STAMP) ## sdist and wheel in dist/
	rm -rf dist
	$(BIN)/python -m hatchling build

lock: ## resolve requirements.lock anew (UPGRADE=1: newest versions)
	@PYTHON="$(PYTHON)" UPGRADE="$(UPGRADE)" tools/lock.sh

clean: ## remove the environment, caches and packages
	rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): requirements.lock pyproject.toml tools/venv.sh
	@tools/venv.sh "$(PYTHON)" $(VENV)
	@touch $@
