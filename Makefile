# The commands of this project. Each builds what it needs: .venv, and Java for Spark.

PYTHON ?= $(shell tools/find-python)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.complete

# Tests and benchmarks start some thousand processes. Compiled modules are kept, also where the
# environment says otherwise: else each process spends half a second on compiling the same sources.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo test test-unit test-others test-seeds test-cluster test-sim test-spark \
	soak soak-seeds soak-rules soak-stories soak-unit soak-clusters check check-types check-style bench bench-kafka clean

help:
	@echo "make demo    three brokers, an object store, 336,776 real records, Spark; checked"
	@echo "make test    all unit tests, and a part of the long ones, drawn by the commit"
	@echo "make soak    what make test draws from, whole; 2,600 simulated clusters; fuzzing; hours"
	@echo "             its parts: soak-seeds, soak-rules, soak-stories, soak-unit, soak-clusters"
	@echo "make check   style, types, import rules, sizes"
	@echo "make bench   benchmarks, with ratios against peers in the same run"
	@echo "make bench-kafka   the same cases on Ottla and on Apache Kafka, side by side"
	@echo "make clean   remove .venv and build output"

$(STAMP): requirements.lock pyproject.toml tools/make-venv
	@PYTHON="$(PYTHON)" tools/make-venv $(VENV)
	@touch $(STAMP)

demo: $(STAMP)
	@$(BIN)/ottla demo --chart demo.png

# Unit tests wait half of their time, for a timer, a thread or a disk, and tests of clusters and of
# Spark wait longer. The histories of the simulator need nothing but a core: they run beside all of
# these, and let them go first. Clusters and Spark run beside the simulator's other tests, five
# workers for two cores, eight at most (see tests/conftest.py). What judges latencies runs alone. In
# each line's last words "deselected" are those that are left to `make soak`.
SEEDS_TEST = tests/sim/test_seeds.py
WORKERS = $(shell n=$$(nproc); echo $$((n < 3 ? 5 * n / 2 : 8)))
# One more than there are cores: for unit tests, and for clusters with nothing else beside them.
FEWER_WORKERS = $(shell n=$$(nproc); echo $$((n < 8 ? n + 1 : 8)))

test: $(STAMP)
	@$(MAKE) --no-print-directory -j 2 test-others test-seeds
	@$(BIN)/python -m pytest -m alone $(call PLAYED_BY,mark\.alone,tests/cluster)

test-unit: $(STAMP)
	@$(BIN)/python -m pytest -n $(FEWER_WORKERS) --dist loadgroup tests/unit

# After unit tests, all that neither runs beside them nor alone.
test-others: test-unit
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m "not alone" --ignore $(SEEDS_TEST) tests/sim tests/cluster tests/spark

test-seeds: $(STAMP)
	@nice -n 10 $(BIN)/python -m pytest -q --no-header $(SEEDS_TEST)

test-cluster: $(STAMP)
	@$(BIN)/python -m pytest tests/cluster

test-sim: $(STAMP)
	@$(BIN)/python -m pytest -s tests/sim

# The files of which `make test` plays a part, by what has all of it played (see tests/drawn.py).
PLAYED_BY = $(shell grep -rlE --include="test_*.py" "$(1)" $(2))
VARIANTS = $(call PLAYED_BY,SIM_VARIANTS,tests/sim)
STORIES = $(filter-out $(SEEDS_TEST),$(call PLAYED_BY,SIM_STORIES|drawn_seeds,tests/sim))
# Unit tests have a line of their own, and so have two of the others. Of clusters and Spark whole
# files are drawn, too.
ROUNDS = $(filter-out %/test_ensemble_faults.py %/test_deletion_crashes.py,$(call PLAYED_BY,FAULT_ROUNDS|mark\.(forms|drawn),tests/sim) $(call PLAYED_BY,def test_,tests/cluster tests/spark))

# Simulated clusters begin at a seed of the commit's own, so that each soak plays others.
FIRST_SEED = $(shell echo $$((0x$$(git rev-parse HEAD 2>/dev/null | cut -c1-7 | grep . || echo 1))))
SIM_SEEDS = $(or $(OTTLA_SIM_SEEDS),2300)
SIM_ZOOKEEPER_SEEDS = $(or $(OTTLA_SIM_ZOOKEEPER_SEEDS),300)
SEEDS = --seeds $(FIRST_SEED)..$(shell echo $$(($(FIRST_SEED) + $(1) - 1)))

# In every line all forms of a test and all functions of a file are played.
SOAKS = soak-seeds soak-rules soak-stories soak-unit soak-clusters
soak $(SOAKS): export OTTLA_FAULT_ROUNDS := all
soak:
	@for part in $(SOAKS); do $(MAKE) --no-print-directory $$part || exit; done

soak-seeds: $(STAMP)
	@$(BIN)/ottla sim $(call SEEDS,$(SIM_SEEDS)) --workers $$(nproc) --quiet
	@$(BIN)/ottla sim $(call SEEDS,$(SIM_ZOOKEEPER_SEEDS)) --workers $$(nproc) --quiet --zookeeper

soak-rules: $(STAMP)
	@OTTLA_SIM_VARIANTS=all $(BIN)/python -m pytest -n 2 -s $(VARIANTS)

soak-stories: $(STAMP)
	@OTTLA_DELETION_STEPS=all $(BIN)/python -m pytest tests/sim/test_deletion_crashes.py
	@OTTLA_DISABLING_STEPS=all $(BIN)/python -m pytest -n 2 tests/sim/test_disabling_crashes.py
	@OTTLA_SIM_STORIES=all $(BIN)/python -m pytest $(SEEDS_TEST)
	@OTTLA_SIM_STORIES=all $(BIN)/python -m pytest -n 2 $(STORIES)
	@OTTLA_POWER_SEEDS=100 $(BIN)/python -m pytest -n 2 tests/sim/test_power_after_truncation.py

soak-unit: $(STAMP)
	@OTTLA_RAFT_SEEDS=5000 $(BIN)/python -m pytest --timeout=3600 tests/unit/raft/test_simulation.py
	@OTTLA_EXAMPLES=all OTTLA_WIRE_EXAMPLES=40 OTTLA_RAFT_SEEDS=120 $(BIN)/python -m pytest -n auto --dist loadgroup tests/unit

soak-clusters: $(STAMP)
	@$(BIN)/python -m pytest -n $(FEWER_WORKERS) --dist loadgroup -m "not alone" $(ROUNDS)
	@$(BIN)/python -m pytest -m alone $(ROUNDS)
	@OTTLA_ENSEMBLE_ROUNDS=$${OTTLA_ENSEMBLE_ROUNDS:-30} $(BIN)/python -m pytest tests/cluster/zookeeper/test_ensemble_faults.py
	@OTTLA_QUORUM_ROUNDS=30 $(BIN)/python -m pytest --timeout=1800 tests/cluster/test_quorum.py
	@OTTLA_DELETION_ROUNDS=$${OTTLA_DELETION_ROUNDS:-3} $(BIN)/python -m pytest tests/cluster/test_deletion_crashes.py
	@OTTLA_FUZZ_FRAMES=$${OTTLA_FUZZ_FRAMES:-100000} $(BIN)/python -m pytest -s tests/cluster/test_frame_fuzzer.py

test-spark: $(STAMP)
	@$(BIN)/python -m pytest tests/spark

# The types take one core longer than all the rest takes the other.
check: $(STAMP)
	@$(MAKE) --no-print-directory -j 2 check-types check-style

check-types: $(STAMP)
	$(BIN)/mypy
	MYPYPATH=src:.:benches $(BIN)/mypy benches/*.py

check-style: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/python tools/tidy.py

bench: $(STAMP)
	@$(BIN)/python benches/run.py

# Beside Apache Kafka, whose jars Maven fetches once; without Maven or Java it says so and ends.
bench-kafka: $(STAMP)
	@$(BIN)/python benches/against_kafka.py

clean:
	rm -rf $(VENV) build dist
