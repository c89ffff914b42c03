# `make try` runs the main job, `make test` all checks; both set up what they need.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin

.PHONY: try serve test check test-load test-peers test-adapters lock-adapters clean

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

# Servers and a client that nobody here wrote, in Node; where there is no npm, a wheel brings it.
.npm-servers/.installed: Makefile .venv/.installed
	mkdir -p .npm-servers
	command -v npm >/dev/null || $(BIN)/python -m pip install --quiet --group node
	PATH="$$PATH:$(CURDIR)/$(BIN)" npm install --prefix .npm-servers --silent --no-audit --no-fund \
		--ignore-scripts @modelcontextprotocol/inspector@2.12.0 \
		@modelcontextprotocol/server-everything@2026.8.31 \
		@modelcontextprotocol/server-filesystem@2026.8.31 \
		@modelcontextprotocol/server-memory@2026.8.31
	touch $@

# A client and a server of the first SDK, which cannot live beside the second.
.venv-mcp1/.installed: pyproject.toml
	$(PYTHON) -m venv .venv-mcp1
	.venv-mcp1/bin/python -m pip install --quiet --upgrade pip
	.venv-mcp1/bin/python -m pip install --quiet --group mcp1
	touch $@

check: .venv/.installed ## style and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright --warnings

test: check .npm-servers/.installed .venv-mcp1/.installed ## style, types and tests
	$(BIN)/python -m pytest -q

.venv-peers/.installed: pyproject.toml
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --upgrade pip
	.venv-peers/bin/python -m pip install --quiet --editable '.[ann,bench,gateway,onnx]' --group dev --group peers
	touch $@

test-load: .venv/.installed ## many clients, broken servers, kills; prints its figures
	$(BIN)/python -m pytest -q -s load

test-peers: .venv-peers/.installed ## the benchmark's peers and FastMCP's client, with their real packages
	.venv-peers/bin/python -m pytest -q tests/bench tests/gateway/test_foreign_clients_fastmcp.py \
		-p no:randomly

test-adapters: .venv/.installed ## every adapter with its real SDK, each in an environment of its own
	$(BIN)/python tests/adapters/environments.py test

lock-adapters: .venv/.installed ## pin the newest versions of the SDKs
	$(BIN)/python tests/adapters/environments.py lock

clean:
	rm -rf .venv .venv-adapters .venv-mcp1 .venv-peers .npm-servers .pytest_cache .ruff_cache .hypothesis dist
