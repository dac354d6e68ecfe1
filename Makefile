# Every target that needs the environment sets it up first; `make help` lists them.
# Say on the command line what should differ: make setup PYTHON=python3.12 TORCH_INDEX=<address>
.DEFAULT_GOAL := help
.NOTPARALLEL:

PYTHON ?=
TORCH_INDEX ?=
OUT ?= out
LAB ?=

BIN := .venv/bin
READY := .venv/ready
export PATH := $(CURDIR)/$(BIN):$(PATH)

# The stamp holds the folder it was made for, since an environment does not survive a move. It is
# read with the environment's own Python, so a Python that was uninstalled counts as not ready too.
FOR := $(shell $(BIN)/python -c 'print(open("$(READY)").read().strip())' 2>/dev/null)
ifneq ($(FOR),$(CURDIR))
$(READY): again
endif
# Whoever names a Python or a torch means it, even when there is an environment already.
ifneq ($(PYTHON)$(TORCH_INDEX),)
$(READY): again
endif

.PHONY: help setup lab test build kernels nbval-cpu nbval-gpu lint format bench formgrader mistakes clean again

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{ printf "%-18s %s\n", $$1, $$2 }'

$(READY): pyproject.toml constraints.txt autograder/kernels.py
	@PYTHON="$(PYTHON)" TORCH_INDEX="$(TORCH_INDEX)" bash setup.sh

setup: $(READY) ## make .venv with the pinned packages and the two Jupyter kernels
	@echo "setup: .venv is ready"

lab: setup ## open JupyterLab on lesson 01, in my-notebooks/ (your own copies)
	@mkdir -p my-notebooks
	@for notebook in notebooks/*.ipynb; do \
	    copy=my-notebooks/$${notebook#notebooks/}; \
	    [ -e "$$copy" ] || { cp "$$notebook" "$$copy"; echo "lab: new copy $$copy"; }; \
	done
	@echo "lab: opening my-notebooks/01_norm.ipynb; what you write there stays yours. Ctrl-C here ends it."
	@# Jupyter refuses to run as root, the usual user in a container, unless it is told to.
	@$(BIN)/python -m jupyterlab $(if $(filter 0,$(shell id -u)),--allow-root) $(LAB) my-notebooks/01_norm.ipynb

test: setup lint ## everything CI runs on a CPU: lint, types, fresh notebooks, tests, nbval
	@echo "test: are the committed notebooks what builds? (autograder build --check)"
	@$(BIN)/autograder build --check
	@echo "test: unit, grading and browser tests (pytest)"
	@# Two at a time (tests/conftest.py says which stay together): some compute, others wait.
	@$(BIN)/python -m pytest -n 2 --dist loadscope
	@$(MAKE) --no-print-directory nbval-cpu nbval-gpu PYTHON= TORCH_INDEX=

build: $(READY) ## build notebooks/ and solutions/*.ipynb from lessons/ and solutions/*.py
	@$(BIN)/autograder build

kernels: $(READY) ## install the Jupyter kernels course-cpu and course-cuda into .venv again
	@$(BIN)/autograder kernels

nbval-cpu: $(READY) ## re-execute every notebook on the CPU and compare its outputs
	@echo "nbval-cpu: re-executing every notebook on the kernel course-cpu"
	@$(BIN)/python -m autograder.nbval_strict cpu

nbval-gpu: $(READY) ## the same on CUDA; says so where there is none (REQUIRE_CUDA=1: fails)
	@echo "nbval-gpu: re-executing every notebook on the kernel course-cuda"
	@$(BIN)/python -m autograder.nbval_strict gpu

lint: $(READY) ## ruff and mypy (pytest lints the code cells of the lessons)
	@echo "lint: ruff check"
	@$(BIN)/ruff check .
	@echo "lint: ruff format --check"
	@$(BIN)/ruff format --check .
	@echo "lint: mypy"
	@$(BIN)/mypy

format: $(READY) ## let ruff format the code and sort its imports
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

bench: $(READY) ## measure plain nbgrader against autograder grade, into docs/bench.md
	@$(BIN)/python -m autograder.grading.bench --out docs

formgrader: $(READY) ## open nbgrader's formgrader on a graded class: make formgrader OUT=out
	@$(BIN)/python -m autograder.grading.formgrader $(OUT)

mistakes: $(READY) ## the table of known mistakes: what each loses, and whether it is recognised
	@$(BIN)/autograder mistakes

clean: ## remove .venv and the caches; my-notebooks/ and graded classes stay
	rm -rf .venv .pytest_cache .ruff_cache .mypy_cache build dist *.egg-info
	find . -name .git -prune -o -name __pycache__ -prune -exec rm -rf {} +
