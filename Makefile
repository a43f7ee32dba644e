# Two commands matter: `make up` and `make test`. `make help` lists the rest.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV_VERSION := 0.13.8
WORKERS ?= vllm
export WORKERS
# Bytecode is written even where the environment says not to: without it, starting a vLLM
# worker takes twice as long.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help install vllm up down status test test-tools test-bytecode test-lint test-fast test-programs test-product test-vllm test-postgresql test-kubernetes compiled test-engines lint fmt coverage wheel images chart texts bench fuzz lock clean

help: ## what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

$(VENV)/.ready: locks/dev.txt pyproject.toml
	@echo "==> preparing $(VENV) (pinned packages, a minute with a cold cache)"
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed; this is %s. Set PYTHON=python3.11" % sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	@test -x $(BIN)/pip || $(PYTHON) -m venv --clear $(VENV) || { echo "The venv module is missing: apt-get install python3-venv"; exit 1; }
	@$(BIN)/pip install -q --disable-pip-version-check uv==$(UV_VERSION)
	@VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install -q --require-hashes -r locks/dev.txt
	@VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install -q --no-deps --editable .
	@touch $@

install: $(VENV)/.ready ## prepare .venv and nothing else

vllm: install ## prepare .venv-vllm and the demo model (skipped with WORKERS=simulated)
	@$(BIN)/python -m console.launcher prepare

up: install ## set everything up and run it (DETACH=1 returns once the demo endpoint is Ready)
	@exec $(BIN)/python -m console.launcher up $(if $(DETACH),--detach)

down: ## stop everything that `make up` started
	@test -x $(BIN)/python && exec $(BIN)/python -m console.launcher down || echo "Nothing to stop."

status: install ## what runs
	@$(BIN)/python -m console.launcher status

lint: install ## ruff, mypy, import contracts, structure, terms, migrations
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python .ci/structure.py --check
	@$(BIN)/python .ci/terms.py
	@$(BIN)/mypy
	@$(BIN)/python manage.py makemigrations --check --dry-run

fmt: install ## format the code
	@$(BIN)/ruff check --fix-only -q . ; $(BIN)/ruff format -q .

# The files which hold tests with this mark: to read all the others takes a quarter of a minute.
ENGINE_TESTS = tests/routing/engine tests/cachetier/engine tests/cachetier/wire
marked = $$(grep -rl --include='test_*.py' 'mark\.$(1)' tests | sort)

# Side by side goes what mostly waits for the network, a disk or a clock beside what computes. The
# programs take turns and determine the length; the fast tests take the time that they leave.
test: install ## everything: lint, unit and contract tests, the compiled engines, real vLLM, Chromium, `make up`
	@$(MAKE) --no-print-directory -j4 -k COMPILE=test-bytecode test-fast test-programs test-lint

# One after the other: each starts programs that compute in bursts and wait in between.
test-programs: vllm test-tools ## the whole product, then real vLLM
	@for part in test-product test-vllm; do \
	  $(MAKE) --no-print-directory $$part || ended=1; done; exit $${ended:-0}

# $(call later,NAME,ARGUMENTS): pytest beside another run, printed whole at its end.
later = mkdir -p var/log; $(BIN)/pytest $(2) $(PYTEST_ARGS) > var/log/$(1).log 2>&1; ended=$$?; cat var/log/$(1).log; exit $$ended

test-lint: install ## lint; prints at its end
	@mkdir -p var/log; $(MAKE) --no-print-directory lint > var/log/$@.log 2>&1; ended=$$?; cat var/log/$@.log; exit $$ended

# In a fresh clone, each process of test-fast would compile every test: 14 s of CPU time each. Only
# `make test` asks for it.
test-bytecode: install
	@$(BIN)/pytest --collect-only -q $(PYTEST_ARGS) > /dev/null 2>&1 || true  # test-fast reports it

test-vllm: vllm ## real vLLM workers, shared by the tests of one process; prints at its end
	@$(call later,$@,-m "vllm and not e2e" $(call marked,vllm))

test-tools: install
	@$(BIN)/python -m console.launcher test-tools

# The engines' own tests run on what ships, compiled engines; all others on interpreted ones.
test-fast: test-tools $(COMPILE) ## tests that need no vLLM and do not start the whole product
	@$(BIN)/pytest -n 3 --dist worksteal -m "not vllm and not e2e" $(ENGINE_TESTS:%=--ignore %) $(PYTEST_ARGS) || ended=1; \
	$(MAKE) --no-print-directory test-engines || ended=1; exit $${ended:-0}

test-product: vllm test-tools ## the whole product from a clean clone, real workers and then simulated ones; prints at its end
	@$(call later,$@,-m e2e $(call marked,e2e))

test-postgresql: test-tools ## the tests over PostgreSQL: EMBERLINE_TEST_DATABASE_URL=postgres://USER:PASSWORD@HOST/DB
	@test -n "$$EMBERLINE_TEST_DATABASE_URL" || { echo "Set EMBERLINE_TEST_DATABASE_URL." >&2; exit 1; }
	@$(BIN)/pytest -n 2 -m "not vllm and not e2e and not browser" $(PYTEST_ARGS) \
	  tests/cachetier/pages tests/console tests/dashboards tests/endpoints tests/journeys

test-kubernetes: install ## a real control plane, from the programs in KUBEBUILDER_ASSETS
	@$(BIN)/pytest -m kubernetes $(PYTEST_ARGS)

# A copy, since the interpreter would import the libraries in place of edited sources.
compiled: test-tools ## a copy in var/compiled, its engines compiled (a minute, then cached)
	@rm -rf var/compiled && mkdir -p var/compiled
	@git ls-files -z | xargs -0 cp --parents -t var/compiled
	@$(BIN)/python deploy/containers/compile_engines.py var/compiled --cached 2> var/compiled/log || { cat var/compiled/log; exit 1; }
	@$(BIN)/python deploy/containers/compile_engines.py var/compiled --check

# More processes than cores: half of the time, these tests wait.
test-engines: compiled ## the tests of router and cache node on that copy
	@mkdir -p var/compiled/var; for path in .venv-vllm var/models var/tools; do \
	  test ! -e $$path || ln -sfn $(CURDIR)/$$path var/compiled/$$path; done
	@cd var/compiled && PYTHONPATH=$$PWD $(CURDIR)/$(BIN)/python -m pytest -n 5 --dist worksteal \
	  -m "not vllm and not e2e" $(PYTEST_ARGS) $(ENGINE_TESTS)

wheel: install ## build the wheel (dist/)
	@$(BIN)/uv build -q --wheel --out-dir dist .

images: ## build the three images with podman or docker
	@builder=$$(command -v podman || command -v docker) || { echo "Install podman or docker." >&2; exit 1; }; \
	version=$$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml); \
	for image in console engine worker; do $$builder build --build-arg VERSION=$$version \
	  -f deploy/containers/$$image.Containerfile -t emberline-$$image:$$version . || exit 1; done

coverage: test-tools ## lines that the fast tests run (var/coverage)
	@mkdir -p var/coverage && cd $(CURDIR) && COVERAGE_FILE=$(CURDIR)/var/coverage/data $(BIN)/coverage run -m pytest -q -n 2 \
	  -m "not vllm and not e2e and not browser" $(PYTEST_ARGS) tests/; \
	COVERAGE_FILE=$(CURDIR)/var/coverage/data $(BIN)/coverage combine -q var/coverage; \
	COVERAGE_FILE=$(CURDIR)/var/coverage/data $(BIN)/coverage report --sort=miss | tail -40

chart: install ## write the chart's dashboards and rules; with Helm, package it (dist/)
	@$(BIN)/python deploy/helm/chart_files.py
	@if command -v helm > /dev/null; then helm package -d dist deploy/helm/emberline; fi

texts: install ## write var/ui-texts.md, all texts of the interface by file
	@$(BIN)/python .ci/ui_texts.py

bench: install ## measure, side by side with others (docs/benchmarks.md)
	@$(BIN)/python -m bench

fuzz: install ## ten minutes of coverage-guided fuzzing; findings go to var/fuzz/findings
	@nice $(BIN)/python -m tests.fuzz --seconds 60

lock: install ## refresh locks/ from pyproject.toml
	@VIRTUAL_ENV=$(VENV) $(BIN)/uv pip compile -q --python-version 3.11 --no-header --no-annotate --generate-hashes \
	  --extra console --extra router --extra tracing --extra kubernetes --extra postgres --extra aws --extra dev pyproject.toml -o locks/dev.txt
	@for image in "console --extra console --extra kubernetes --extra postgres --extra aws" "engine --extra router --extra tracing" "compile --extra compile"; do set -- $$image; name=$$1; shift; \
	  VIRTUAL_ENV=$(VENV) $(BIN)/uv pip compile -q --python-version 3.11 --no-header --no-annotate --generate-hashes \
	  --constraint locks/dev.txt "$$@" pyproject.toml -o locks/$$name.txt; done

clean: down ## remove environments and all state
	rm -rf $(VENV) .venv-vllm var build dist *.egg-info
