# Everything a fresh machine needs: `make run` for the main job, `make test` for the tests.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: run test lint firmware

run: .venv/installed
	$(BIN)/accelerate launch pipelines/train.py --workload cvrp --resume
	$(BIN)/accelerate launch pipelines/evaluate.py --workload cvrp

test: .venv/installed
	$(BIN)/python -m pytest

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Rebuilds exporters/rp2040/runtime.bin byte for byte; needs Debian's gcc-arm-none-eabi.
firmware:
	$(MAKE) -C exporters/rp2040/firmware

.venv/installed: requirements.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.txt
	touch $@
