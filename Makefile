# make results   run the study on this machine: environment, cells, figures, report
# make test      lint, types and tests
# make test-sites  tests with real components (browser, containers, scheduler); installs what it needs on Debian
# make bench     speed, as ratios in one run
# make clean     remove the environment; results stay
#
# TORCH_INDEX: where pip also looks for torch, for people who want CPU-only wheels; empty: pip's own index alone.
# PYTHON: the Python (3.11 or newer) that the environment is made from.

PYTHON ?= python3
TORCH_INDEX ?=
VENV := .venv
PINS := $(wildcard envs/*.txt)
# --no-compile: Python compiles what is imported when it first is, a fifth of what pip would compile (40 s less).
PIP_INSTALL = $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile \
	$(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))

export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
export PYTHONPATH := $(CURDIR)/workflow
unexport PYTHONDONTWRITEBYTECODE  # else every process would compile its imports anew

.PHONY: results test test-sites bench lint clean help

help:
	@sed -n 's/^# \{0,1\}//p' Makefile | head -n 8

results: $(VENV)/.host
	snakemake --profile local
	@echo "Report: $(CURDIR)/results/report.html"

test: $(VENV)/.test lint
	OMP_NUM_THREADS=1 python -m pytest -m "not sites" -n 2 --dist loadfile $(PYTEST)

test-sites: $(VENV)/.test
	bash tests/sites/setup.sh
	python -m pytest -m sites $(PYTEST)

bench: $(VENV)/.test
	python -m pytest tests/bench -o python_files='bench_*.py' --benchmark-only -s $(PYTEST)

lint: $(VENV)/.test
	ruff format --check .
	ruff check .
	mypy
	snakefmt --check Snakefile workflow/rules
	snakemake --lint

# One marker per pinned set: a changed pin installs again, an unchanged one costs nothing.
$(VENV)/.host: $(PINS) pyproject.toml | $(VENV)/bin/python
	@echo "Installing the pinned packages (a few minutes, once) ..."
	$(PIP_INSTALL) -r envs/host.txt
	$(PIP_INSTALL) --no-deps --editable .
	@touch $@

$(VENV)/.test: $(VENV)/.host
	@echo "Installing what the tests need ..."
	$(PIP_INSTALL) -r envs/test.txt
	@touch $@

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "error: $(PYTHON) is older than Python 3.11: name a newer one with make PYTHON=python3.12 ..." >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

clean:
	rm -rf $(VENV)
