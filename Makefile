# make demo    set up a virtual environment, install, run the demo
# make quick   the core's contracts and one test of each entry point, in less than a minute
# make test    set up everything the tests need, run all but those of make soak
# make soak    what needs long repetition: hundreds of kills, the full grid of false alarms, all examples of Hypothesis
# make check   style, types, architecture, doctests, the documentation, and the wheel in an empty environment
# make check-oldest  the tests that use each dependency, with the lowest versions that pyproject.toml admits
# make check-newest  the same with the newest versions, and the core on every Python from 3.11 up that is here
# make pipelines  the recipes for Airflow, Prefect, dbt and Great Expectations, with these installed (1 GB)
# make sanitize  the tests of the compiled loops, and forged snapshots, under AddressSanitizer and UndefinedBehaviorSanitizer (gcc)
# make docs    the documentation as a site, into site/
# make bench   speed, as ratios, against peers and the hardware: writes benchmarks/RESULTS.md
# make service the server: rates, stalls, many streams, faults, a quarter of an hour: writes benchmarks/SERVICE.md
# make spark   the same on Apache Spark: writes benchmarks/SPARK.md
# make validity  false alarms of everything that we ship, counted, and of the peers: writes benchmarks/VALIDITY.md
# make recipes  false alarms of tempting recipes that are not valid: writes docs/invalid-recipes.md
# make power   what the bets make of the same p-values: writes benchmarks/POWER.md (DATA=folder with the datasets)
# make detection  delay after a change at one rate of false alarms, two hours: writes benchmarks/DETECTION.md and DETECTION_LONG.md (DATA=...)
# make shares  other shares of the families of bets in Sentinel: writes benchmarks/SHARES.md (DATA=folder with the datasets)
# make models  drift detectors inside models of river: writes benchmarks/MODELS.md
# make table-monitor  time per row of TableMonitor: writes benchmarks/TABLE_MONITOR.md
# make keyed   many live streams in one process, what a call costs: writes benchmarks/KEYED.md
# make risk    how soon a mean loss above a limit is found, and false alarms: writes benchmarks/RISK.md
# make table-parts  what TableMonitor says has moved, and what missing labels cost: writes benchmarks/TABLE_PARTS.md
# make tables  the verdicts on the tables that ship with Python packages: writes benchmarks/REAL_TABLES.md
# make table-power  which departures of a table are found, by us and by others: writes benchmarks/TABLES.md
# make sequences  both versions of the default bet on the columns of these tables: writes benchmarks/SEQUENCES.md
# make streams  many streams on one machine, against loops, Ray, Dask and others: writes benchmarks/STREAMS.md
# make native  compile the kernels in src/exchangeable/native (the other targets do so when a source has changed)
# make page    what the server's page takes from npm, into src/exchangeable/service/page/vendor
# make pictures  the pictures in the documentation
# make published  bets of other papers against the values published for them: writes benchmarks/PUBLISHED.md (DATA=...)
# make paper   the tables and figures of Fedorova et al. (2012) into out/paper (DATA=folder with the datasets)

PYTHON ?= python3
VENV ?= .venv
BENCH ?= .venv-bench
PIPELINES ?= .venv-pipelines
# nonconform, a peer, wants Python 3.12 or newer
BENCH_PYTHON ?= $(shell r="$$(pyenv root 2>/dev/null)/versions"; \
  for p in python3.13 python3.12 "$$r"/3.13*/bin/python "$$r"/3.12*/bin/python; do \
  "$$p" -c '' 2>/dev/null && echo "$$p" && exit; done; echo $(PYTHON))
# one of each version from 3.11 up
PYTHONS ?= $(shell r="$$(pyenv root 2>/dev/null)/versions"; for v in 3.11 3.12 3.13 3.14; do \
  for p in python$$v "$$r"/$$v.*/bin/python; do "$$p" -c '' 2>/dev/null && echo "$$p" && break; done; done; true)
DATA ?=
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
BIN := $(VENV)/bin
SOURCES := $(wildcard src/exchangeable/native/*.[ch]) scripts/build_native.py hatch_build.py
NATIVE := src/exchangeable/native/_native.abi3.so
PIP := -m pip install --quiet --disable-pip-version-check

.PHONY: demo quick test soak check check-oldest check-newest pipelines sanitize style types doctest docs wheel bench service spark validity recipes power detection shares keyed models risk table-monitor table-parts tables table-power sequences published streams native page pictures paper clean

demo: $(VENV)/.demo $(NATIVE)
	$(BIN)/exchangeable demo

test: $(VENV)/.tools $(VENV)/.test $(NATIVE)
	$(BIN)/python scripts/build_page.py
	$(BIN)/python -m pytest -n 2 --dist loadgroup

quick: $(VENV)/.test $(NATIVE)
	$(BIN)/python -m pytest -q -n 2 -m quick $$(grep -l mark.quick tests/test_*.py)

soak: $(VENV)/.tools $(VENV)/.test $(NATIVE)
	$(BIN)/python scripts/build_page.py
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "soak or hypothesis" --hypothesis-profile soak

check: style types doctest docs wheel

check-oldest: $(VENV)/.check
	scripts/check-versions oldest $(BIN)/uv $(BIN)/python

check-newest: $(VENV)/.check
	scripts/check-versions newest $(BIN)/uv $(PYTHONS)

pipelines: $(PIPELINES)/.pipelines $(NATIVE)
	$(PIPELINES)/bin/python -m pytest tests/test_pipelines.py

sanitize: $(VENV)/.test
	$(BIN)/python scripts/sanitize.py

style: $(VENV)/.check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/verify_types.py

doctest: $(VENV)/.test $(NATIVE)
	$(BIN)/python -m pytest -p no:cacheprovider --doctest-modules --doctest-glob=README.md src README.md
	@rm -f latency.state

docs: $(VENV)/.check
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

wheel: $(VENV)/.tools $(VENV)/.check
	sh scripts/check-wheel $(BIN)/python

bench: $(BENCH)/.bench $(NATIVE)
	$(BENCH)/bin/python benchmarks/run.py

service: $(VENV)/.test $(NATIVE)
	$(BIN)/python benchmarks/bench_service.py

spark: $(VENV)/.tools $(VENV)/.test $(NATIVE)
	$(BIN)/python benchmarks/run_spark.py

validity: $(BENCH)/.bench $(NATIVE)
	$(BENCH)/bin/python benchmarks/validity.py

recipes: $(VENV)/.demo $(NATIVE)
	$(BIN)/python benchmarks/invalid_recipes.py

power: $(VENV)/.demo $(NATIVE)
	$(BIN)/python benchmarks/bench_power.py $(if $(DATA),--data $(DATA))

detection: $(BENCH)/.bench $(NATIVE)
	$(BENCH)/bin/python benchmarks/bench_detection.py --cache out/detection $(if $(DATA),--data $(DATA))

shares: $(BENCH)/.bench $(NATIVE)
	$(BENCH)/bin/python benchmarks/bench_shares.py $(if $(DATA),--data $(DATA))

models: $(BENCH)/.bench $(NATIVE)
	$(BENCH)/bin/python benchmarks/bench_models.py

table-monitor: $(VENV)/.demo $(NATIVE)
	$(BIN)/python benchmarks/bench_table_monitor.py

keyed: $(VENV)/.test $(NATIVE)
	$(BIN)/python benchmarks/bench_keyed.py

risk: $(VENV)/.demo $(NATIVE)
	$(BIN)/python benchmarks/bench_risk.py

table-parts: $(VENV)/.demo $(NATIVE)
	$(BIN)/python benchmarks/table_parts.py

tables: $(BENCH)/.tables $(NATIVE)
	$(BENCH)/bin/python benchmarks/real_tables.py

table-power: $(BENCH)/.bench $(NATIVE)
	$(BENCH)/bin/python benchmarks/bench_tables.py

sequences: $(BENCH)/.tables $(NATIVE)
	$(BENCH)/bin/python benchmarks/real_sequences.py

published: $(VENV)/.demo $(NATIVE)
	$(BIN)/python benchmarks/published.py $(if $(DATA),--data $(DATA))

streams: $(BENCH)/.bench $(NATIVE)
	$(BENCH)/bin/python benchmarks/bench_streams.py

native: $(NATIVE)

page: | $(BIN)/python
	$(BIN)/python scripts/build_page.py

pictures: $(VENV)/.tools $(VENV)/.test $(NATIVE)
	$(BIN)/python scripts/page_pictures.py
	$(BIN)/python scripts/docs_pictures.py

paper: $(VENV)/.demo $(NATIVE)
	$(BIN)/exchangeable reproduce all $(if $(DATA),--data $(DATA)) --out out/paper

clean:
	rm -rf $(VENV) $(BENCH) $(PIPELINES) $(NATIVE) build dist out site .mypy_cache .pytest_cache .ruff_cache

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "exchangeable needs Python 3.11 or newer: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "Python lacks the venv module: installing Debian's python3-venv" >&2; \
	  $(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq python3-venv && $(PYTHON) -m venv $(VENV); }

# The installs below compile it too; this is for sources that have changed since. pip fetches a compiler if there is none.
$(NATIVE): $(SOURCES) | $(BIN)/python
	$(BIN)/python $(PIP) --no-deps -e .

$(VENV)/.demo: pyproject.toml | $(BIN)/python
	$(BIN)/python $(PIP) -e '.[demo]'
	@touch $@

$(VENV)/.test: pyproject.toml | $(BIN)/python
	$(BIN)/python $(PIP) -e '.[all,test]'
	@touch $@

$(VENV)/.tools: scripts/test-tools | $(BIN)/python
	scripts/test-tools
	@touch $@

$(VENV)/.check: pyproject.toml | $(BIN)/python
	$(BIN)/python $(PIP) -e '.[all,test,check]'
	@touch $@

$(BENCH)/.bench: pyproject.toml benchmarks/requirements.txt
	$(BENCH_PYTHON) -m venv --clear $(BENCH)
	$(BENCH)/bin/python $(PIP) -e '.[all]' -r benchmarks/requirements.txt
	@touch $@

$(BENCH)/.tables: $(BENCH)/.bench benchmarks/table-packages.txt
	$(BENCH)/bin/python $(PIP) --no-deps -r benchmarks/table-packages.txt
	@touch $@

$(PIPELINES)/.pipelines: pyproject.toml examples/pipelines/requirements.txt
	$(PYTHON) -m venv --clear $(PIPELINES)
	$(PIPELINES)/bin/python $(PIP) -e '.[cli,report]' -r examples/pipelines/requirements.txt hypothesis pytest PyYAML
	@touch $@
