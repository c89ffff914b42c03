# `make try` runs the main job, `make test` all checks; both set up what they need.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin

.PHONY: try serve test check test-load test-peers clean

.venv/.installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[ann,bench,gateway,onnx,postgres]' --group dev
	touch $@

try: .venv/.installed ## search a demo catalogue, then real servers through the gateway
	@$(BIN)/toolscout try
	@echo
	@$(BIN)/toolscout try --gateway

serve: .venv/.installed ## keep the gateway running in front of the demo servers
	@$(BIN)/toolscout serve --demo --http

# Servers that nobody here wrote, in Node; tests that need them are skipped where there is no npm.
.npm-servers/.installed:
	mkdir -p .npm-servers
	-command -v npm >/dev/null && npm install --prefix .npm-servers --silent --no-audit --no-fund \
		--ignore-scripts @modelcontextprotocol/server-everything@2026.8.31 \
		@modelcontextprotocol/server-filesystem@2026.8.31 \
		@modelcontextprotocol/server-memory@2026.8.31
	touch $@

check: .venv/.installed ## style and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright --warnings

test: check .npm-servers/.installed ## style, types and tests
	$(BIN)/python -m pytest -q

.venv-peers/.installed: pyproject.toml
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --upgrade pip
	.venv-peers/bin/python -m pip install --quiet --editable '.[ann,bench,onnx]' --group dev --group peers
	touch $@

test-load: .venv/.installed ## many clients, broken servers, kills; prints its figures
	$(BIN)/python -m pytest -q -s load

test-peers: .venv-peers/.installed ## the benchmark's peer systems, each with its real package
	.venv-peers/bin/python -m pytest -q tests/bench -p no:randomly

clean:
	rm -rf .venv .venv-peers .npm-servers .pytest_cache .ruff_cache .hypothesis dist
