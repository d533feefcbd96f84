# make repro   environment, then the whole graph: images -> report, on the built-in data set
# make test    environment, then everything that can fail: lint, types, import walls, all tests
# make check   the two-minute part of `make test`
# make docs    these pages and an API reference as a site: site/index.html
# make bench   measured against the floors, as ratios; runs to the end, then names what missed a target

PYTHON ?= python3
VENV ?= .venv
# The two builds of FAISS exclude each other; an NVIDIA GPU gets the GPU build.
FAISS := $(shell if command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L 2>/dev/null | grep -q GPU; then echo gpu; else echo cpu; fi)
# OpenMP threads that spin while they wait make every library crawl as soon as another process is busy.
export OMP_WAIT_POLICY := passive
APART := OMP_NUM_THREADS=1# one test process per core, one thread each
export PATH := $(abspath $(VENV))/bin:$(PATH)

.PHONY: repro test check lint docs bench help
help:
	@sed -n '1,5s/^# //p' Makefile

repro: $(VENV)/.runtime-$(FAISS)
	@echo "== dvc repro: images -> shards -> models -> embeddings -> metrics -> report"
	dvc repro
	@echo "== open data/report/index.html"

test: lint
	@echo "== tests without a cluster"
	$(APART) pytest -q -n auto -m "not ray and not graph"
	@echo "== tests of the cluster and of the graph"
	pytest -q -m "ray or graph"

check: lint
	$(APART) pytest -q -n auto -m "not ray and not graph and not slow"

lint: $(VENV)/.development-$(FAISS)
	ruff check .
	ruff format --check .
	mypy
	lint-imports

docs: $(VENV)/.docs-$(FAISS)
	python -m pipeline.published.document > docs/.page && mv docs/.page docs/published.md
	python -m pipeline.methods.document > docs/.page && mv docs/.page docs/library.md
	NO_MKDOCS_2_WARNING=1 mkdocs build --quiet
	@echo "== open site/index.html, or type mkdocs serve: search needs a server"

bench: $(VENV)/.development-$(FAISS)
	@missed=; for file in benchmarks/[a-z]*.py; do echo "== $$file"; python $$file || missed="$$missed $$file"; done; \
	test -z "$$missed" || { echo "failed, or missed a target:$$missed"; exit 1; }

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"unseen needs Python 3.11 or newer, {sys.executable} is {v.major}.{v.minor}. Say which: make PYTHON=/path/to/python3.12 ...")'
	@echo "== creating the environment in $(VENV) with $(PYTHON)"
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime-$(FAISS): pyproject.toml | $(VENV)/bin/python
	@echo "== installing ($(FAISS) build of FAISS; a few minutes, about 2 GB)"
	$(VENV)/bin/python -m pip install --quiet -e '.[$(FAISS)]'
	@touch $@

$(VENV)/.development-$(FAISS): pyproject.toml | $(VENV)/bin/python
	@echo "== installing with development tools ($(FAISS) build of FAISS; a few minutes, about 2 GB)"
	$(VENV)/bin/python -m pip install --quiet -e '.[$(FAISS),dev]'
	@touch $@ $(VENV)/.runtime-$(FAISS)

$(VENV)/.docs-$(FAISS): $(VENV)/.development-$(FAISS)
	$(VENV)/bin/python -m pip install --quiet -e '.[docs]'
	@touch $@
