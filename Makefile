# Every target sets up what it needs by itself: Python 3.11 and make are enough.
# Packages come from PyPI and, for one test client, from Debian; see docs/CLI.md for the command itself.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
BENCH_INSTALLED := $(VENV)/.bench-installed
SPARK_INSTALLED := $(VENV)/.spark-installed
SPARK_CLASSES := $(VENV)/.spark-classes
NODE_CLIENT := tests/real_clients/node
PYTEST := $(BIN)/python -m pytest
unexport PYTHONDONTWRITEBYTECODE  # with bytecode on disk each of hundreds of processes starts in half the time

.DEFAULT_GOAL := help
.PHONY: help up demo soak chaos chaos-quorum sim sim-cluster sim-transactions sim-quorum sim-long sim-planted test test-due test-all test-spark test-jvm test-stores test-clients kcat kafkajs chromium postgresql screenshots bench-console franz-go java test-kafka conformance check format bench bench-spark bench-archive bench-compare bench-stall bench-metadata bench-quotas bench-start bench-growth bench-kafka bench-peers bench-cluster bench-security bench-mirror bench-packages docs release clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(INSTALLED): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

$(BENCH_INSTALLED): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	touch $@

$(SPARK_INSTALLED): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[spark-connect]'
	touch $@

# Options for Java: an archive of Spark's classes, with which it starts in half the time. Tests run without it, too.
$(SPARK_CLASSES): $(SPARK_INSTALLED) | java
	@$(BIN)/python tools/spark_classes.py >$@ 2>/dev/null || echo "No archive of Spark's classes: its tests take longer"

up: $(INSTALLED) ## Run a broker on localhost:9092 (options: make up ARGS='--port 0')
	$(BIN)/odradek up $(ARGS)

demo: $(INSTALLED) java ## Play a bookstore through three brokers, of which one dies, and a Spark pipeline
	@test -e $(SPARK_INSTALLED) || echo "Installing PySpark into $(VENV), once; this takes a minute or two"
	@$(MAKE) -s $(SPARK_INSTALLED) || echo "PySpark could not be installed; the demo goes on without it"
	@$(BIN)/python tools/demo.py $(ARGS)

# On two cores: some tests wait for processes, so three run at once. Neighbours share brokers: they stay on one worker.
WORKERS ?= 3
SPREAD := -n $(WORKERS) --dist worksteal
# Streams wait more than they work. Each worker has a JVM; files in the order of tests/selection.py, the longest first.
SPREAD_SPARK := -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# Collecting the others takes a while. A test of Spark elsewhere is refused (tests/selection.py).
SPARK_PLACES := tests/spark tests/pipeline tests/demo
TEST_NEEDS := $(SPARK_CLASSES) $(BENCH_INSTALLED) test-clients bench-packages

test test-all test-spark: export SPARK_SUBMIT_OPTS = $(shell cat $(SPARK_CLASSES) 2>/dev/null)

test: $(TEST_NEEDS) ## Run the tests (some of them: make test ARGS='tests/cli -k topic'); docs/CONTRIBUTING.md says which
	$(PYTEST) $(SPREAD) -m 'not peer and not spark and not long and not planted' $(ARGS)
	$(PYTEST) $(SPREAD_SPARK) -m 'spark and not peer and not long' $(if $(filter tests%,$(ARGS)),,$(SPARK_PLACES)) $(ARGS) || [ $$? -eq 5 ]  # 5: ARGS chose none

test-due: $(INSTALLED) ## Look for the planted bugs of modules that have changed, as CI does
	$(PYTEST) $(SPREAD) -m 'planted and due' tests/planting $(ARGS) || [ $$? -eq 5 ]  # 5: none is due

test-all: $(TEST_NEEDS) ## Run the tests, all planted bugs and everything that takes long (most of an hour)
	$(PYTEST) $(SPREAD) -m 'not peer and not spark' $(ARGS)
	$(PYTEST) $(SPREAD_SPARK) -m 'spark and not peer' $(if $(filter tests%,$(ARGS)),,$(SPARK_PLACES)) $(ARGS) || [ $$? -eq 5 ]

test-spark: $(SPARK_CLASSES) ## Run only the tests that need Spark, the long ones too (15 minutes)
	$(PYTEST) -m 'spark and not peer' $(SPARK_PLACES) $(ARGS)

test-jvm: $(SPARK_INSTALLED) java ## Compare with Spark's own connectors, for Kafka, Delta and Iceberg, and use a real schema registry (needs Maven)
	$(PYTEST) -m peer tests/spark/jvm $(ARGS)
	$(PYTEST) -m peer tests/pipeline/jvm $(ARGS)
	PYTHONPATH=$$($(BIN)/python -m tools.spark_jars) $(PYTEST) -m peer tests/spark/lake $(ARGS)

test-stores: $(SPARK_INSTALLED) java ## Write lake tables to Azurite, fake-gcs-server and Iceberg's REST catalog (needs npm, Go and Maven)
	$(PYTEST) -m peer tests/stores $(ARGS)

test-clients: kcat kafkajs chromium postgresql ## Install the clients of other languages, the browser and the database that tests use, where that can be done

# Debian's kcat. Where it could be installed and was not, CI fails; elsewhere its tests are skipped.
kcat:
	@command -v kcat >/dev/null && exit 0; \
	if ! command -v apt-get >/dev/null; then echo "kcat: no apt-get here, its tests are skipped"; exit 0; fi; \
	if [ "$$(id -u)" != 0 ]; then as_root="sudo -n"; fi; \
	$$as_root apt-get install -qq -y kcat >/dev/null 2>&1 \
	|| { $$as_root apt-get update -qq && $$as_root apt-get install -qq -y kcat; } >/dev/null 2>&1 \
	|| { echo "kcat: could not be installed, its tests are skipped"; [ -z "$$CI" ]; }

# Debian's chromium, for tests of the console. Where it could be installed and was not, CI fails; elsewhere they are skipped.
chromium:
	@test -x /usr/bin/chromium && exit 0; \
	if ! command -v apt-get >/dev/null; then echo "chromium: no apt-get here, its tests are skipped"; exit 0; fi; \
	if [ "$$(id -u)" != 0 ]; then as_root="sudo -n"; fi; \
	$$as_root apt-get install -qq -y --no-install-recommends chromium >/dev/null 2>&1 \
	|| { $$as_root apt-get update -qq && $$as_root apt-get install -qq -y --no-install-recommends chromium; } >/dev/null 2>&1 \
	|| { echo "chromium: could not be installed, its tests are skipped"; [ -z "$$CI" ]; }

# Debian's PostgreSQL, for tests of pipelines: only the programs, tests start servers of their own. Where it could be
# installed and was not, CI fails; elsewhere its tests are skipped.
postgresql:
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 && exit 0; \
	if ! command -v apt-get >/dev/null; then echo "PostgreSQL: no apt-get here, its tests are skipped"; exit 0; fi; \
	if [ "$$(id -u)" != 0 ]; then as_root="sudo -n"; fi; \
	install="$$as_root env RUNLEVEL=1 apt-get install -qq -y --no-install-recommends postgresql"; \
	$$install >/dev/null 2>&1 || { $$as_root apt-get update -qq && $$install; } >/dev/null 2>&1 \
	|| { echo "PostgreSQL: could not be installed, its tests are skipped"; [ -z "$$CI" ]; }

kafkajs:
	@test -d $(NODE_CLIENT)/node_modules/kafkajs && exit 0; \
	if ! command -v npm >/dev/null; then echo "kafkajs: no npm here, its tests are skipped"; exit 0; fi; \
	mkdir -p $(NODE_CLIENT) && cd $(NODE_CLIENT) && npm install --silent --no-save --no-package-lock \
		--fetch-retries=1 --fetch-timeout=20000 kafkajs@2 >/dev/null 2>&1 \
	|| { echo "kafkajs: could not be installed, its tests are skipped"; [ -z "$$CI" ]; }

franz-go: ## Build the test client that speaks the newest protocol of transactions (needs Go; a minute)
	cd tests/real_clients/go && go build -o franz .

# Spark needs a Java. Where it could be installed and was not, CI fails; elsewhere Spark's tests are skipped.
java:
	@command -v java >/dev/null && exit 0; \
	if ! command -v apt-get >/dev/null; then echo "java: no apt-get here, Spark's tests are skipped"; exit 0; fi; \
	if [ "$$(id -u)" != 0 ]; then as_root="sudo -n"; fi; \
	$$as_root apt-get install -qq -y openjdk-17-jre-headless >/dev/null 2>&1 \
	|| { $$as_root apt-get update -qq && $$as_root apt-get install -qq -y openjdk-17-jre-headless; } >/dev/null 2>&1 \
	|| { echo "java: could not be installed, Spark's tests are skipped"; [ -z "$$CI" ]; }

test-kafka: $(INSTALLED) ## Compare with Apache Kafka, and run Streams, Connect and MirrorMaker (needs a JDK and Maven)
	$(PYTEST) -m peer tests/peer $(ARGS)

conformance: $(INSTALLED) ## Run kafka-python's own integration tests (some: make conformance ARGS='-k group')
	$(BIN)/python tools/conformance.py $(ARGS)

check: $(SPARK_INSTALLED) ## Style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(INSTALLED) ## Put the code into its format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

soak: $(INSTALLED) ## Kill a broker under random work, compare it with a ledger, again and again (ARGS='--seconds 3600')
	$(BIN)/python -m tests.lives $(ARGS)

chaos-quorum: $(INSTALLED) ## Kill, stop and cut off real nodes of a quorum under load, by chance (ARGS='--seconds 3600 --seed 7')
	$(BIN)/python -m tests.processes $(ARGS)

chaos: $(INSTALLED) ## Kill, stop, cut off and damage real nodes that keep records, under load, for 200 s (ARGS='--seconds 3600 --seed 7')
	$(BIN)/python -m tests.processes.chaos $(ARGS)

sim: $(INSTALLED) ## Simulate a node: one seed with its trace (SEED=7), or many (ARGS='--seeds 0:10000')
	$(BIN)/python -m tests.simulation $(SEED) $(ARGS)

sim-quorum: $(INSTALLED) ## Simulate a metadata quorum: one seed with its trace (SEED=7), or many (ARGS='--seeds 0:10000')
	$(BIN)/python -m tests.quorum $(SEED) $(ARGS)

SIM_NODE_SEEDS ?= 1000:5000
SIM_QUORUM_SEEDS ?= 1000:21000

sim-long: $(INSTALLED) ## Run many seeds of both simulations, for hours (SIM_NODE_SEEDS=0:100 SIM_QUORUM_SEEDS=0:1000)
	$(BIN)/python -m tests.quorum --seeds $(SIM_QUORUM_SEEDS)
	$(BIN)/python -m tests.simulation --seeds $(SIM_NODE_SEEDS)
sim-cluster: $(INSTALLED) ## Simulate a cluster of whole nodes: one seed with its trace (SEED=7), or many (ARGS='--seeds 0:100')
	$(BIN)/python -m tests.cluster $(SEED) $(ARGS)

sim-transactions: $(INSTALLED) ## Simulate transactions on three nodes: one seed with its trace (SEED=7), or many (ARGS='--seeds 0:100')
	$(BIN)/python -m tests.transactions $(SEED) $(ARGS)

sim-planted: $(INSTALLED) ## Plant bugs in the product, and say what finds each (some of them: ARGS='cluster quorum/epoch-goes-back')
	$(BIN)/python -m tests.planting $(ARGS)

bench: $(BENCH_INSTALLED) bench-packages ## Measure Odradek alone, in about five minutes (options: make bench ARGS='…')
	$(BIN)/python -m bench own $(ARGS)

BEFORE ?= ../before

bench-compare: $(BENCH_INSTALLED) bench-packages ## Compare with another version, in turn (BEFORE=a worktree of it, ARGS='--only start')
	$(BIN)/python -m bench.compare $(BEFORE) $(ARGS)

bench-stall: $(BENCH_INSTALLED) ## Measure how long one client's huge requests make the others wait
	$(BIN)/python -m bench.stall $(ARGS)

bench-metadata: $(BENCH_INSTALLED) ## Measure changes of the metadata, and starts, in a large cluster
	$(BIN)/python -m bench.metadata

bench-quotas: $(BENCH_INSTALLED) ## Measure byte quotas, and what a throttled client costs another
	$(BIN)/python -m bench.quotas $(ARGS)

bench-start: $(BENCH_INSTALLED) ## Measure how long a test waits for a broker, and for a cluster of three; and what a command and a TAB cost
	$(BIN)/python -m bench.start $(ARGS)

bench-growth: $(BENCH_INSTALLED) bench-packages ## Measure with more and more partitions and connections
	$(BIN)/python -m bench growth $(ARGS)

bench-kafka: $(BENCH_INSTALLED) bench-packages ## Measure what counts most beside a warm Apache Kafka, in a quarter of an hour
	$(BIN)/python -m bench kafka $(ARGS)

bench-peers: PEER_PACKAGES := nats-server rabbitmq-server redis-server libhiredis-dev
bench-peers: $(BENCH_INSTALLED) bench-packages ## Measure beside Apache Kafka, NATS, RabbitMQ and Redis, where to be had
	$(BIN)/python -m bench peers $(ARGS)

bench-cluster: $(BENCH_INSTALLED) bench-packages ## Measure clusters of three beside Apache Kafka's, and lose nodes of them
	$(BIN)/python -m bench cluster $(ARGS)
	$(BIN)/python -m bench.failover $(filter --quick,$(ARGS)) $(FAILOVER_ARGS)

bench-security: $(BENCH_INSTALLED) bench-packages ## Measure TLS, logins, ACLs and quotas, the first beside a warm Apache Kafka, in ten minutes (ARGS=--quick)
	$(BIN)/python -m bench.security $(ARGS)

bench-mirror: $(BENCH_INSTALLED) bench-packages ## Measure odradek mirror beside MirrorMaker 2 (needs Maven; ARGS=--quick)
	$(BIN)/python -m bench.mirror $(ARGS)

# What the load generators are built on and, for bench-peers, the other servers. What is missing is said later.
bench-packages:
	@if [ "$$(id -u)" != 0 ]; then as_root="sudo -n"; fi; \
	for package in gcc librdkafka-dev $(PEER_PACKAGES); do \
		dpkg -s $$package >/dev/null 2>&1 && continue; \
		install="$$as_root env RUNLEVEL=1 apt-get install -qq -y --no-install-recommends $$package"; \
		$$install >/dev/null 2>&1 || { $$as_root apt-get update -qq && $$install; } >/dev/null 2>&1 \
		|| echo "$$package: could not be installed"; \
	done

bench-archive: $(SPARK_INSTALLED) java ## Compare archiving, one table and SQL with Spark and the topic
	$(BIN)/python -m bench.archive $(ARGS)

bench-spark: $(SPARK_INSTALLED) java ## Compare our Spark source and sink with Spark's own connector
	$(BIN)/python -m bench.spark $(ARGS)

screenshots: $(INSTALLED) chromium ## Take the pictures of docs/CONSOLE.md from a small cluster with a bookstore in it
	$(BIN)/python tools/screenshots.py $(ARGS)

bench-console: $(INSTALLED) ## Measure the console on a cluster of 10,000 topics (ARGS='--topics 1000 --records 100000' for less)
	$(BIN)/python -m bench.console $(ARGS)

docs: $(INSTALLED) ## Build the site of docs/ in build/site, without a network
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo 'build/site/index.html'

release: $(INSTALLED) ## Build the packages in dist/, and try them in new environments of each Python that is installed
	$(BIN)/python tools/release.py

clean: ## Remove what the targets above have made here
	rm -rf $(VENV) build/demo build/site dist $(NODE_CLIENT)/node_modules .mypy_cache .ruff_cache .hypothesis
