# `make try` runs the main job, `make test` all checks; both set up what they need.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin

.PHONY: try test check test-peers clean

.venv/.installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[ann,bench,gateway,onnx]' --group dev
	touch $@

try: .venv/.installed ## search the demo catalogue
	@$(BIN)/toolscout try

check: .venv/.installed ## style and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright --warnings

test: check ## style, types and tests
	$(BIN)/python -m pytest -q

.venv-peers/.installed: pyproject.toml
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --upgrade pip
	.venv-peers/bin/python -m pip install --quiet --editable '.[ann,bench,onnx]' --group dev --group peers
	touch $@

test-peers: .venv-peers/.installed ## the benchmark's peer systems, each with its real package
	.venv-peers/bin/python -m pytest -q tests/bench -p no:randomly

clean:
	rm -rf .venv .venv-peers .pytest_cache .ruff_cache .hypothesis dist
