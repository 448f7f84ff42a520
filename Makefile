# One command for every need. `make` alone lists them.

VENV := .venv
BIN := $(VENV)/bin
SETUP_STAMP := $(VENV)/.setup-stamp
DEMO_STAMP := $(VENV)/.demo-stamp
BENCH_STAMP := $(VENV)/.bench-stamp
JAVA_STAMP := $(VENV)/.java-stamp
SDKS_STAMP := $(VENV)/.sdks-stamp
WHEELS_STAMP := $(VENV)/.wheels-stamp
# The oldest Spark that the library allows, beside that of .venv.
OLDEST_SPARK := $(VENV)/oldest-spark
OLDEST_SPARK_STAMP := $(VENV)/.oldest-spark-stamp
ON_OLDEST_SPARK := PYTHONPATH="$(CURDIR)/$(OLDEST_SPARK)" SPARK_WANTED=$(shell sed -n 's/^pyspark==\([0-9.]*\).*/\1/p' requirements/oldest-spark.lock)
# Another tool that finds breaking changes of OpenAPI documents, in Go.
OASDIFF_VERSION := v1.37.0
OASDIFF_HOME := $(VENV)/oasdiff-$(OASDIFF_VERSION)
OASDIFF := $(OASDIFF_HOME)/oasdiff
# What is compiled when there is a compiler.
COMPILED := client/src/rollway/records/partitioner_c.pyx client/src/rollway/records/sections/reader_c.pyx client/src/rollway/records/sections/writer_c.pyx app/metrics/distributions_c.pyx app/record_json/json_values_c.pyx app/record_json/record_batches_c.pyx app/record_json/record_texts_c.pyx app/fast_path/answer_bytes_c.pyx app/fast_path/fetch_c.pyx app/engine_local/turn_members_c.pyx app/fast_path/produce_c.pyx app/event_loop/turn_ends_c.pyx app/http/connection/request_heads_c.pyx app/fast_path/connection_c.pyx storage/index/key_samples_c.pyx storage/segment/batch_search_c.pyx storage/producers/next_batches_c.pyx storage/log/plain_batches_c.pyx storage/log/append_c.pyx storage/journal/pieces_c.pyx storage/journal/sync_thread_c.pyx

# pip says nothing of its own newer releases, and builds every source archive the way it will soon build them all.
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_USE_PEP517 := 1

# What is imported by dozens of processes is compiled once, whatever the caller's environment says.
unexport PYTHONDONTWRITEBYTECODE

# Where `make run` and `make demo` keep their data, and how many processes the tests use.
DATA_DIR ?= rollway-data
DEMO_DIR ?= demo-data
# Where `make bench` writes its table, figures and plots.
BENCH_DIR ?= bench-results
# One more than there are cores, as many tests wait: for a kill, for Spark, for the disk. Each process also costs: it
# collects all tests and begins a Spark of its own. Short runs have few processes for that reason.
JOBS ?= $(shell expr $$(nproc) + 1)
SHORT_JOBS := 2

# How much more the long tests do than CI: cycles of kill -9, and how many times the simulated crashes of `make test`.
KILL_CYCLES ?= 500
CRASH_SCALE ?= 10
HISTORY_SECONDS ?= 600
FUZZ_STREAMS ?= 10000000
FUZZ_SEED ?= 100000
# Least requests for each OpenAPI document, and the first seed.
CASES ?= 10000
SEED ?= 1
SOAK_SECONDS ?= 600
RETRY_ROUNDS ?= 100
ROUNDS ?= 20
HISTORIES ?= 50
# Where packages from Maven are kept: Spark's for Kafka and Avro, and Kafka's of each supported version.
PACKAGES_DIR ?= $(VENV)/packages
# How many cases of produced batches a short run with a broker draws, from which seed every run makes them, and the tests
# of a short run.
KAFKA_SAMPLE ?= 150
KAFKA_SEED ?= 20261127
KAFKA_QUICK := tests/kafka/test_adoption.py tests/kafka/test_differences.py tests/kafka/test_produce_agrees.py

# What is run a second time as where there is no compiler; the library's own tests look at both ways themselves.
WITHOUT_COMPILER := tests/http/test_fetch.py tests/http/test_produce.py tests/http/test_fast_path_agrees.py tests/http/test_fast_path_waits.py
# Faults whose tests stand where the rule that they broke is tested.
FAILURES_ELSEWHERE := tests/cases/test_broker_judged_cases.py tests/cases/test_retention_cases.py tests/cases/test_roll_cases.py tests/cases/test_swap_cases.py tests/http/test_fast_path_declarations.py tests/unit/spark/test_java.py
PYTEST := $(BIN)/python -m pytest
PARALLEL := -n $(JOBS) --dist loadscope --durations 15

# Writes pins and hashes for every supported Python into one file. No index address and no path of this machine.
LOCK := $(BIN)/uv pip compile --no-config --quiet --universal --python-version 3.11 --fork-strategy fewest \
	--generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --no-emit-package rollway \
	--custom-compile-command "make lock" $(UPGRADE)

.DEFAULT_GOAL := help
.PHONY: help setup run demo demo-http test test-all engine-test kill-test history-test retry-test fuzz-http openapi-test same-files-test spark-fault-test spark-oldest-test spark-packages-test kafka-packages kafka-test kafka-quick-test crash-test failures-test loop-test check check-types check-style check-imports check-documents check-house format bench bench-compare bench-peers bench-spark latency soak flame-graphs sdks wheels wheels-test house docs openapi contract contract-release contract-oasdiff lock clean

help: ## list the targets
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-19s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(SETUP_STAMP) ## make .venv with everything in it (needs Python 3.11, 3.12 or 3.13; PYTHON=... chooses one)
	@sh requirements/find-python "$(PYTHON)" $(BIN)/python

# Our own modules are compiled while everything else is fetched and unpacked.
$(SETUP_STAMP): requirements/build.lock requirements/dev.lock pyproject.toml client/pyproject.toml $(COMPILED)
	@set -e; \
	if [ ! -x $(BIN)/python ]; then \
	  python="$$(sh requirements/find-python "$(PYTHON)")"; \
	  echo "making $(VENV) with $$python"; \
	  "$$python" -m venv $(VENV); \
	fi
	@$(BIN)/python -c 'import pip; raise SystemExit(tuple(map(int, pip.__version__.split(".")[:2])) < (21, 3))' || \
	  { echo "the pip of $(VENV) is older than 21.3: make clean, then make setup makes it again"; exit 1; }
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/build.lock
	export DIST_EXTRA_CONFIG="$(CURDIR)/requirements/wheels.cfg"; \
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e client -e . & ours=$$!; \
	$(BIN)/python -m pip install --quiet --require-hashes --no-build-isolation -r requirements/dev.lock && wait $$ours
	@touch $@
	@$(BIN)/python -c 'from rollway.records.compiled import is_compiled; is_compiled() or print("no C compiler, or no Python.h: records are read and written in Python, which takes 10 to 100 times as long")'
	@echo "ready: $(BIN)/rollway, and every target of this Makefile"

run: setup ## start the service on http://127.0.0.1:8080 with its data in rollway-data (DATA_DIR=...)
	$(BIN)/rollway serve --data-dir "$(DATA_DIR)"

$(DEMO_STAMP): requirements/demo.lock $(SETUP_STAMP)
	$(BIN)/python -m pip install --quiet --require-hashes --no-deps --no-build-isolation -r requirements/demo.lock
	@touch $@

demo: setup $(DEMO_STAMP) ## load 336,776 real records with Spark into a fresh service, and check every answer
	$(BIN)/python -m demo --data-dir "$(DEMO_DIR)"

demo-http: setup $(DEMO_STAMP) ## the same with plain HTTP requests, without Spark
	$(BIN)/python -m demo --http --data-dir "$(DEMO_DIR)"

# The JVMs of the tests start from an archive of Spark's classes.
$(JAVA_STAMP): tests/spark/class_archive.py $(SETUP_STAMP)
	$(BIN)/python -m tests.spark.class_archive
	@touch $@

# The tools of the generators that CI runs, each in a folder of its own. Those whose toolchain is missing are left out.
$(SDKS_STAMP): requirements/openapi-python-client.lock sdks/generators.py $(SETUP_STAMP)
	$(BIN)/python -m sdks --quick --install
	@touch $@

test: setup $(DEMO_STAMP) $(BENCH_STAMP) $(JAVA_STAMP) $(SDKS_STAMP) ## run the tests (CI does a quarter of the simulated crashes and half of the history)
	$(PYTEST) $(PARALLEL) -m "not slow"
	ROLLWAY_PURE_PYTHON=1 $(PYTEST) -n $(SHORT_JOBS) -m "not slow" $(WITHOUT_COMPILER)
	ENGINE=memory $(PYTEST) -n $(SHORT_JOBS) -m "not slow" $$($(BIN)/python -m tests.support.engine_list quick)

test-all: setup $(DEMO_STAMP) $(BENCH_STAMP) $(JAVA_STAMP) $(SDKS_STAMP) ## run every test, the long ones too (500 kill cycles, larger crash runs, 1 GiB of memory)
	KILL_CYCLES=$(KILL_CYCLES) CRASH_SCALE=$(CRASH_SCALE) $(PYTEST) $(PARALLEL)

engine-test: setup $(DEMO_STAMP) ## the HTTP tests on the engine in memory, but those that need the local one (docs/reference/engines.md)
	ENGINE=memory $(PYTEST) -m "not slow" --engine-page $$($(BIN)/python -m tests.support.engine_list suite)

kill-test: setup ## kill -9 a real server under load, 500 times (KILL_CYCLES=...)
	KILL_CYCLES=$(KILL_CYCLES) $(PYTEST) tests/http/test_kill.py -s

retry-test: setup ## send every request several times over breaking connections, 100 kills (RETRY_ROUNDS=...)
	RETRY_ROUNDS=$(RETRY_ROUNDS) $(PYTEST) tests/http/test_retries.py -s

spark-fault-test: setup $(JAVA_STAMP) ## Spark loads while tasks, drivers, workers and services die, each scenario 20 times (ROUNDS=...)
	SPARK_FAULT_ROUNDS=$(ROUNDS) $(PYTEST) tests/spark_faults -s -m slow

$(OLDEST_SPARK_STAMP): requirements/oldest-spark.lock $(SETUP_STAMP)
	rm -rf $(OLDEST_SPARK)
	DIST_EXTRA_CONFIG="$(CURDIR)/requirements/wheels.cfg" $(BIN)/python -m pip install --quiet --require-hashes --no-deps \
		--no-build-isolation --target $(OLDEST_SPARK) -r requirements/oldest-spark.lock
	@touch $@

spark-oldest-test: setup $(OLDEST_SPARK_STAMP) ## the tests with Spark again, on the oldest Spark that the library allows
	$(ON_OLDEST_SPARK) $(PYTEST) $(PARALLEL) -m "not slow" tests/spark

spark-packages-test: setup $(OLDEST_SPARK_STAMP) ## rollway-spark with Spark's packages for Kafka and Avro, on the oldest Spark and on ours (needs mvn)
	$(BIN)/python -m tests.spark_packages.fetching "$(PACKAGES_DIR)"
	$(ON_OLDEST_SPARK) SPARK_PACKAGES_DIR="$(PACKAGES_DIR)" $(PYTEST) tests/spark_packages -m slow
	SPARK_PACKAGES_DIR="$(PACKAGES_DIR)" $(PYTEST) tests/spark_packages -m slow

kafka-packages: setup ## get the brokers that the tests run, of both versions (needs mvn and java)
	$(BIN)/python -m bench.peers.kafka_packages "$(PACKAGES_DIR)"

kafka-test: kafka-packages ## hold requests, answers and files against real brokers, the oldest and the newest Kafka (KAFKA_SEED=...; needs mvn and java)
	KAFKA_PACKAGES_DIR="$(PACKAGES_DIR)" KAFKA_SEED=$(KAFKA_SEED) $(PYTEST) tests/kafka

kafka-quick-test: kafka-packages ## its produced batches, a sample, and a directory that changes hands, with the newest Kafka, under two minutes (KAFKA_SAMPLE=..., KAFKA_SEED=...)
	KAFKA_PACKAGES_DIR="$(PACKAGES_DIR)" KAFKA_SEED=$(KAFKA_SEED) KAFKA_SAMPLE=$(KAFKA_SAMPLE) $(PYTEST) $(KAFKA_QUICK)

history-test: setup ## load, kill -9 and late requests, with and without clock steps, ten minutes each, judged as Jepsen judges (HISTORY_SECONDS=...)
	HISTORY_SECONDS=$(HISTORY_SECONDS) CLOCK_HISTORY_SECONDS=$(HISTORY_SECONDS) $(PYTEST) tests/histories -s -k promises

fuzz-http: setup ## hold every way to read a request against httptools, ten million streams (FUZZ_STREAMS=..., FUZZ_SEED=...)
	FUZZ_STREAMS=$(FUZZ_STREAMS) FUZZ_SEED=$(FUZZ_SEED) $(PYTEST) -n $(JOBS) tests/differential

openapi-test: setup ## schemathesis, every check, against the published document and the whole one (CASES=..., SEED=...)
	$(BIN)/python -m tests.conformance --cases $(CASES) --seed $(SEED)

same-files-test: setup ## random histories leave the files of partitions that an earlier revision leaves, to the byte (REV=..., HISTORIES=...)
	SAME_FILES_REV=$(or $(REV),aec6a60b) SAME_FILES_HISTORIES=$(HISTORIES) $(PYTEST) tests/revisions -s

crash-test: setup ## crash the log on a simulated disk, ten times as often as `make test` does (CRASH_SCALE=...)
	CRASH_SCALE=$(CRASH_SCALE) $(PYTEST) $(PARALLEL) tests/crash

failures-test: setup $(JAVA_STAMP) ## every fault that reviewers, attackers and newcomers ever found, against a real service
	$(PYTEST) $(PARALLEL) tests/failures $(FAILURES_ELSEWHERE)

sdks: setup ## a client by each generator of SDKs, compiled, and its program against a service (SDKS="--only ogen"; needs node, go, java, mvn, cargo)
	$(BIN)/python -m sdks $(SDKS)

loop-test: setup ## the CPU time of the loop's longest turn, for a table of hostile inputs (fails above 100 ms)
	$(BIN)/python -m tests.failures.loop_turns

check: setup ## lint, format, types, import directions, house numbers, whether generated files are fresh, and the contract with SDKs
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target check-types check-style check-imports check-documents check-house

check-types:
	$(BIN)/mypy

check-style:
	$(BIN)/ruff check
	$(BIN)/ruff format --check

check-imports:
	$(BIN)/lint-imports

check-documents:
	@$(BIN)/rollway openapi | cmp -s - openapi/openapi.json || { echo "openapi/openapi.json is stale: run make openapi"; exit 1; }
	$(BIN)/python -m openapi.contract
	$(BIN)/python -m docs.generate --check

check-house:
	$(BIN)/python -m house --check

format: setup ## format the code and fix what the linter can fix
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

$(BENCH_STAMP): requirements/bench.lock $(SETUP_STAMP)
	$(BIN)/python -m pip install --quiet --require-hashes --no-deps -r requirements/bench.lock
	@touch $@

bench: setup $(BENCH_STAMP) ## measure every path beside its limit, ten minutes (BENCH="--only tiny --rounds 3")
	$(BIN)/python -m bench --output "$(BENCH_DIR)" $(BENCH)

bench-compare: setup ## this revision against another, in turns (REV=main~1, BENCH="--only produce")
	$(BIN)/python -m bench.compare $(BENCH) -- "$(REV)"

flame-graphs: setup $(BENCH_STAMP) ## where the time of each path goes, as SVG files (BENCH="--only fetch")
	$(BIN)/python -m bench.flame_graphs --output "$(BENCH_DIR)" $(BENCH)

bench-peers: setup ## measure it beside Kafka, NATS, Redis ..., those that can be had (PEERS="--only nats")
	@mkdir -p "$(BENCH_DIR)"
	$(BIN)/python -m bench.peers --json "$(BENCH_DIR)/peers.json" --markdown "$(BENCH_DIR)/peers.md" $(PEERS)

bench-spark: setup ## Spark on Rollway beside Spark alone, half an hour (SPARK_BENCH="--only write --rows 1000000")
	@mkdir -p "$(BENCH_DIR)"
	$(BIN)/python -m bench.spark --json "$(BENCH_DIR)/spark.json" --markdown "$(BENCH_DIR)/spark.md" $(SPARK_BENCH)

latency: setup $(BENCH_STAMP) ## ten minutes of durable appends at half load beside the disk alone (LATENCY="--share 0.25")
	$(BIN)/python -m bench.tail --seconds 600 --output "$(BENCH_DIR)" $(LATENCY)

soak: setup $(BENCH_STAMP) ## ten minutes of mixed load with rolls and retention: does anything grow? (SOAK_SECONDS=...)
	@mkdir -p "$(BENCH_DIR)"
	$(BIN)/python -m bench.soak --seconds $(SOAK_SECONDS) --plot "$(BENCH_DIR)/soak.svg" \
		--json "$(BENCH_DIR)/soak.json" --markdown "$(BENCH_DIR)/soak.md"

house: setup ## print the house numbers beside their limits (HOUSE=--record writes them, HOUSE="--walk FILE:FUNCTION:PARAMETER")
	$(BIN)/python -m house $(HOUSE)

$(WHEELS_STAMP): requirements/wheels.lock $(SETUP_STAMP)
	$(BIN)/python -m pip install --quiet --require-hashes --no-deps -r requirements/wheels.lock
	@touch $@

wheels: setup $(WHEELS_STAMP) ## wheels and sdists of the service and the library, checked, in dist (WHEELS="--python 3.12 --machine x86_64")
	$(BIN)/python -m wheels $(WHEELS)

wheels-test: wheels ## install the wheels in dist that this machine runs, and the sdists, each elsewhere, and use them
	WHEELS_DIR=dist $(PYTEST) -n 2 tests/wheels

docs: setup ## write the generated parts of docs/reference and the library's table of exceptions again
	$(BIN)/python -m docs.generate

openapi: setup ## write openapi/openapi.json again, and all that `make docs` writes
	$(BIN)/rollway openapi --output openapi/openapi.json
	$(BIN)/python -m docs.generate

contract: setup ## name the changes of openapi/openapi.json that break SDKs of the last release, but for those in CHANGELOG
	$(BIN)/python -m openapi.contract

contract-release: setup ## a part of a release: openapi/openapi.json becomes openapi/released.json
	$(BIN)/python -m openapi.contract --release

$(OASDIFF):
	GOPATH="$(CURDIR)/$(OASDIFF_HOME)" GOBIN="$(CURDIR)/$(OASDIFF_HOME)" GOCACHE="$(CURDIR)/$(OASDIFF_HOME)/cache" \
		GOFLAGS=-modcacherw go install github.com/oasdiff/oasdiff@$(OASDIFF_VERSION)

contract-oasdiff: setup $(OASDIFF) ## hold the rules of the contract against oasdiff, which it builds first (needs go, some minutes)
	OASDIFF="$(CURDIR)/$(OASDIFF)" $(PYTEST) tests/unit/openapi/test_oasdiff.py

lock: setup ## resolve the dependencies anew (UPGRADE=--upgrade takes the newest)
	$(LOCK) pyproject.toml -o requirements/service.lock
	$(LOCK) pyproject.toml --group dev -o requirements/dev.lock
	$(LOCK) --group build -o requirements/build.lock
	$(LOCK) --group demo --no-deps -o requirements/demo.lock
	$(LOCK) --group oldest-spark --no-deps -o requirements/oldest-spark.lock
	$(LOCK) --group bench --constraints requirements/dev.lock -o requirements/bench.lock
	$(LOCK) --group wheels --constraints requirements/dev.lock -o requirements/wheels.lock
	$(LOCK) --group openapi-python-client -o requirements/openapi-python-client.lock
	$(LOCK) --group openapi-generator-python -o requirements/openapi-generator-python.lock

clean: ## remove .venv, caches and what builds leave; data directories stay
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -rf *.egg-info client/src/*.egg-info
