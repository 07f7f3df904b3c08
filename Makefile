# All you need is Python 3.11 or later and make: uv, and all else, comes from PyPI into this folder. With Node.js 18
# or later the console's scripts are checked, too, by what comes from npm.
SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help up demo render parquet apprise quick test faults check scripts blocking-client typescript-client clients firecrawl bench bench-long docs fmt screenshots release clean

PYTHON ?= python3
BIN := .venv/bin
# a file's tests stay together, and a worker in its folder (tests/support/by_folder.py): what they share is started
# once; those that take long come first
PYTEST := $(BIN)/pytest --dist loadfile --no-loadscope-reorder
#: Of what developers need, and of what it takes to run: the first has all of the second, which removes nothing.
STAMP := .venv/.synced
RUN := .venv/.synced-to-run
HELM := v3.22.0
#: A Python with the oldest Scrapy that projects may pin, for tests.
OLDEST := .tools/scrapy-oldest/.synced
#: What makes the blocking client: it needs an older rich than the platform.
UNASYNCD := .tools/unasyncd/.synced
#: What generates a Python client from the API's description, for a test.
GENERATOR := .tools/openapi-python-client/.synced
#: The Inspector of the Model Context Protocol, for a test.
INSPECTOR := .tools/inspector
#: Firecrawl's own clients, for a test.
FIRECRAWL := .tools/firecrawl/.synced
#: Where the TypeScript client is made, of its own files and of what is generated.
TYPESCRIPT := .tools/typescript-client
#: What checks the console's scripts; the browser gets none of it.
NPM := .tools/javascript
CONSOLE := gateway/console

# what the pages link to, outside of docs/
PAGES := docs deploy README.md CONTRIBUTING.md SECURITY.md CHANGELOG.md LICENSE
# the gateway serves it at /help, and a wheel brings it along
SITE := gateway/console/help

# uv on PATH if it is 0.9 or later, else one of our own
define find-uv
uv=uv; \
	case "$$(uv --version 2>/dev/null || true)" in \
	  "uv 0.9"*|"uv 0."[1-9][0-9]*|"uv "[1-9]*) ;; \
	  *) uv=.tools/uv/bin/uv; \
	     if ! [ -x $$uv ]; then \
	       echo "Installing uv into .tools/"; \
	       $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	         || { echo "Python 3.11 or later is needed; name one with make PYTHON=…"; exit 1; }; \
	       $(PYTHON) -m venv .tools/uv \
	         || { echo "Python's venv module is needed (Debian: apt install python3-venv)"; exit 1; }; \
	       .tools/uv/bin/pip install --quiet --disable-pip-version-check 'uv>=0.9'; \
	     fi ;; \
	esac
endef

help: ## List these targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | column -t -s '|' 2>/dev/null \
	  || sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1  \2/p' $(MAKEFILE_LIST)

# /help serves the documentation as soon as it is there
up: $(RUN) ## Start the whole platform on this machine; Ctrl-C stops it; ARGS=--verbose
	@[ -e $(SITE).zip ] || { mkdir -p .tools; nice $(MAKE) --silent docs > .tools/docs.log 2>&1 < /dev/null & }; \
	exec $(BIN)/discoverybot up $(ARGS)

demo: $(RUN) ## Crawl a small bundled site on a scratch platform and show what is wrong with it
	@exec $(BIN)/discoverybot demo $(ARGS)

# 170 MB that only nodes need which render pages; beside a Chromium
render: $(RUN) ## Install what `"render": true` needs, for `make up`
	@set -e; $(find-uv); env -u VIRTUAL_ENV "$$uv" sync --frozen --quiet --no-dev --inexact --extra render

# 170 MB that only gateways and workers need which write such files
parquet: $(RUN) ## Install what `format=parquet` needs, for `make up`
	@set -e; $(find-uv); env -u VIRTUAL_ENV "$$uv" sync --frozen --quiet --no-dev --inexact --extra parquet

apprise: $(RUN) ## Install what mail, Telegram and other services need, for `make up`
	@set -e; $(find-uv); env -u VIRTUAL_ENV "$$uv" sync --frozen --quiet --no-dev --inexact --extra apprise

quick: $(STAMP) ## Run the unit tests: no system packages, no stores
	@exec $(PYTEST) -n 3 tests/unit

test: $(STAMP) $(OLDEST) $(SITE).zip ## Run all tests, what takes long in a short form
	@tests/install-system-packages
	@exec $(PYTEST) -n 4  # on two cores: in three of four folders most of the time goes by in waiting

# what has a full form outside of tests/faults: with hypothesis, more examples
IN_FULL = $(shell grep -rlE '^from (forms|hypothesis) import' tests/unit tests/integration tests/browser tests/e2e \
  --include='test_*.py' --include=conftest.py | sed 's|/conftest.py||')

faults: $(STAMP) $(OLDEST) $(SITE).zip ## Run in full what has a short form in `make test`, and print the table of faults
	@tests/install-system-packages
	@table=$$(mktemp) && trap 'rm -f "$$table"' EXIT && \
	FAULT_SECONDS=40 FAULT_TABLE=$$table $(PYTEST) -n 2 tests/faults $(IN_FULL); passed=$$?; \
	$(BIN)/python tests/support/fault_table.py "$$table" && exit $$passed

check: $(STAMP) $(UNASYNCD) ## Lint, formatting, types, import rules, spelling, and the console's scripts
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/typos
	$(BIN)/python .ci/blocking_client.py $(abspath $(dir $(UNASYNCD))bin/unasyncd) --check
	@$(MAKE) --no-print-directory scripts

blocking-client: $(STAMP) $(UNASYNCD) ## Make the blocking Python client from the asynchronous one, its types, and its reference
	@$(BIN)/python .ci/client_params.py
	@$(BIN)/python .ci/client_answers.py
	@$(BIN)/python .ci/client_events.py
	@$(BIN)/python .ci/blocking_client.py $(abspath $(dir $(UNASYNCD))bin/unasyncd)
	@$(BIN)/python .ci/client_reference.py

# on Debian's root node is installed by now for the tests anyway; at a desk without it the rest is still worth a check
scripts: ## Lint, formatting and types of the console's scripts; needs Node.js with npm
	@command -v node >/dev/null && command -v npm >/dev/null || tests/install-system-packages nodejs npm; \
	if command -v node >/dev/null && command -v npm >/dev/null; then \
	  $(MAKE) -s $(NPM)/.synced && cd $(CONSOLE) && set -x && \
    ../../$(NPM)/node_modules/.bin/biome check && ../../$(NPM)/node_modules/.bin/tsc; \
	else \
	  echo "JavaScript is not checked: node and npm are not installed"; [ "$$CI" != true ]; \
	fi

# over two minutes of CPU and a hundred modules, so no part of `make test`; a helm on PATH is as good there
.tools/bin/helm:
	@command -v go >/dev/null || { echo "Go is needed to build helm"; exit 1; }
	GOBIN=$(CURDIR)/.tools/bin go install helm.sh/helm/v3/cmd/helm@$(HELM)

chart: $(STAMP) .tools/bin/helm ## Render the Helm chart and check it against Kubernetes' schemas; needs Go
	@set -e; $(find-uv); \
	env -u VIRTUAL_ENV CHART=true "$$uv" run --frozen --quiet --group kubernetes pytest tests/unit/house/test_helm_chart.py

typescript-client: $(STAMP) $(TYPESCRIPT)/.synced ## Make the TypeScript client, as a package in dist/npm; needs Node.js 20
	@mkdir -p dist/npm && cp LICENSE $(wildcard client/typescript/*) $(TYPESCRIPT)
	@$(BIN)/python .ci/openapi.py > $(TYPESCRIPT)/openapi.json
	@cd $(TYPESCRIPT) && rm -rf api dist && npm run --silent build && npm pack --silent --pack-destination $(CURDIR)/dist/npm

clients: typescript-client $(GENERATOR) $(INSPECTOR)/.synced ## Crawl with clients that others generate or made, compiled strictly; needs Node.js 20
	@CLIENTS=true exec $(BIN)/pytest tests/e2e/test_generated_clients.py tests/e2e/test_inspector.py

firecrawl: $(STAMP) $(FIRECRAWL) ## Crawl with Firecrawl's own clients, as they come from PyPI and npm; needs Node.js 20
	@FIRECRAWL=true exec $(BIN)/pytest tests/e2e/test_firecrawl_clients.py

bench: $(STAMP) ## Measure us beside the ceiling and the peers, in a quarter of an hour
	@$(BIN)/python -m bench; ran=$$?; $(BIN)/python -m bench.figures && exit $$ran

bench-long: $(STAMP) ## The same in full, and what takes long
	@exec $(BIN)/python -m bench --effort long

# who searches wants to know how it is, and not how it came to be: history is left out of the search
define build-site
set -e; $(find-uv); \
	rm -rf .tools/docs/pages; mkdir -p .tools/docs/pages; \
	cp -R $(PAGES) .tools/docs/pages; cp docs/zensical.toml .tools/docs; \
	for page in CHANGELOG.md docs/decisions/*.md; do \
	  { printf -- '---\nsearch:\n  exclude: true\n---\n\n'; cat $$page; } > .tools/docs/pages/$$page; done; \
	env -u VIRTUAL_ENV UV_PROJECT_ENVIRONMENT=.tools/docs/.venv "$$uv" run --frozen --quiet --only-group docs \
	  zensical build --strict --config-file .tools/docs/zensical.toml; \
	$(PYTHON) .ci/help_search.py .tools/docs/site; \
	$(PYTHON) -c 'import shutil; shutil.make_archive(".tools/docs/help", "zip", ".tools/docs/site")'; \
	mv .tools/docs/help.zip $(SITE).zip; \
	echo "It is in $(SITE).zip, and its first page is .tools/docs/site/index.html"
endef

docs: ## Build the documentation that the gateway serves at /help, and fail where a link leads nowhere
	@$(build-site)

# folders as well, for they change when a page goes; `docs` alone would be the target above
$(SITE).zip: $(patsubst docs,docs/.,$(shell find $(PAGES) 2>/dev/null)) uv.lock .ci/help_search.py .ci/help_search.js
	@$(build-site)

release: $(STAMP) ## Tag VERSION=… with its notes from CHANGELOG, if every place that names the version agrees
	@exec $(BIN)/python .ci/release.py --tag $(VERSION)

fmt: $(STAMP) ## Format, and mend what can be mended
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	@if [ -e $(NPM)/.synced ]; then cd $(CONSOLE) && set -x && ../../$(NPM)/node_modules/.bin/biome check --write; fi

screenshots: $(STAMP) ## Make the pictures of docs/console.md anew
	@tests/install-system-packages
	@exec $(BIN)/python tests/browser/console/pictures.py

clean: ## Remove what was built and installed here (your data in .discoverybot/ stays)
	rm -rf $(SITE).zip .venv .tools .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml client/pyproject.toml uv.lock
	@set -e; $(find-uv); \
	echo "Installing what uv.lock names into .venv/"; \
	env -u VIRTUAL_ENV "$$uv" sync --frozen --quiet --compile-bytecode; \
	touch $@ $(RUN)

# no byte code: to compile all takes longer than to compile what is used
$(RUN): pyproject.toml client/pyproject.toml uv.lock
	@set -e; $(find-uv); \
	echo "Installing into .venv/ what it takes to run"; \
	env -u VIRTUAL_ENV "$$uv" sync --frozen --quiet --no-dev --inexact; \
	touch $@

$(NPM)/.synced: $(CONSOLE)/package.json $(CONSOLE)/package-lock.json
	@echo "Installing what $(CONSOLE)/package-lock.json names into $(NPM)/"
	@mkdir -p $(NPM) && cp $(CONSOLE)/package.json $(CONSOLE)/package-lock.json $(NPM)
	@cd $(NPM) && npm ci --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error
	@touch $@

$(UNASYNCD): client/unasyncd.txt $(STAMP)
	@set -e; $(find-uv); \
	echo "Installing what client/unasyncd.txt names into .tools/unasyncd/"; \
	"$$uv" venv --quiet --clear --python 3.11 .tools/unasyncd; \
	"$$uv" pip sync --quiet --python .tools/unasyncd/bin/python client/unasyncd.txt; \
	touch $@

.tools/openapi-python-client/.synced: tests/generated/openapi-python-client.txt $(STAMP)
	@set -e; $(find-uv); \
	echo "Installing what tests/generated/openapi-python-client.txt names into .tools/openapi-python-client/"; \
	"$$uv" venv --quiet --clear --python 3.11 .tools/openapi-python-client; \
	"$$uv" pip sync --quiet --python .tools/openapi-python-client/bin/python tests/generated/openapi-python-client.txt; \
	touch $@

$(TYPESCRIPT)/.synced: client/typescript/package.json client/typescript/package-lock.json
	@echo "Installing what client/typescript/package-lock.json names into $(TYPESCRIPT)/"
	@mkdir -p $(TYPESCRIPT)
	@cp client/typescript/package.json client/typescript/package-lock.json $(TYPESCRIPT)
	@cd $(TYPESCRIPT) && npm ci --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error
	@touch $@

$(INSPECTOR)/.synced: tests/inspector/package.json tests/inspector/package-lock.json
	@echo "Installing what tests/inspector/package-lock.json names into $(INSPECTOR)/"
	@mkdir -p $(INSPECTOR) && cp tests/inspector/package.json tests/inspector/package-lock.json $(INSPECTOR)
	@cd $(INSPECTOR) && npm ci --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error
	@touch $@

$(FIRECRAWL): tests/firecrawl/firecrawl-py.txt tests/firecrawl/package.json tests/firecrawl/package-lock.json $(STAMP)
	@set -e; $(find-uv); \
	echo "Installing what tests/firecrawl names into .tools/firecrawl/"; \
	"$$uv" venv --quiet --clear --python 3.11 .tools/firecrawl; \
	"$$uv" pip sync --quiet --python .tools/firecrawl/bin/python tests/firecrawl/firecrawl-py.txt; \
	mkdir -p .tools/firecrawl/javascript; \
	cp tests/firecrawl/package.json tests/firecrawl/package-lock.json .tools/firecrawl/javascript; \
	cd .tools/firecrawl/javascript && npm ci --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error
	@touch $@

$(OLDEST): tests/scrapy-oldest.txt $(STAMP)
	@set -e; $(find-uv); \
	echo "Installing what tests/scrapy-oldest.txt names into .tools/scrapy-oldest/"; \
	"$$uv" venv --quiet --clear --python 3.11 .tools/scrapy-oldest; \
	"$$uv" pip sync --quiet --compile-bytecode --python .tools/scrapy-oldest/bin/python tests/scrapy-oldest.txt; \
	touch $@
