# `make` alone prints what there is. Everything that is installed goes into .venv; the tools that the tests drive come
# from Debian's packages, where this machine lets us.

VENV := .venv
BIN := $(VENV)/bin
NEWEST := $(VENV)/newest
HOST := $(or $(TICKETS_HOST),127.0.0.1)
PORT := $(or $(TICKETS_PORT),8000)

# What the tests drive that PyPI does not have, as command:package (a,b: either will do; a path is looked for as it is).
# mariadb-install-db of mariadb-server-core calls my_print_defaults, which lies in mariadb-client-core.
DATABASE_TOOLS := \
	mysqld,mariadbd:mariadb-server-core \
	my_print_defaults:mariadb-client-core \
	pg_ctlcluster:postgresql \
	pgbouncer:pgbouncer
DEBIAN_TOOLS := \
	haproxy:haproxy \
	promtool:prometheus \
	systemd-analyze:systemd \
	redis-cli:redis-tools \
	redis-server:redis-server \
	node:nodejs \
	npm:npm \
	chromium:chromium \
	cc:gcc \
	/usr/include/time.h:libc6-dev \
	/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf:fonts-dejavu-core \
	curl:curl \
	mysql:mariadb-client-core \
	ruby:ruby \
	/usr/share/rubygems-integration/all/specifications/activerecord-*:ruby-activerecord \
	/usr/lib/ruby/vendor_ruby/sqlite3.rb:ruby-sqlite3 \
	php:php-cli \
	/usr/lib/php/*/curl.so:php-curl \
	/usr/lib/php/*/pdo_sqlite.so:php-sqlite3 \
	/usr/share/php/Illuminate/Database/autoload.php:php-illuminate-database \
	/usr/share/php/Illuminate/Events/autoload.php:php-illuminate-events \
	/usr/share/php/Illuminate/Http/autoload.php:php-illuminate-http \
	/usr/share/php/GuzzleHttp/autoload.php:php-guzzlehttp-guzzle
# What the recipes of docs/recipes need that is too large for `make test`.
LONG_TOOLS := \
	go:golang-go \
	/usr/share/gocode/src/github.com/go-sql-driver/mysql:golang-github-go-sql-driver-mysql-dev \
	javac:default-jdk-headless \
	/usr/share/java/eclipselink.jar:libeclipselink-java \
	/usr/share/java/h2.jar:libh2-java

# Debian keeps servers in sbin, which is not on every user's path.
export PATH := $(PATH):/usr/sbin:/sbin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# or each of the many processes of a test run would compile all that it imports: of a server, a second and a half
unexport PYTHONDONTWRITEBYTECODE

# Two processes more than there are processors, since some of them always wait for something; six at most, for each starts
# database servers of its own.
WORKERS := $(shell echo $$((($$(nproc 2>/dev/null || echo 2) > 4 ? 4 : $$(nproc 2>/dev/null || echo 2)) + 2)))
SPREAD := --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: help run test durations check fix docs bench torture long documents pictures newest client dist install-check lock clean tools databases long-tools
.DEFAULT_GOAL := help

help:  ## this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1 \t\2/p' Makefile | expand -t 24

run: $(VENV)/.run  ## set up what is needed and serve tickets from an embedded pair on 127.0.0.1:8000
	@echo
	@echo "Tickets on http://$(HOST):$(PORT) - three lines worth trying in another terminal:"
	@echo
	@echo "  curl http://$(HOST):$(PORT)/ticket/photos"
	@echo "  curl -H 'Accept: text/plain' 'http://$(HOST):$(PORT)/ticket/photos?count=5'"
	@echo "  curl 'http://$(HOST):$(PORT)/block/photos?size=500'"
	@echo
ifdef TICKETS_REDIS_PORT
	@echo "And with any Redis client:"
	@echo
	@echo "  redis-cli -h $(HOST) -p $(TICKETS_REDIS_PORT) INCR photos"
	@echo
endif
	@exec $(BIN)/ticketd serve

test: $(VENV)/.test tools $(VENV)/.node  ## set up what is needed, a MySQL-compatible server included, and run every test (ARGS=...)
	$(BIN)/python -m pytest $(SPREAD) $(ARGS)

durations: $(VENV)/.test tools $(VENV)/.node  ## run every test and write down how long each file takes, for the order of later runs
	TICKETS_TEST_DURATIONS=1 $(BIN)/python -m pytest $(SPREAD) $(ARGS)

# Goes on where something is missing and may not be installed: the tests that need it fail and say so.
tools:
	@-.ci/debian-packages $(DATABASE_TOOLS) $(DEBIAN_TOOLS)

databases:  ## install the database servers that tests/unit, tests/contract and next/tests drive; make test installs more
	@-.ci/debian-packages $(DATABASE_TOOLS)

long-tools:
	@-.ci/debian-packages $(LONG_TOOLS)

check: $(VENV)/.test  ## lint, formatting, types, who imports whom, lengths; writes nothing
	$(BIN)/ruff check --cache-dir $(VENV)/.cache/ruff .
	$(BIN)/ruff format --check --cache-dir $(VENV)/.cache/ruff .
	$(BIN)/mypy --strict --cache-dir $(VENV)/.cache/mypy app next tests docs/generator $(wildcard bench)
	$(BIN)/mypy --config-file client/pyproject.toml --cache-dir $(VENV)/.cache/mypy-client client
	$(BIN)/lint-imports --no-logo --no-cache
	$(BIN)/lint-imports --no-logo --no-cache --config .ci/next_engines.toml
	$(BIN)/python .ci/lengths.py next

fix: $(VENV)/.test  ## fix what ruff can fix
	$(BIN)/ruff check --fix --cache-dir $(VENV)/.cache/ruff .
	$(BIN)/ruff format --cache-dir $(VENV)/.cache/ruff .

docs: $(VENV)/.test  ## build the pages of docs/ as a site, into build/site
	$(BIN)/mkdocs build --strict --quiet
	@echo "build/site/index.html"

bench: $(VENV)/.test tools  ## compare with what else there is, side by side; publishes the figures in docs/performance.md
	@-.ci/debian-packages wrk:wrk
	$(BIN)/python -m bench $(ARGS)

torture: $(VENV)/.test tools  ## faults at random for TORTURE_SECONDS (120), then count duplicates
	$(BIN)/python -m tests.torture $(ARGS)

long: $(VENV)/.test tools long-tools $(VENV)/.node $(VENV)/.recipes  ## what `make test` has no time for: schedules by the thousand, torture, soak; writes docs/evidence.md
	$(BIN)/python -m tests.long $(ARGS)

documents: $(VENV)/.test  ## write the generated pages of docs/ anew, from the settings and the results
	$(BIN)/python -m docs.generator

pictures: $(VENV)/.test tools  ## take the pictures of the pages again, in a real Chromium, into docs/pictures/
	$(BIN)/python -m docs.generator.pictures

newest: tools  ## run the tests on the newest releases of what we depend on, whatever the lock says (ARGS=...)
	@.ci/make-venv $(NEWEST)
	@echo "Installing into $(NEWEST), the newest releases ..."
	@$(NEWEST)/bin/pip install -qq --upgrade --upgrade-strategy eager 'setuptools>=68'
	@$(NEWEST)/bin/pip install -qq --upgrade --upgrade-strategy eager --no-build-isolation --editable ./client \
		--editable '.[test,tracing]'
	$(NEWEST)/bin/python -m pytest $(SPREAD) $(ARGS)

client: $(VENV)/.test  ## build the Python client's wheel, into dist/
	@rm -rf client/build
	$(BIN)/pip wheel -q --no-deps --no-build-isolation --no-index --wheel-dir dist ./client
	@rm -rf client/build
	@ls dist/ticketd_client-*.whl

dist: $(VENV)/.test  ## build the server's and the client's sdists and wheels, into dist/, and check their metadata
	@rm -rf dist build client/build *.egg-info client/*.egg-info
	$(BIN)/python -m build --no-isolation --outdir dist .
	$(BIN)/python -m build --no-isolation --outdir dist client
	$(BIN)/python -m twine check --strict dist/*

install-check: $(VENV)/.test  ## install the server and the client in every documented way, each from a clean environment
	$(BIN)/python -m tests.packaging $(ARGS)

# One file serves every Python and platform we support: the resolution is universal, with environment markers. It asks
# the public index alone, whatever this machine's pip is told, so that no hash in it is of a file only we have.
lock: $(VENV)/.lock  ## write the hash-locked requirements anew (UPGRADE=1: with the newest versions)
	$(call compile,requirements.txt)
	$(call compile,requirements-image.txt,--extra postgresql --constraints requirements.txt)
	$(call compile,requirements-test.txt,--extra test --extra check --extra docs --constraints requirements.txt)

# setuptools is locked as well: it builds the project, and an isolated build would fetch one that no hash vouches for.
compile = @echo 'setuptools>=68' | $(BIN)/uv pip compile --quiet --no-config --universal --python-version 3.11 \
	--generate-hashes --no-header --no-emit-index-url --no-emit-find-links --strip-extras $(if $(UPGRADE),--upgrade) \
	pyproject.toml - --extra tracing $(2) --output-file $(1) && \
	sed -i '1i \# Written by `make lock` from pyproject.toml: exact versions, and the hash of every file they may come as.' $(1)

clean:  ## remove what the other targets made, but no ticket data
	rm -rf $(VENV) build dist client/build *.egg-info client/*.egg-info .pytest_cache .hypothesis .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Stamps: a second run has nothing to do until a file that it was made from changes.
$(VENV)/.made:
	@.ci/make-venv $(VENV)
	@touch $@

install = $(BIN)/pip install -qq --require-hashes -r $(1) && \
	$(BIN)/pip install -qq --no-deps --no-build-isolation --no-index $(2)

$(VENV)/.run: $(VENV)/.made requirements.txt pyproject.toml
	@echo "Installing into $(VENV) ..."
	@$(call install,requirements.txt,--editable .)
	@touch $@

$(VENV)/.test: $(VENV)/.made requirements-test.txt pyproject.toml client/pyproject.toml
	@echo "Installing into $(VENV), what the tests and checks need as well ..."
	@$(call install,requirements-test.txt,--editable ./client --editable .)
	@touch $(VENV)/.run $@

# The Redis clients for Node.js that the tests draw with. package-lock.json holds exact versions and hashes, and no
# address: npm asks the registry that it is set to. Written anew with
# `cd tests/node && npm install --package-lock-only --omit-lockfile-registry-resolved`.
# Goes on without npm: the tests that need it fail and say so.
$(VENV)/.node: tests/node/package.json tests/node/package-lock.json | $(VENV)/.made tools
	@echo "Installing into $(VENV)/node ..."
	@mkdir -p $(VENV)/node && cp tests/node/package.json tests/node/package-lock.json $(VENV)/node
	-@cd $(VENV)/node && npm ci --silent --ignore-scripts --no-audit --no-fund && touch ../.node

# Prisma, for its recipe: `make long` alone, since it is large. It is locked in the same way.
$(VENV)/.recipes: tests/recipes/node/package.json tests/recipes/node/package-lock.json | $(VENV)/.made tools
	@echo "Installing into $(VENV)/recipes ..."
	@mkdir -p $(VENV)/recipes && cp tests/recipes/node/package.json tests/recipes/node/package-lock.json $(VENV)/recipes
	-@cd $(VENV)/recipes && npm ci --silent --ignore-scripts --no-audit --no-fund && touch ../.recipes

$(VENV)/.lock: $(VENV)/.made
	@$(BIN)/pip install -qq uv
	@touch $@
