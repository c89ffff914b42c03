# `make try` runs the main job, `make test` all checks; both set up what they need.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
, := ,
export TOOLSCOUT_CHROMIUM

.PHONY: try serve test check fuzz bench-console browser docs screenshots test-first-run quickstart test-load test-peers test-adapters lock-adapters test-training encoder clean

# $(call install,FOLDER,PACKAGES) makes an environment. uv takes a third of the time that pip takes,
# but does not read pip's settings, so pip gets a second try.
define install
	$(PYTHON) -m venv $(1)
	$(1)/bin/python -m pip install --quiet uv
	$(1)/bin/uv pip install --quiet --python $(1) $(2) || { \
		$(1)/bin/python -m pip install --quiet --upgrade pip && \
		$(1)/bin/python -m pip install --quiet --no-compile $(2); }
	touch $(1)/.installed
endef

.venv/.installed: pyproject.toml
	$(call install,.venv,./packages/toolscout-encoder \
		--editable '.[ann$(,)gateway$(,)keyring$(,)onnx$(,)postgres]' --group dev --group bench)

try: .venv/.installed ## search a demo catalogue, then real servers through the gateway
	@$(BIN)/toolscout try
	@echo
	@$(BIN)/toolscout try --gateway

serve: .venv/.installed ## keep the gateway running in front of the demo servers
	@$(BIN)/toolscout serve --demo --http

# Servers, a client and a packer of bundles that nobody here wrote, and what judges the console's
# page, in Node; where there is no npm, a wheel brings it.
.npm-servers/.installed: Makefile .venv/.installed
	mkdir -p .npm-servers
	command -v npm >/dev/null || $(BIN)/python -m pip install --quiet --group node
	PATH="$$PATH:$(CURDIR)/$(BIN)" npm install --prefix .npm-servers --silent --no-audit --no-fund \
		--ignore-scripts @modelcontextprotocol/inspector@2.12.0 \
		@modelcontextprotocol/server-basic-vanillajs@2.0.3 \
		@modelcontextprotocol/server-everything@2026.8.31 \
		@modelcontextprotocol/server-filesystem@2026.8.31 \
		@modelcontextprotocol/server-memory@2026.8.31 \
		@modelcontextprotocol/server-system-monitor@2.0.3 \
		@anthropic-ai/mcpb@2.1.2 axe-core@4.14.0
	touch $@

# A client and a server of the first SDK, which cannot live beside the second.
.venv-mcp1/.installed: pyproject.toml
	$(call install,.venv-mcp1,--group mcp1)

# Chromium for the tests of the console's page; the distribution's own, because Playwright's would
# have to be fetched from elsewhere. The fonts are those of the pictures in docs/images.
CHROMIUM = $(or $(TOOLSCOUT_CHROMIUM),$(shell command -v chromium || command -v chromium-browser || command -v google-chrome))
browser:
	@test -n '$(CHROMIUM)' || if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update --quiet=2 && apt-get install --yes --quiet=2 chromium fonts-inter fonts-jetbrains-mono; \
	else \
		echo 'Chromium is missing; the tests of the console need it. Install it, on Debian with:' >&2; \
		echo '  sudo apt-get install chromium' >&2; \
		echo 'or name one that you have: make test TOOLSCOUT_CHROMIUM=/path/to/chromium' >&2; \
		exit 1; \
	fi

check: .venv/.installed ## style and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright --warnings

test: .venv/.installed ## style, types and tests
	@$(MAKE) --no-print-directory --jobs 4 check browser .npm-servers/.installed .venv-mcp1/.installed
	$(BIN)/python -m pytest -q --numprocesses 3 --dist worksteal --ignore tests/benchmarks

# Valgrind counts instructions; schemathesis reads the OpenAPI document of the console.
.venv/.fuzz: .venv/.installed
	@command -v valgrind >/dev/null || if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update --quiet=2 && apt-get install --yes --quiet=2 valgrind; \
	else \
		echo 'Valgrind is missing. Install it, on Debian with: sudo apt-get install valgrind' >&2; \
		exit 1; \
	fi
	$(BIN)/python -m pip install --quiet --group fuzz
	touch $@

fuzz: .venv/.fuzz ## a million inputs for all parsers of outside text, and how work grows; prints figures
	PYTHONPATH=tests $(BIN)/python -m security.fuzzing --inputs 1000000
	PYTHONPATH=tests $(BIN)/python -m security.console_requests
	PYTHONPATH=tests $(BIN)/python -m security.instructions

test-first-run: .venv/.installed ## init, doctor and serve with twelve public servers and empty caches
	$(BIN)/python -m pytest -q -p no:randomly tests/first_run/first_run.py

quickstart: .venv/.installed ## the same, and write what it printed into docs/quickstart.md
	TOOLSCOUT_QUICKSTART=docs/quickstart.md $(BIN)/python -m pytest -q -p no:randomly tests/first_run/first_run.py

docs: .venv/.installed ## write the generated pages of the documentation
	$(BIN)/python docs/generate.py

bench-console: browser .venv/.installed ## the console's page over 22,665 tools; prints its figures
	$(BIN)/python -m pytest -q -s tests/console/speed.py

screenshots: browser .venv/.installed .npm-servers/.installed ## the pictures of the console in docs/images
	TOOLSCOUT_SCREENSHOTS=docs/images $(BIN)/python -m pytest -q -p no:randomly tests/console/test_console_screens.py

.venv-peers/.installed: pyproject.toml
	$(call install,.venv-peers,./packages/toolscout-encoder \
		--editable '.[ann$(,)gateway$(,)onnx]' --group dev --group bench --group peers)

test-load: .venv/.installed ## many clients, broken servers, kills; prints its figures
	$(BIN)/python -m pytest -q -s load

test-peers: .venv-peers/.installed ## the benchmarks and FastMCP's client, with the packages of other projects
	.venv-peers/bin/python -m pytest -q tests/benchmarks tests/evaluate tests/gateway/test_gateway_clients_fastmcp.py \
		tests/gateway/test_resources_fastmcp.py tests/gateway/test_tasks_fastmcp.py -p no:randomly

test-adapters: .venv/.installed ## every adapter with its real SDK, each in an environment of its own
	$(BIN)/python tests/adapters/environments.py test

lock-adapters: .venv/.installed ## pin the newest versions of the SDKs
	$(BIN)/python tests/adapters/environments.py lock

# torch, and the models that ours are made of and compared with.
.venv-training/.installed: pyproject.toml training/requirements.txt
	$(PYTHON) -m venv .venv-training
	.venv-training/bin/python -m pip install --quiet --upgrade pip
	.venv-training/bin/python -m pip install --quiet --requirement training/requirements.txt \
		./packages/toolscout-encoder --editable '.[onnx]' --group bench --group training
	touch $@

test-training: .venv-training/.installed ## every step of training, for a minute, on the demo catalogue
	.venv-training/bin/basedpyright --project training --pythonpath .venv-training/bin/python
	.venv-training/bin/python -m pytest -q -p no:randomly training/tests

DATA ?= ../shared/data
encoder: .venv-training/.installed ## train the encoders anew from the datasets in DATA; takes hours
	.venv-training/bin/python -m training all $(DATA)

clean:
	rm -rf .venv .venv-adapters .venv-mcp1 .venv-peers .venv-training .npm-servers .pytest_cache .ruff_cache .hypothesis dist
