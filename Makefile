# `make up` and `make test` need nothing but Python 3.11: they set the rest up themselves.

SHELL := /bin/bash
UPGRADE := --upgrade
HOURS := 1
MUTANTS := 60
SEED := 1
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest -q
# Real processes on a busy machine may be late once; what fails twice is broken, and who was late is named.
PATIENT := $(PYTEST) --reruns 1 -rR
# These measure the machine or kill at random moments: not among all the others.
ALONE := $(patsubst %,tests/e2e/pods/test_%.py,kill limits metrics)
# These run a second time, as a user without privileges: at the level userns.
ORDINARY := $(patsubst %,tests/e2e/pods/test_%.py,life_cycle downward_api)
E2E = PATH="$(CURDIR)/$(BIN):$$PATH:$(CURDIR)/.venv/kubectl" \
	KEDGE_KUBECTLS="$$(ls $(CURDIR)/.venv/kubectl/kubectl 2>/dev/null):$$KEDGE_KUBECTLS" $(PATIENT)

.PHONY: help up down setup check test e2e soak fuzz coverage mutate bench docs lock audit clean

help: ## say what there is to make
	@grep -hE '^[a-z0-9]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9]+):.*## /  make \1\t/' | expand -t 18

up: .venv/.run ## start a cluster on this machine
	@$(BIN)/kedge up
	@command -v kedge >/dev/null || echo "(kedge is $(CURDIR)/$(BIN)/kedge; 'make down' calls it for you)"

down: .venv/.run ## stop it
	@$(BIN)/kedge down

setup: .venv/.dev ## make the virtual environment with all that developing takes

check: .venv/.dev ## format, lint, types, floors, unit and contract tests
	$(BIN)/ruff format --check src tests tools bench examples
	$(BIN)/ruff check src tests tools bench examples
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python tools/reference --check
	$(BIN)/python tools/check_links.py
	@tools/audit requirements/run.txt
	$(PYTEST) -n auto --dist loadfile tests/unit
	$(PATIENT) tests/contract
	$(PATIENT) -n auto --dist loadfile tests/fuzz

e2e: .venv/.dev ## a real kubectl against a real cluster
	@tools/setup kubectl
	$(E2E) -n 3 --dist loadfile tests/e2e --ignore=tests/e2e/pods
	$(E2E) -n 3 --dist loadfile tests/e2e/pods $(ALONE:%=--ignore=%)
	$(E2E) -n 2 --dist loadfile $(ALONE)
	KEDGE_E2E_ORDINARY_USER=1 $(E2E) -n 2 --most-skipped=10 $(ORDINARY)

soak: .venv/.dev ## kill -9 in a loop for minutes, and ten times a hundred pods
	@tools/setup kubectl
	KEDGE_E2E_KILL_SECONDS=300 KEDGE_E2E_WAVES=10 $(E2E) tests/e2e/pods/test_kill.py

fuzz: .venv/.dev ## attack every parser and a real server for hours: HOURS=0.5 for half of one
	KEDGE_FUZZ_HOURS=$(HOURS) KEDGE_FUZZ_REQUESTS=1000000 KEDGE_FUZZ_SEED=$$RANDOM \
		$(PYTEST) -s --timeout 0 -n auto --dist loadfile tests/fuzz

coverage: .venv/.dev ## how much of the code the unit tests run: all, and the modules with the least
	@$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -q -n auto --dist loadfile $(or $(ONLY),tests/unit)
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report | sed -n '1,32p;/^TOTAL/p'

mutate: .venv/.dev ## put faults into pure modules and see whether tests notice: MUTANTS=0 for all, ONLY=part
	$(BIN)/python tools/mutate.py --sample $(MUTANTS) --seed $(SEED) $(ONLY)

test: check e2e ## everything

bench: .venv/.dev ## how fast it is
	@command -v wrk >/dev/null || { echo "wrk is missing, which makes the load: apt install wrk" >&2; exit 1; }
	$(BIN)/python bench/start.py --runs 3 --pods 500
	$(BIN)/python bench/store.py 0.5
	$(BIN)/python bench/limits.py --pods 500
	$(BIN)/python bench/scheduler.py
	$(BIN)/python bench/placement.py
	$(BIN)/python bench/workloads.py
	$(BIN)/python bench/services.py
	$(BIN)/python bench/api.py --pods 500 --seconds 2 --watchers 50

docs: .venv/.dev ## write docs/reference from the code, and check all links
	$(BIN)/python tools/reference
	$(BIN)/python tools/check_links.py

lock: ## choose the newest versions and lock them with their hashes (UPGRADE= to keep versions)
	@tools/lock $(UPGRADE)

audit: .venv/.dev ## look for known vulnerabilities in what kedge is installed with
	@tools/audit requirements/run.txt

clean: ## remove all that was made here, but no cluster
	rm -rf .venv build site .hypothesis .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .coverage*
	find src tests tools -name __pycache__ -prune -exec rm -rf {} +
	rm -rf src/*.egg-info

.venv/.run: pyproject.toml requirements/run.txt tools/setup
	@tools/setup run

.venv/.dev: pyproject.toml requirements/dev.txt tools/setup
	@tools/setup dev
