# Two commands on a fresh machine: make demo, make test. Both install what they need into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DATA ?= ../shared/data/ultratool
OUT ?= build/accuracy
PIP := $(BIN)/pip --disable-pip-version-check --quiet
# bench-gpu brings nothing: a machine with a GPU has a torch of its own.
GPU_PYTHON ?= python3
GPU_DATA ?= $(DATA)/trajectories.jsonl.gz
export HF_HUB_OFFLINE ?= 1

.PHONY: demo test test-all check up down bench bench-accuracy bench-gpu clean help

help:
	@echo "make demo    the nightly job twice on real trajectories"
	@echo "make test    the tests, under 7 minutes on two cores"
	@echo "make up      Prefect server, MLflow server and worker on loopback, schedules applied"
	@echo "make down    ends them and their flow runs"
	@echo "make check   ruff, mypy, import contracts"
	@echo "make bench   benchmarks (never part of make test)"
	@echo "make bench-accuracy   plans beside baselines and goals on real sets, into $(OUT)"
	@echo "make bench-gpu   a training and timed steps on one GPU, under 5 minutes"

demo: $(VENV)/.installed
	$(BIN)/toolatlas demo

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest

test-all: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m "slow or not slow"

check: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

up: $(VENV)/.installed
	$(BIN)/python -m flows.services up

down: $(VENV)/.installed
	$(BIN)/python -m flows.services down

bench: $(VENV)/.installed-dev
	$(BIN)/python tests/benchmarks/bench_gtool.py --data $(DATA)
	PYTHONPATH=. $(BIN)/python tests/benchmarks/bench_encoder.py --data $(DATA)/trajectories.jsonl.gz
	$(BIN)/python tests/benchmarks/bench_ingest.py --calls 200000
	$(BIN)/python tests/benchmarks/bench_graph.py --calls 2000000 --rows 500000
	$(BIN)/python tests/benchmarks/bench_history.py --nights 20 --edges 50000 --sizes 2000x200000
	$(BIN)/python tests/benchmarks/bench_mining.py --data $(dir $(DATA))
	$(BIN)/python tests/benchmarks/bench_llm.py --data $(DATA)
	$(BIN)/python tests/benchmarks/bench_predicted.py --data $(DATA) --mdpl
	$(BIN)/python tests/benchmarks/bench_links.py --data $(dir $(DATA))

bench-accuracy: $(VENV)/.installed-dev
	$(BIN)/python tests/benchmarks/bench_accuracy.py --out $(OUT) --data $(dir $(DATA)) $(ARGS)

bench-gpu:
	PYTHONPATH=. $(GPU_PYTHON) tests/benchmarks/bench_gpu.py --data $(GPU_DATA)

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache

# torch first and by its exact version, so that nothing pulls another build of it.
$(VENV)/.installed: requirements.lock requirements-data.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV), a few minutes the first time ..."
	$(PIP) install torch==2.13.0
	$(PIP) install -r requirements.lock
	$(PIP) install --no-deps -r requirements-data.lock
	$(PIP) install --no-deps --editable .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed requirements-dev.lock
	$(PIP) install -r requirements-dev.lock
	touch $@
