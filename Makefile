# One environment in .venv for everything. PYTHON is used only to create it: make PYTHON=python3.12 lab

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

# Jupyter looks for kernels in the user's own folders before the environment's whenever it is unsure who owns .venv
# (under sudo, or in a container). This puts the environment's python3 kernel first always.
export JUPYTER_PREFER_ENV_PATH := 1

.DEFAULT_GOAL := help
# As many tests at a time: make WORKERS=15 test, on a machine of 16 cores with a GPU, of whose memory each wants about 2 GB.
WORKERS ?= 2
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadscope --no-loadscope-reorder

.PHONY: help setup lab refresh test test-slow test-all notebooks book figures lecture format lint pins clean

help:  ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s%s\n", $$1, $$2 }' Makefile

setup: $(STAMP)  ## create .venv and install the pinned versions, if not done yet

# The stamp makes the second time quick; a change to what is to be installed makes it stale. A .venv that was made in
# another folder (the checkout was moved or copied) is dead, since its programs name that folder, and so is one whose
# Python is gone: it is made anew. `python -m venv` notes in pyvenv.cfg the folder that it was called for.
ALIVE := $(shell [ -x $(BIN)/python ] && grep -sF " $(CURDIR)/.venv" .venv/pyvenv.cfg)
ifeq ($(ALIVE),)
.PHONY: $(STAMP)
endif

$(STAMP): pyproject.toml constraints.txt
	@command -v "$(PYTHON)" >/dev/null || { \
	    echo "flashlearn needs Python 3.11 to 3.14, but there is no '$(PYTHON)'. Name one: make PYTHON=python3.11 ..." >&2; \
	    exit 1; }
	@"$(PYTHON)" -c 'import sys; v = sys.version_info[:2]; (3, 11) <= v <= (3, 14) or sys.exit( \
	    "flashlearn needs Python 3.11 to 3.14, but $(PYTHON) is Python %d.%d. Name another: make PYTHON=python3.11 ..." % v)'
	$(if $(ALIVE),,rm -rf .venv)
	"$(PYTHON)" -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(STAMP)

# Jupyter asks for a token, and takes the next free port by itself when 8888 is taken. --allow-root: in a container one
# often is root; without it Jupyter refuses to start there. default_url, not a file as argument: so that the address
# printed for those without a browser at hand leads to the notebook too.
# What is opened is a working copy, my_course/: the notebooks that git has stay as they are.
lab: setup  ## open your copy of the course, my_course/, in JupyterLab, on this machine only
	$(BIN)/python tools/my_course.py
	$(BIN)/python -m jupyterlab --ip=127.0.0.1 --allow-root --ServerApp.root_dir=. \
	    --LabApp.default_url=/lab/tree/my_course/00_start_here.ipynb

refresh: setup  ## hand out new versions of the notebooks in my_course/ that you have not changed
	$(BIN)/python tools/my_course.py --refresh

# One pytest run for the unit tests, the browser tests and the notebooks: --nbval runs each notebook in a new kernel of
# this environment and compares its stored text outputs; loadscope keeps the cells of a notebook on one worker, in order.
# Notebooks come first, for they take longest, and small files last, so that both workers end at about the same time.
# --ignore-glob: a notebook that a test has left under tests/ is none of the course. One thread for each process: two
# kernels with two threads each, on two cores, wait for each other ten times as long as they compute. Painting takes half
# the time of the notebooks: of their animations `make test` paints the stills, `make test-slow` every frame. Importing
# PyTorch takes a quarter: tests.forked does it once for the kernels of a worker.
NOTEBOOKS := notebooks
NBVAL := --nbval --nbval-current-env --nbval-cell-timeout=120 --ignore-glob='tests/*.ipynb'

test: setup  ## run the quick tests and all notebooks: 5 minutes on two cores
	FLASHLEARN_REDUCED_MOTION=1 $(PYTEST) -p tests.forked -m 'not slow' $(NBVAL) $(NOTEBOOKS) tests

test-slow: setup  ## run the tests marked slow, and the notebooks with all frames
	$(PYTEST) -p tests.forked $(NBVAL) $(NOTEBOOKS)
	$(PYTEST) -m slow tests

test-all: test test-slow  ## run every test

notebooks: setup  ## run all notebooks again, top to bottom, and store their outputs
	$(BIN)/python tools/run_notebooks.py

book: setup  ## build the static book, build/book/index.html; notebooks are run again for its pictures
	$(BIN)/python -m tools.book

figures: setup  ## write every picture as SVG and PDF, for your own slides: build/figures/index.html
	$(BIN)/python -m tools.figures

lecture: setup  ## build the lecture, build/lecture/index.html; MINUTES=45, MINUTES=2x45 or SLIDES=my_lecture before it
	$(BIN)/python -m tools.lecture --minutes $(or $(MINUTES),90) --slides $(or $(SLIDES),lecture)

format: setup  ## format code and notebooks, make the map of the code again
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/python -m tools.code_map

lint: setup  ## check code and notebooks with ruff, types with mypy, change nothing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

pins: setup  ## move the pinned versions to the newest, run everything, say what broke
	$(BIN)/python tools/pins.py

clean:  ## remove .venv, caches and everything else that make or the tests left; my_course/ stays
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis tests/artifacts
	find . -path ./my_course -prune -o \( -name __pycache__ -o -name .ipynb_checkpoints \) -prune -exec rm -rf {} +
