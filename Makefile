# Development tasks. `make` alone lists the targets.
#
# Set-up is in .venv, with two stamp files: .venv/.runtime for the dependencies of a broker,
# .venv/.dev for those of checks and benchmarks. Both are fast when nothing changed.

SHELL := /bin/sh
# Byte code is always written: otherwise every broker that a test starts would compile
# all code again.
unexport PYTHONDONTWRITEBYTECODE
.DEFAULT_GOAL := help

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
INPUTS := pyproject.toml setup.py $(wildcard src/penstock/wire/*.pyx)
WHEELS := .cache/wheels
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --progress-bar on
# Prints the output of each parallel part of the set-up when it ends; one failure fails all.
BESIDE := $(MAKE) --no-print-directory --silent --jobs=4 --output-sync=target

# Arguments of targets.
ARGS ?=
SEED ?=
# One worker per core, plus one because many tests wait. A file stays on one worker, so that
# its tests share a broker; tests/running_order.py assigns files to workers.
JOBS ?= $(shell expr $$(nproc) + 1)
PYTEST ?= $(BIN)/python -m pytest
PARALLEL := -n $(JOBS) --dist loadfile --no-loadscope-reorder

.PHONY: help
help: ## this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# ---- set-up

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    echo "Penstock needs Python 3.11 or newer; say where it is: make PYTHON=/path/to/python3" >&2; \
	    exit 1; }
	@echo "==> creating $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv $(VENV) 2>/dev/null || { \
	    $(PYTHON) -m venv --clear --without-pip $(VENV) && \
	    $(PYTHON) -m pip --python $(BIN)/python install --quiet pip; } || { \
	    rm -rf $(VENV); \
	    echo "Python's venv module is not complete here (Debian: apt-get install python3-venv)" >&2; \
	    exit 1; }

$(VENV)/.runtime: $(INPUTS) | $(BIN)/python
	@echo "==> installing penstock-mq into $(VENV)"
	@$(PIP_INSTALL) --editable .
	@$(BIN)/python -m compileall -q src
	@touch $@

# All but Spark. PySpark is a large source package: its wheel is built in parallel.
$(VENV)/.most: $(INPUTS) | $(BIN)/python
	@echo "==> installing penstock-mq and the tools that check it into $(VENV)"
	@$(PIP_INSTALL) --editable '.[dev,clients,bench,arrow,outbox,postgres,redis,otel,docs]'
	@$(BIN)/python -m compileall -q src
	@touch $@

$(VENV)/.spark: pyproject.toml | $(BIN)/python
	@echo "==> packing PySpark"
	@$(BIN)/python -m pip wheel --disable-pip-version-check --quiet --no-deps \
	    --wheel-dir $(WHEELS) "$$(sed -n 's/.*"\(pyspark\[.*\)".*/\1/p' pyproject.toml)"
	@touch $@

$(VENV)/.dev: $(VENV)/.most $(VENV)/.spark
	@mkdir -p $(WHEELS)
	@$(PIP_INSTALL) --quiet --find-links $(WHEELS) 'penstock-mq[spark,connect,lakehouse]'
	@rm -rf $(WHEELS)
	@touch $(VENV)/.runtime $@

.PHONY: setup setup-test
setup: ## all dependencies to run, check and measure, in .venv
	@$(BESIDE) $(VENV)/.dev

setup-test: ## setup, plus etcd, Porcupine, and kcat, a JDK and Maven for the client tests
	@$(BESIDE) $(VENV)/.dev etcd checker java-checks

.PHONY: etcd checker tools jars java-checks
etcd: ## a recent etcd: the one on the PATH, else built with Go into .cache
	@sh tools/etcd/build.sh

checker: ## the checker of histories (Porcupine), built with Go into .cache
	@sh tools/linearizability/build.sh >/dev/null

tools: ## kcat, a JDK, Maven and other tools that tests need and pip cannot install
	@sh tests/clients/ensure_tools.sh

jars: tools ## spark-connector, once Maven is there
	@$(MAKE) --no-print-directory spark-connector

# Downloaded here, so that no test waits for Maven.
java-checks: $(VENV)/.dev jars ## the programs of the Java client, and Kafka's own tools
	@$(BIN)/python -m tests.clients.javas

# ---- run

.PHONY: up
up: $(VENV)/.runtime ## a broker on this machine: Kafka on 9092, HTTP on 8080 (ARGS="--kafka-port 0")
	@exec $(BIN)/penstock up $(ARGS)

.PHONY: demo
demo: $(VENV)/.runtime ## a shop with live load, failures and dead letters, for the console to show
	@exec $(BIN)/penstock demo $(ARGS)

# ---- check

.PHONY: test tests lint fmt clients chaos histories mixed sim sim-soak fuzz
# Lint runs in parallel with the tests, which often wait; its output follows theirs.
test: setup-test ## every check, in one go
	@mkdir -p .cache; $(MAKE) --no-print-directory lint >.cache/lint.log 2>&1 & lint=$$!; \
	    $(MAKE) --no-print-directory tests; tests=$$?; \
	    wait $$lint; lint=$$?; cat .cache/lint.log; \
	    exit $$((tests ? tests : lint))

tests: setup-test ## the tests alone (ARGS=--durations=50)
	$(PYTEST) $(PARALLEL) $(ARGS)

lint: setup ## formatting, lint, types, layers, spelling, known weaknesses
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(BIN)/python tools/audit/code.py

fmt: setup ## format the code and apply automatic fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clients: setup-test ## only the tests with real Kafka clients
	$(PYTEST) -m "clients or java" $(ARGS)

# Sizes: KILLS of single brokers, COPIES of records in transactions, FAILOVERS of cluster nodes.
chaos: setup etcd ## kill -9 under load, for longer than `make test` does (KILLS=200 FAILOVERS=100)
	PENSTOCK_KILLS=$(or $(KILLS),200) PENSTOCK_COPIES=$(or $(COPIES),200000) \
	    PENSTOCK_FAILOVERS=$(or $(FAILOVERS),100) PENSTOCK_INTERVALS_MS="1000 5000" \
	    $(PYTEST) tests/chaos -s --timeout 0 $(ARGS)

# By default all 7 kinds of faults and all 4 workloads; each combination has its own cluster.
histories: setup etcd checker tools ## faults x workloads on real nodes, checked by Porcupine (SECONDS=30 FAULTS=kills WORKLOADS=log)
	$(BIN)/python -m tests.histories --faults '$(FAULTS)' --workloads '$(WORKLOADS)' \
	    --seconds $(or $(SECONDS),30) --minutes $(or $(MINUTES),0) --seed $(or $(SEED),0) $(ARGS)

mixed: setup etcd ## one node of an older commit and two of this tree, under load and kills (OLD=commit SECONDS=5)
	$(BIN)/python -m tests.mixed $(if $(OLD),--old '$(OLD)') --seconds $(or $(SECONDS),5) $(ARGS)

sim: setup ## nodes, disks and networks in simulation; SEED=8123 replays one failing run
	$(if $(SEED),PENSTOCK_SIM_SEED=$(SEED)) $(PYTEST) tests/sim \
	    $(if $(SEED),-s --ignore-glob='*planted*') $(ARGS)

sim-soak: setup ## new seeds of nodes and clusters for MINUTES=10, with a report (ARGS="--kind long")
	$(BIN)/python -m tests.sim.soak --minutes $(or $(MINUTES),10) $(ARGS)

.PHONY: spark spark-connector chaos-spark
# Without Maven's jars, the tests of Spark's own connector are skipped.
spark-connector: ## Spark's own Kafka connector into .cache, for tests and benchmarks
	@[ -d .cache/spark-connector ] || mvn -q -B -f tests/spark/connector/pom.xml \
	    dependency:copy-dependencies -DoutputDirectory=$(CURDIR)/.cache/spark-connector || \
	    { rm -rf .cache/spark-connector; exit 1; }

spark: setup-test spark-connector ## only the tests with Spark
	$(PYTEST) tests/spark $(ARGS)

chaos-spark: setup-test ## kill a streaming job at the fault points of its sink (KILLS=50)
	PENSTOCK_SPARK_KILLS=$(or $(KILLS),50) PENSTOCK_SPARK_MASTER='local-cluster[2,1,1024]' \
	    $(PYTEST) tests/spark/test_driver_killed.py tests/spark/test_fault_points.py -s \
	    --timeout 0 $(ARGS)

fuzz: setup ## every decoder, guided by coverage (SECONDS=30 each), then many more examples of every property
	$(BIN)/python -m tests.fuzz.guided --seconds $(or $(SECONDS),30)
	HYPOTHESIS_PROFILE=long $(PYTEST) $(PARALLEL) tests/property tests/fuzz --timeout 0 $(ARGS)

.PHONY: audit sbom
audit: setup ## packages with known vulnerabilities (asks a service on the internet), and bandit
	$(BIN)/python tools/audit/packages.py
	$(BIN)/python tools/audit/code.py

# Uses a separate environment, because .venv also has development tools.
sbom: $(VENV)/.most ## the packages of a broker, as CycloneDX in sbom.json
	rm -rf .cache/sbom
	$(BIN)/python -m venv --without-pip .cache/sbom
	$(BIN)/python -m pip --python .cache/sbom/bin/python install --disable-pip-version-check \
	    --quiet '.[security,registry]'
	$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible \
	    --output-file sbom.json .cache/sbom

.PHONY: release
release: setup ## build and check all packages of a version in dist/; publishes nothing (ARGS=--allow-dirty)
	$(BIN)/python tools/release/release.py $(ARGS)

# ---- measure and document

.PHONY: bench bench-queues bench-spark docs first-hour pictures reference tour
bench: setup etcd ## Penstock and Kafka, or an older commit (OLD=commit), with the same clients
	$(BIN)/python -m bench.run $(if $(OLD),--old '$(OLD)') $(ARGS)

bench-spark: setup spark-connector ## the Spark source and sink, and Spark's own Kafka connector
	$(BIN)/python -m bench.spark $(ARGS)

bench-queues: setup ## Penstock, Kafka, RabbitMQ, NATS and ElasticMQ as queues, if available
	@sh bench/queues/fetch_peers.sh
	$(BIN)/python -m bench.queues.run $(ARGS)

reference: setup ## rewrite docs/reference from routes, configs, metrics and commands
	@$(BIN)/python docs/gen.py

pictures: setup-test ## screenshots of the console in docs/images, from the demo in Chromium
	$(BIN)/python -m tests.console.pictures $(ARGS)

# The second command runs README, tutorial and how-tos one after the other on one broker.
first-hour: setup ## the first steps of a user from a built wheel, timed; then all pages on one broker
	$(BIN)/python -m tests.docs.first_hour $(ARGS)
	$(PYTEST) tests/docs/test_tutorial.py tests/docs/test_programs.py

tour: setup-test ## docs/tour.md and its pictures, from real brokers, Spark and Chromium
	$(BIN)/python -m tests.docs.tour $(ARGS)

# Needs the docs extra only, and nothing of `make setup`.
docs: | $(BIN)/python ## the documentation as a site in site/
	@$(BIN)/python -m mkdocs --version >/dev/null 2>&1 || { \
	    echo "==> installing the docs extra into $(VENV)"; \
	    $(PIP_INSTALL) --quiet --editable '.[docs]'; }
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

.PHONY: clean
clean: ## remove generated files: .venv, caches, built files (never data)
	rm -rf $(VENV) build dist site src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -rf .import_linter_cache src/penstock/wire/_records.c src/penstock/wire/_records.*.so
	find src tests bench docs -name __pycache__ -type d -prune -exec rm -rf {} +
