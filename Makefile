# `make up` and `make test` need only Python 3.11; they install everything else.

SHELL := /bin/bash
UPGRADE := --upgrade
HOURS := 1
MUTANTS := 60
SEED := 1
# The page of `make bench`: PEER=https://HOST:PORT names an API server to compare with.
PEER :=
PEER_TOKEN :=
PEER_PROCESSES :=
BENCH_PODS := 1000
BENCH_SECONDS := 3
BENCH_ROUNDS := 1
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest -q
# pytest keeps its compiled test files. To compile them takes each process of a run half a minute.
export PYTHONDONTWRITEBYTECODE :=
# On a busy machine a test of real processes may be late once. A test that fails twice is broken; the
# summary names each test that needed a second try.
AGAIN := --reruns 1 -rR
PATIENT := $(PYTEST) $(AGAIN)
# These tests measure the machine or kill processes at random moments, so they run after the others.
ALONE := $(patsubst %,tests/e2e/pods/test_%.py,kill limits metrics)
# These tests run a second time as a user without privileges, whose nodes have the level userns.
# Decisions of the server and its controllers are the same for every user: they run once.
ORDINARY_API := $(patsubst %,tests/e2e/test_%.py,client_commands durability limit_range up)
ORDINARY_PODS := $(patsubst %,tests/e2e/pods/test_%.py,claims daemon_set deployment device_plugins \
	aggregation dns downward_api gateway images job kill life_cycle metrics_api network network_policy \
	proxy scheduling services stateful_set streams volumes)
SEVERAL_USERS := tests/e2e/pods/test_several_users.py
# The longest files first: tests/e2e/conftest.py.
BY_FILE := --dist loadfile --no-loadscope-reorder
# These tests run once more in a container as Docker makes it, where nodes have the level plain.
IN_CONTAINER := tests/e2e/pods/test_in_container.py
NAMES_IN_CONTAINER := tests/e2e/pods/test_names_in_container.py
PLAIN_TESTS := $(patsubst %,tests/e2e/pods/test_%.py,downward_api volumes) $(addprefix tests/e2e/pods/test_, \
	deployment.py::test_a_deployment_comes_up_and_is_shown \
	device_plugins.py::test_devices_that_only_have_to_exist \
	life_cycle.py::test_a_pod_runs_and_its_status_is_whole \
	life_cycle.py::test_an_http_probe_reads_the_status \
	metrics_api.py::test_kubectl_gets_and_explains_metrics)
KUBECTLS = PATH="$(CURDIR)/$(BIN):$$PATH:$(CURDIR)/.venv/kubectl" \
	KEDGE_KUBECTLS="$$(ls $(CURDIR)/.venv/kubectl/kubectl 2>/dev/null):$$KEDGE_KUBECTLS"
E2E = $(KUBECTLS) $(PATIENT)
AS_USER = tools/as_ordinary_user -m pytest -q $(AGAIN) -rsR -p no:cacheprovider
ORDINARY = $(KUBECTLS) $(AS_USER)
# Root can pretend that a machine grants subordinate ids to the ordinary user.
SUBORDINATE = $(KUBECTLS) tools/with_subordinate_ids $(AS_USER)
PLAIN = $(KUBECTLS) tools/in_plain_container -m pytest -q $(AGAIN) -rsR -p no:cacheprovider

.PHONY: help up down setup check test e2e ordinary plain soak fuzz coverage mutate bench bench-check need-wrk docs site lock audit clean

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /  make \1\t/' | expand -t 18

up: .venv/.run ## start a cluster on this machine
	@$(BIN)/kedge up
	@command -v kedge >/dev/null || echo "(kedge is $(CURDIR)/$(BIN)/kedge; 'make down' calls it for you)"

down: .venv/.run ## stop the cluster
	@$(BIN)/kedge down

setup: .venv/.dev ## install the development environment in .venv

check: .venv/.dev ## check format, lint, types, import layers and generated pages; run unit, contract and fuzz tests
	$(BIN)/ruff format --check src tests tools bench examples
	$(BIN)/ruff check src tests tools bench examples
	@$(PYTEST) -p no:cacheprovider --collect-only tests >/dev/null & $(BIN)/mypy; code=$$?; wait; exit $$code
	$(BIN)/lint-imports --no-cache
	$(BIN)/python tools/reference --check
	$(BIN)/python tools/check_links.py
	@$(BIN)/python -m pip --disable-pip-version-check check
	@tools/audit requirements/run.txt
	@tools/setup helm
	$(PATIENT) -n auto --dist loadfile tests/unit tests/seeds
	@tools/setup etcd
	@tools/setup postgresql
	@tools/setup containerd
	$(PATIENT) -n 2 --dist loadfile tests/contract tests/differential
	$(PATIENT) -n auto --dist loadfile tests/fuzz

e2e: .venv/.dev ## run the end-to-end tests with a real kubectl, as root also those of `make ordinary` and `make plain`
	@tools/setup kubectl
	@tools/setup browser
	@tools/setup shells
	@tools/setup etcd
	@tools/setup postgresql
	@tools/setup tmux
	@tools/setup containerd
	$(E2E) -n 3 $(BY_FILE) tests/e2e --ignore=tests/e2e/pods
	$(E2E) -n 3 $(BY_FILE) tests/e2e/pods $(ALONE:%=--ignore=%) --ignore=$(IN_CONTAINER) --ignore=$(NAMES_IN_CONTAINER)
	$(E2E) -n 2 --dist loadfile $(ALONE)
	@if [ "$$(id -u)" = 0 ]; then $(MAKE) --no-print-directory ordinary plain; fi

ordinary: .venv/.dev ## run the core of the end-to-end tests as an ordinary user; root becomes nobody
	$(ORDINARY) -n 3 $(BY_FILE) --most-skipped=3 $(ORDINARY_API) \
		'tests/e2e/test_examples.py::test_transcript[examples/guestbook/README.md]'
	$(ORDINARY) -n 3 $(BY_FILE) --most-skipped=10 $(ORDINARY_PODS)
	@if [ "$$(id -u)" = 0 ]; then $(SUBORDINATE) --most-skipped=3 $(SEVERAL_USERS); fi

plain: .venv/.dev ## run a part of the end-to-end tests in a container without privileges; takes root
	$(PLAIN) -n 3 --dist loadfile --most-skipped=6 $(IN_CONTAINER) $(PLAIN_TESTS)
	$(PLAIN) --most-skipped=0 $(NAMES_IN_CONTAINER)

soak: .venv/.dev ## kill processes at random for five minutes, and start a hundred pods ten times
	@tools/setup kubectl
	KEDGE_E2E_KILL_SECONDS=300 KEDGE_E2E_WAVES=10 $(E2E) tests/e2e/pods/test_kill.py

fuzz: .venv/.dev ## fuzz every parser and a real server for an hour; HOURS=0.5 for half an hour
	KEDGE_FUZZ_HOURS=$(HOURS) KEDGE_FUZZ_REQUESTS=1000000 KEDGE_FUZZ_SEED=$$RANDOM \
		$(PYTEST) -s --timeout 0 -n auto --dist loadfile tests/fuzz

coverage: .venv/.dev ## measure the coverage of the unit tests; print the total and the least covered modules
	@$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -q -n auto --dist loadfile $(or $(ONLY),tests/unit tests/seeds)
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report | sed -n '1,32p;/^TOTAL/p'

mutate: .venv/.dev ## run mutation tests of the pure modules; MUTANTS=0 for all mutants, ONLY=part of a module path
	$(BIN)/python tools/mutate.py --sample $(MUTANTS) --seed $(SEED) $(ONLY)

test: check site e2e ## run all checks and tests

bench: .venv/.dev need-wrk ## print one page of API figures, then the other benchmarks; PEER=URL PEER_TOKEN= PEER_PROCESSES=PID,PID compares
	$(BIN)/python bench/api.py --pods $(BENCH_PODS) --seconds $(BENCH_SECONDS) --rounds $(BENCH_ROUNDS) $(if $(PEER),--peer $(PEER) --peer-token "$(PEER_TOKEN)" --peer-processes "$(PEER_PROCESSES)")
	$(BIN)/python bench/start.py --runs 3 --pods 500
	$(BIN)/python bench/test_clusters.py --runs 5 --count 20
	$(BIN)/python bench/cli.py --runs 20
	$(BIN)/python bench/store.py 0.5
	$(BIN)/python bench/engines.py
	$(BIN)/python bench/limits.py --pods 500
	$(BIN)/python bench/cel.py
	$(BIN)/python bench/expression_pauses.py
	$(BIN)/python bench/scheduler.py
	$(BIN)/python bench/placement.py
	$(BIN)/python bench/workloads.py
	$(BIN)/python bench/services.py
	$(BIN)/python bench/policies.py
	$(BIN)/python bench/volumes.py

bench-check: .venv/.dev need-wrk ## compare processor time per API request with the accepted commit, in turns; fails over 15 % more
	$(BIN)/python bench/check.py

need-wrk:
	@command -v wrk >/dev/null || { echo "wrk, which generates the load, is not installed: apt install wrk" >&2; exit 1; }

docs: .venv/.dev ## generate docs/reference from the code, check all links, and build the documentation site
	$(BIN)/python tools/reference
	$(BIN)/python tools/check_links.py
	@$(MAKE) --no-print-directory site

site: .venv/.docs ## build the documentation site in build/site, from README, docs and examples
	$(BIN)/python tools/doc_site

lock: ## lock the newest versions of dependencies with their hashes; UPGRADE= keeps the versions
	@tools/lock $(UPGRADE)

audit: .venv/.dev ## look for known vulnerabilities in the dependencies of kedge
	@tools/audit requirements/run.txt

clean: ## remove .venv, caches and build results; clusters stay
	rm -rf .venv build .hypothesis .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .coverage*
	find src tests tools -name __pycache__ -prune -exec rm -rf {} +
	rm -rf src/*.egg-info

.venv/.run: pyproject.toml requirements/run.txt tools/setup
	@tools/setup run

.venv/.dev: pyproject.toml requirements/dev.txt tools/setup
	@tools/setup dev

.venv/.docs: .venv/.dev requirements/docs.txt
	@tools/setup docs
