# make run: train a real model and fly it.   make test: all that CI runs.   Both work on a fresh clone.
PYTHON ?= python3
RUN ?= run
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help venv run test lint bench torture soak screenshots clean

help:
	@echo "make run          make .venv, start (or attach to) a run in $(RUN)/"
	@echo "make test         lint, types, import contracts and all tests"
	@echo "make lint | bench | screenshots | torture N=1000 | soak N=3600 | clean"

venv: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("andrea-tui needs Python 3.11 or later, this is " + sys.version.split()[0] + "; make PYTHON=python3.12 …" if sys.version_info < (3, 11) else 0)'
	@echo "making .venv (torch and the rest; minutes the first time)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	@# compat: a path in a .pth file; setuptools' usual finder takes 40 ms of every start
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
		--config-settings editable_mode=compat -e '.[dev,gpu]'
	@$(BIN)/python -m compileall -q engine andrea_tui
	@touch .venv/ready

run: .venv/ready
	@exec $(BIN)/andrea-tui $(RUN)

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Two workers: most tests wait for a process that starts. A file's tests stay together, since they share a trained run.
test: lint
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

bench: .venv/ready
	$(BIN)/python -m bench

screenshots: .venv/ready
	$(BIN)/python screenshots/make.py

torture: .venv/ready
	$(BIN)/python -m tests.torture $(or $(N),1000)

# A monkey at the cockpit's keys for N seconds, with resizes.
soak: .venv/ready
	$(BIN)/python -m tests.soak --seconds $(or $(N),3600)

clean:
	rm -rf .venv build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
