# Two commands do everything: `make demo` and `make test`. A second run installs nothing.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
PIP = .venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# One thread a process: the suite runs two processes on two cores, and results depend on the thread count.
SINGLE = OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
export MUJOCO_GL ?= egl

.PHONY: demo demo-pixels test test-slow lint types bench clean

demo: .venv/.demo
	.venv/bin/bcrl demo

demo-pixels: .venv/.demo
	.venv/bin/bcrl demo --pixels

test: .venv/.test lint types
	$(SINGLE) .venv/bin/python -m pytest -m "not slow" -n 2 --dist loadfile

test-slow: .venv/.test
	$(SINGLE) .venv/bin/python -m pytest -m slow -n 2 --dist load --timeout 1500

lint: .venv/.test
	.venv/bin/ruff check --quiet .
	.venv/bin/ruff format --check --quiet .

types: .venv/.test
	.venv/bin/mypy

bench: .venv/.test
	.venv/bin/python -m bcrl_bench.speed.run

.venv/bin/python:
	@PYTHON=$(PYTHON) scripts/system.sh venv
	$(PYTHON) -m venv .venv

.venv/.demo: .venv/bin/python pyproject.toml src/bcrl_bench/pyproject.toml constraints.txt
	@scripts/system.sh render
	$(PIP) torch==2.13.0
	$(PIP) -e '.[onnx]' -e src/bcrl_bench
	@touch $@

.venv/.test: .venv/.demo
	@scripts/system.sh browser
	$(PIP) -e '.[onnx,sb3,ray,tensorboard,lerobot,dev]' -e src/bcrl_bench
	# Read as tables only; their code wants packages that nobody here does (gym, scikit-learn).
	$(PIP) --no-deps icu-sepsis==2.0.1 obp==0.4.1
	@touch $@

clean:
	rm -rf .venv .mypy_cache .ruff_cache .hypothesis demo-output
