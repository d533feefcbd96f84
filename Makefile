# make repro   environment, then the whole graph: images -> report, on the built-in data set
# make test    environment, then everything that can fail: lint, types, import rules, all tests
# make check   the fast part of `make test`
# make docs    these pages and an API reference as a site: site/index.html
# make bench   compared with lower bounds, as ratios, in benchmarks/results.json; runs to the end, then names
#              what missed a target
# make torture campaigns of faults, kills, damaged files, memory and determinism; each continues; hours.
#              CORPORA=DIR adds public broken files, which are downloaded there
# make cluster the packages of `ray job submit` and of the dashboard
# make serve   the packages of `unseen serve`
# make s3      the packages of a DVC remote on S3
# make lock    requirements/*.txt from the ranges of pyproject.toml; with UPGRADE=1 the newest versions in them

PYTHON ?= python3
VENV ?= .venv
# The two builds of FAISS exclude each other; an NVIDIA GPU gets the GPU build.
FAISS := $(shell if command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L 2>/dev/null | grep -q GPU; then echo gpu; else echo cpu; fi)
# OpenMP threads that spin while they wait slow down every library as soon as another process is busy.
export OMP_WAIT_POLICY := passive
# Packages are installed without bytecode. Where this variable is set, every process would compile all its modules
# again: 15 s of CPU instead of 6 s for the modules of a training.
unexport PYTHONDONTWRITEBYTECODE
APART := OMP_NUM_THREADS=1# one thread in each test process
# One process more than cores: tests wait for clusters and for the stages of the graph.
TESTS := $(APART) pytest -q -n $(shell expr $$(nproc) + 1)
export PATH := $(abspath $(VENV))/bin:$(PATH)

.PHONY: repro test check test-tests check-tests lint docs bench torture cluster serve s3 lock help
help:
	@sed -n '1,13s/^# //p' Makefile

repro: $(VENV)/.runtime-$(FAISS)
	@echo "== dvc repro: images -> shards -> models -> embeddings -> metrics -> report"
	dvc repro
	@echo "== open data/report/index.html"

# Lint runs beside the tests, which start with imports.
test check: $(VENV)/.development-$(FAISS)
	@$(MAKE) --no-print-directory -j 2 lint $@-tests

test-tests:
	$(TESTS)

check-tests:
	$(TESTS) -m "not ray and not graph and not slow"

lint: $(VENV)/.development-$(FAISS)
	ruff check .
	ruff format --check .
	mypy
	lint-imports

docs: $(VENV)/.docs-$(FAISS)
	python -m tools.docs.published > docs/.page && mv docs/.page docs/published.md
	python -m tools.docs.studies > docs/.page && mv docs/.page docs/studies.md
	python -m tools.docs.library > docs/.page && mv docs/.page docs/library.md
	python -m tools.docs.site
	@echo "== open site/index.html; search needs a server: python -m http.server -d site"

bench: $(VENV)/.development-$(FAISS)
	@missed=; for file in benchmarks/[a-z]*.py; do echo "== $$file"; RATIOS=benchmarks/results.json python $$file || missed="$$missed $$file"; done; \
	test -z "$$missed" || { echo "failed, or missed a target:$$missed"; exit 1; }

torture: $(VENV)/.development-$(FAISS)
	$(if $(CORPORA),python -m tests.torture.corpora "$(CORPORA)" && $(APART) python -m tests.torture.broken_files "$(CORPORA)")
	@for campaign in determinism mutations kills memory file_operations clusters resizes sabotages neighbours attacks remedies; do \
	  echo "== $$campaign"; $(APART) python -m tests.torture.$$campaign; done
	python -m tools.docs.reliability > docs/.page && mv docs/.page docs/reliability.md

# An environment whose creation was interrupted has a Python without pip: it is created again.
$(VENV)/.python:
	@$(VENV)/bin/python -m pip --version >/dev/null 2>&1 || { \
	  $(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"unseen needs Python 3.11 or newer, {sys.executable} is {v.major}.{v.minor}. Name another one: make PYTHON=/path/to/python3.12 ...")' && \
	  echo "== creating the environment in $(VENV) with $(PYTHON)" && $(PYTHON) -m venv $(VENV); }
	@touch $@

# All packages have the versions and hashes of requirements/*.txt. torch has a version only: the configuration of pip
# chooses among its builds, and the CUDA build needs its libraries besides.
# Python compiles the modules that it imports, which are few: --no-compile halves the time of the installation.
# The user of a container cannot store what it compiles: deploy/Dockerfile sets COMPILE=--compile.
COMPILE := --no-compile
INSTALL := $(VENV)/bin/python -m pip install --quiet $(COMPILE) --no-deps --no-build-isolation
LOCKED := $(INSTALL) --require-hashes
LOCKS := $(wildcard requirements/*.txt)
define install
	@$(VENV)/bin/python requirements/unfinished.py
	$(LOCKED) -r requirements/build.txt
	$(LOCKED) -r requirements/runtime.txt -r requirements/faiss-$(FAISS).txt $(1)
	$(INSTALL) -r requirements/torch.txt
	@if $(VENV)/bin/python -c 'import importlib.metadata as m; exit("cuda" not in str(m.requires("torch")))'; \
	  then $(LOCKED) -r requirements/cuda.txt; fi
	$(INSTALL) -e .
	@$(VENV)/bin/python -m pip check
endef

$(VENV)/.runtime-$(FAISS): pyproject.toml $(LOCKS) | $(VENV)/.python
	@echo "== installing ($(FAISS) build of FAISS; a few minutes, about 2 GB)"
	$(call install)
	@touch $@

$(VENV)/.development-$(FAISS): pyproject.toml $(LOCKS) | $(VENV)/.python
	@echo "== installing with development tools ($(FAISS) build of FAISS; a few minutes, about 2 GB)"
	$(call install,-r requirements/development.txt)
	@touch $@ $(VENV)/.runtime-$(FAISS)

$(VENV)/.docs-$(FAISS): $(VENV)/.development-$(FAISS)
	$(LOCKED) -r requirements/docs.txt
	@touch $@

cluster: $(VENV)/.runtime-$(FAISS)
	$(LOCKED) -r requirements/cluster.txt

serve: $(VENV)/.runtime-$(FAISS)
	$(LOCKED) -r requirements/serve.txt

s3: $(VENV)/.runtime-$(FAISS)
	$(LOCKED) -r requirements/s3.txt

lock: $(VENV)/.python
	$(VENV)/bin/python -m pip install --quiet uv==0.13.9
	$(VENV)/bin/python requirements/lock.py $(if $(UPGRADE),--upgrade)
