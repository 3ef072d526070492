# The commands of this project. Each builds what it needs: .venv, and Java for Spark.

PYTHON ?= $(shell tools/find-python)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.complete

# Tests and benchmarks start some thousand processes. Compiled modules are kept, also where the
# environment says otherwise: else each process spends half a second on compiling the same sources.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo test test-unit test-cluster test-sim test-spark soak check bench clean

help:
	@echo "make demo    a three-broker cluster, 336,776 real records, Spark on top; checked"
	@echo "make test    every test; of the longest a part, drawn by the commit"
	@echo "make soak    what make test draws from, whole; 2,600 simulated clusters; fuzzing; hours"
	@echo "make check   style, types, import rules, sizes"
	@echo "make bench   benchmarks, with ratios against peers in the same run"
	@echo "make clean   remove .venv and build output"

$(STAMP): requirements.lock pyproject.toml tools/make-venv
	@PYTHON="$(PYTHON)" tools/make-venv $(VENV)
	@touch $(STAMP)

demo: $(STAMP)
	@$(BIN)/ottla demo

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

# Files of which `make test` plays each story in one of its forms.
FORMS = $(shell grep -rl --include="test_*.py" "mark.forms" tests)

soak: $(STAMP)
	@$(BIN)/ottla sim --count $${OTTLA_SIM_SEEDS:-2300} --workers $$(nproc) --quiet
	@$(BIN)/ottla sim --count $${OTTLA_SIM_ZOOKEEPER_SEEDS:-300} --workers $$(nproc) --quiet --zookeeper
	@OTTLA_SIM_VARIANTS=all $(BIN)/python -m pytest -n 2 -s tests/sim/test_variants.py tests/sim/test_group_variants.py tests/sim/test_fault_variants.py tests/sim/test_log_variants.py tests/sim/test_tier_variants.py tests/sim/test_tier_stories.py tests/sim/test_tiering_off_variants.py
	@OTTLA_DELETION_STEPS=all $(BIN)/python -m pytest tests/sim/test_deletion_crashes.py
	@OTTLA_SIM_STORIES=all $(BIN)/python -m pytest tests/sim/test_seeds.py
	@OTTLA_SIM_STORIES=all $(BIN)/python -m pytest -n 2 tests/sim/test_crashes.py tests/sim/test_moves.py tests/sim/test_followers.py tests/sim/test_idle_topics.py tests/sim/test_unclean_brokers.py tests/sim/test_slow_log_creation.py
	@OTTLA_RAFT_SEEDS=5000 $(BIN)/python -m pytest --timeout=3600 tests/unit/raft/test_simulation.py
	@OTTLA_POWER_SEEDS=100 $(BIN)/python -m pytest -n 2 tests/sim/test_power_after_truncation.py
	@OTTLA_FAULT_ROUNDS=all $(BIN)/python -m pytest tests/cluster/test_faults.py tests/cluster/test_controller_failover.py
	@OTTLA_FAULT_ROUNDS=all $(BIN)/python -m pytest tests/cluster/test_restarts.py tests/cluster/test_replication.py tests/cluster/test_reassignment.py
	@OTTLA_FAULT_ROUNDS=all $(BIN)/python -m pytest $(FORMS)
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

clean:
	rm -rf $(VENV) build dist
