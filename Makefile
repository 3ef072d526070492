# The commands of this project. Each builds what it needs: .venv, and Java for Spark.

PYTHON ?= $(shell tools/find-python)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.complete

# Tests and benchmarks start some thousand processes. Compiled modules are kept, also where the
# environment says otherwise: else each process spends half a second on compiling the same sources.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo test test-unit test-cluster test-sim test-spark soak check bench bench-kafka clean

help:
	@echo "make demo    three brokers, an object store, 336,776 real records, Spark; checked"
	@echo "make test    every test; of the longest a part, drawn by the commit"
	@echo "make soak    what make test draws from, whole; 2,600 simulated clusters; fuzzing; hours"
	@echo "make check   style, types, import rules, sizes"
	@echo "make bench   benchmarks, with ratios against peers in the same run"
	@echo "make bench-kafka   the same cases on Ottla and on Apache Kafka, side by side"
	@echo "make clean   remove .venv and build output"

$(STAMP): requirements.lock pyproject.toml tools/make-venv
	@PYTHON="$(PYTHON)" tools/make-venv $(VENV)
	@touch $(STAMP)

demo: $(STAMP)
	@$(BIN)/ottla demo --chart demo.png

# Tests of clusters wait more than they work: two workers a core, eight at most. What judges
# latencies runs alone. Spark waits for one thing at a time, so the simulator's seeds, which take
# all cores and have a clock of their own, run beside it.
WORKERS = $(shell n=$$(nproc); echo $$((n < 4 ? 2 * n : 8)))

test: test-unit
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m "not alone" tests/sim tests/cluster
	@$(BIN)/python -m pytest -m alone tests/cluster
	@$(BIN)/python -m pytest -n 2 --dist loadgroup tests/spark tests/sim/test_seeds.py

test-unit: $(STAMP)
	@$(BIN)/python -m pytest -n auto --dist loadfile tests/unit

test-cluster: $(STAMP)
	@$(BIN)/python -m pytest tests/cluster

test-sim: $(STAMP)
	@$(BIN)/python -m pytest -s tests/sim

# The files of which `make test` plays a part, by what has all of it played (see tests/drawn.py).
PLAYED_BY = $(shell grep -rlE --include="test_*.py" "$(1)" $(2))
VARIANTS = $(call PLAYED_BY,SIM_VARIANTS,tests/sim)
STORIES = $(filter-out tests/sim/test_seeds.py,$(call PLAYED_BY,SIM_STORIES|drawn_seeds,tests/sim))
# Two of them have lines of their own.
ROUNDS = $(filter-out %/test_ensemble_faults.py %/test_deletion_crashes.py,$(call PLAYED_BY,FAULT_ROUNDS|mark\.(forms|drawn),tests))

soak: $(STAMP)
	@$(BIN)/ottla sim --count $${OTTLA_SIM_SEEDS:-2300} --workers $$(nproc) --quiet
	@$(BIN)/ottla sim --count $${OTTLA_SIM_ZOOKEEPER_SEEDS:-300} --workers $$(nproc) --quiet --zookeeper
	@OTTLA_SIM_VARIANTS=all $(BIN)/python -m pytest -n 2 -s $(VARIANTS)
	@OTTLA_DELETION_STEPS=all $(BIN)/python -m pytest tests/sim/test_deletion_crashes.py
	@OTTLA_DISABLING_STEPS=all $(BIN)/python -m pytest -n 2 tests/sim/test_disabling_crashes.py
	@OTTLA_SIM_STORIES=all $(BIN)/python -m pytest tests/sim/test_seeds.py
	@OTTLA_SIM_STORIES=all $(BIN)/python -m pytest -n 2 $(STORIES)
	@OTTLA_RAFT_SEEDS=5000 $(BIN)/python -m pytest --timeout=3600 tests/unit/raft/test_simulation.py
	@OTTLA_POWER_SEEDS=100 $(BIN)/python -m pytest -n 2 tests/sim/test_power_after_truncation.py
	@OTTLA_FAULT_ROUNDS=all $(BIN)/python -m pytest $(ROUNDS)
	@OTTLA_FAULT_ROUNDS=all OTTLA_ENSEMBLE_ROUNDS=$${OTTLA_ENSEMBLE_ROUNDS:-30} $(BIN)/python -m pytest tests/cluster/zookeeper/test_ensemble_faults.py
	@OTTLA_DELETION_ROUNDS=$${OTTLA_DELETION_ROUNDS:-3} $(BIN)/python -m pytest tests/cluster/test_deletion_crashes.py
	@OTTLA_FUZZ_FRAMES=$${OTTLA_FUZZ_FRAMES:-100000} $(BIN)/python -m pytest -s tests/cluster/test_frame_fuzzer.py

test-spark: $(STAMP)
	@$(BIN)/python -m pytest tests/spark

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python tools/tidy.py

bench: $(STAMP)
	@$(BIN)/python benches/run.py

# Beside Apache Kafka, whose jars Maven fetches once; without Maven or Java it says so and ends.
bench-kafka: $(STAMP)
	@$(BIN)/python benches/against_kafka.py

clean:
	rm -rf $(VENV) build dist
