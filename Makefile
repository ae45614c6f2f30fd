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
	/usr/lib/galera/libgalera_smm.so:galera-4 \
	pg_ctlcluster:postgresql \
	pgbouncer:pgbouncer \
	redis-server:redis-server
DEBIAN_TOOLS := \
	haproxy:haproxy \
	promtool:prometheus \
	systemd-analyze:systemd \
	redis-cli:redis-tools \
	curl:curl \
	mysql:mariadb-client-core

# Debian keeps servers in sbin, which is not on every user's path.
export PATH := $(PATH):/usr/sbin:/sbin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# or each of the many processes of a test run would compile all that it imports: of a server, a second and a half
unexport PYTHONDONTWRITEBYTECODE

# Two processes more than there are processors, since some of them always wait for something; six at most, for each starts
# database servers of its own.
WORKERS := $(shell echo $$((($$(nproc 2>/dev/null || echo 2) > 4 ? 4 : $$(nproc 2>/dev/null || echo 2)) + 2)))
SPREAD := --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: help run test check fix docs bench model torture newest client dist lock clean tools databases
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

test: $(VENV)/.test tools  ## set up what is needed, a MySQL-compatible server included, and run every test (ARGS=...)
	$(BIN)/python -m pytest $(SPREAD) $(ARGS)

# Goes on where something is missing and may not be installed: the tests that need it fail and say so.
tools:
	@-.ci/debian-packages $(DATABASE_TOOLS) $(DEBIAN_TOOLS)

databases:  ## install the database servers that the tests drive; make test installs more
	@-.ci/debian-packages $(DATABASE_TOOLS)

check: $(VENV)/.test  ## lint, formatting, types, who imports whom, lengths; writes nothing
	$(BIN)/ruff check --cache-dir $(VENV)/.cache/ruff .
	$(BIN)/ruff format --check --cache-dir $(VENV)/.cache/ruff .
	$(BIN)/mypy --strict --cache-dir $(VENV)/.cache/mypy app tests bench
	$(BIN)/mypy --config-file client/pyproject.toml --cache-dir $(VENV)/.cache/mypy-client client
	$(BIN)/lint-imports --no-logo --no-cache
	$(BIN)/python .ci/lengths.py app tests bench

fix: $(VENV)/.test  ## fix what ruff can fix
	$(BIN)/ruff check --fix --cache-dir $(VENV)/.cache/ruff .
	$(BIN)/ruff format --cache-dir $(VENV)/.cache/ruff .

docs: $(VENV)/.test  ## build the pages of docs/ as a site, into build/site
	$(BIN)/mkdocs build --strict --quiet
	@echo "build/site/index.html"

bench: $(VENV)/.test tools  ## measure beside nginx, Redis, PostgreSQL and REPLACE, 15 minutes (ARGS=--help or --publish)
	@-.ci/debian-packages wrk:wrk redis-benchmark:redis-tools redis-server:redis-server nginx:nginx-light
	$(BIN)/python -m bench $(ARGS)

model: $(VENV)/.test  ## whole servers on virtual time, a seed for each schedule, two hours at most (ARGS="--schedules 10000")
	$(BIN)/python -m tests.model --processes $(shell nproc) $(ARGS)

torture: $(VENV)/.test tools  ## faults at random on real databases for five minutes, then count duplicates (ARGS="--engine postgresql")
	$(BIN)/python -m tests.torture $(ARGS)

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

# One file serves every Python and platform we support: the resolution is universal, with environment markers. It asks
# the public index alone, whatever this machine's pip is told, so that no hash in it is of a file only we have.
lock: $(VENV)/.lock  ## write the hash-locked requirements anew (UPGRADE=1: with the newest versions)
	$(call compile,requirements.txt)
	$(call compile,requirements-image.txt,--extra postgresql --extra redis --constraints requirements.txt)
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

$(VENV)/.lock: $(VENV)/.made
	@$(BIN)/pip install -qq uv
	@touch $@
