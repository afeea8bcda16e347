# Everything a fresh machine needs: `make run` for the main job, `make test` for the tests.
PYTHON ?= python3
BIN := .venv/bin

# Of `make run`: the run's name, and changes to its config, such as WORDS="training.steps=150".
NAME := default
WORDS :=
RESUME = $(if $(wildcard runs/cvrp/$(NAME)/config.yaml),--resume)
# Of `make evidence`: the parts to measure, all if empty; `.venv/bin/python tests/evidence.py --list` shows them.
PARTS :=

# Each of the many processes of tests would compile the same modules anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help run test lint docs evidence mutants pictures firmware

run: .venv/installed  # install, train the route planner, evaluate it
	$(BIN)/accelerate launch pipelines/train.py --workload cvrp --name $(NAME) $(RESUME) $(WORDS)
	$(BIN)/accelerate launch pipelines/evaluate.py --workload cvrp --name $(NAME)

test: .venv/installed  # all quick tests, without network or GPU
	$(BIN)/python -m pytest

lint: .venv/installed  # style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Writes docs/configuration.md from the config classes.
docs: .venv/installed
	$(BIN)/python tests/configuration.py

# Measures what the documents state, into docs/evidence.json; all parts take hours.
evidence: .venv/installed
	$(BIN)/python tests/evidence.py $(PARTS)

# Changes the code in small ways, one at a time, and lists the changes that no test notices; an hour or two.
mutants: .venv/installed
	$(BIN)/python tests/mutants.py

# Draws docs/pictures from short runs, which are trained first if they are not there: some ten minutes on one core.
pictures: .venv/installed
	$(BIN)/python tests/pictures/make.py

# Rebuilds exporters/rp2040/runtime.bin and runtime_rp2350.bin byte for byte; needs Debian's gcc-arm-none-eabi.
firmware:
	$(MAKE) -C exporters/rp2040/firmware

help:  # these lines
	@sed -n 's/^\([a-z]*\):.*# /make \1: /p' Makefile

.venv/installed: requirements.txt
	@echo "installing the packages of requirements.txt into .venv: some minutes, some gigabytes"
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --timeout 60 -r requirements.txt
	touch $@
