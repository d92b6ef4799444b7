# Two commands do everything on a fresh machine: make check, make test.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Whoever changes what is installed makes the environment anew.
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help check test lint types docs coverage bench pyz clean

help:
	@echo 'make check   examine this machine and give a verdict'
	@echo 'make test    lint, type-check and test; needs no root and no network after the install'
	@echo 'make lab     test on booted kernels and in real containers (installs Debian packages)'
	@echo 'make docs    write docs/checks/ and docs/exit-codes.md from the code'
	@echo 'make pyz     write dist/numadoctor.pyz: one file that any Python runs'
	@echo 'make bench   run the benchmarks and print their ratios'

$(STAMP): setup.cfg pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "numadoctor needs Python 3.10 or later: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test,dev]'
	touch $@

check: $(STAMP)
	@$(BIN)/numadoctor check; code=$$?; \
	[ $$code -le 1 ] || exit $$code  # a machine with faults is an answer, not a failed make

test: $(STAMP) lint types
	$(BIN)/python -m pytest

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

docs: $(STAMP)
	$(BIN)/python docs/generate.py

coverage: $(STAMP)
	$(BIN)/coverage run --source=numadoctor.host.parsers -m pytest -q tests/host/parsers
	$(BIN)/coverage report --fail-under=100 --show-missing

bench: $(STAMP)
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/allocator.py
	$(BIN)/python benchmarks/maps.py
	$(BIN)/python benchmarks/observer.py
	$(BIN)/python benchmarks/lint.py

pyz: $(STAMP)
	$(BIN)/python deploy/pyz.py dist/numadoctor.pyz

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

-include lab.mk
