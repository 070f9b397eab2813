# Short targets; each says what it does. `make demo` and `make test` work from a clean clone.
VENV   := .venv
PY     := $(VENV)/bin/python
STAMP   = $(VENV)/.installed-$(1)
PIP    := $(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test check bench soak chaos debian-packages clean

demo: $(call STAMP,demo)  ## a herd of real training jobs, then the same jobs metered
	$(VENV)/bin/rampmeter demo

test: $(call STAMP,dev) debian-packages check  ## everything that must hold before a change lands
	$(PY) tests/side_by_side.py

check: $(call STAMP,dev)  ## types, style, who may import whom
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-cache

bench: $(call STAMP,dev)  ## measured promises, written to build/bench.json
	$(PY) tests/benchmarks/run.py

soak: $(call STAMP,dev)  ## a million random events, a million of the state machine, simulated storage and fleets, 1,000 kills of training processes; SEED=n repeats the events
	$(PY) tests/invariants/soak.py --events 1000000 $(if $(SEED),--seed $(SEED))
	$(PY) tests/soak/capacity.py
	$(PY) tests/soak/fleet.py
	$(PY) tests/soak/crash.py --kills 500 --ranks 1
	$(PY) tests/soak/crash.py --kills 500 --ranks 2
	$(PY) tests/soak/crash.py --kills 50 --ranks 2 --mode process

chaos: $(call STAMP,dev) debian-packages  ## processes, ranks of a job and Redis servers killed and frozen, about 25 minutes
	cd tests && PYTHONPATH=. ../$(PY) failover/chaos.py
	C57_PACE=1 C59_SAVES=50 $(PY) -m pytest -q tests/cases/test_ranks.py -k "c57 or c59"

debian-packages:  ## the real servers that tests use (as root; otherwise those tests skip)
	@sh tests/install-debian-packages.sh

$(VENV)/.installed-%: pyproject.toml constraints.txt
	@echo "rampmeter: installing into $(VENV) (extra: $*) ..."
	@test -x $(PY) || python3 -m venv $(VENV)
	@$(PIP) -e '.[$*]'
	@touch $@

clean:
	rm -rf build dist
