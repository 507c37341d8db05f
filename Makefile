# make results   set up .venv and run the pipeline
# make test      the same set-up with the test extra, the checks, then the whole suite
# make verify    compare results/ with its record, its seals and this checkout
# make check     lint, formats and types;  make bench   timings;  make clean   remove what the pipeline made
# make test-faults   mutated files, runs killed at random moments, the same bytes everywhere (an hour; docs/reliability.md)
# make test-cluster   the minimal config here and on a Slurm of one node, which it starts and stops (docs/cluster.md)
# make dictionary  write anew what README.md, results/README.md and the package repeat of the code;  make families  docs/families.md
# make mutants   put single faults into the code and see whether a run notices (needs a finished run)
PYTHON ?= python3
CORES ?= 8
VENV := .venv
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
unexport PYTHONPATH

FUZZED ?= 10000
KILLS ?= 200

.PHONY: results verify test test-faults test-cluster check mutants bench clean dictionary families

results: $(VENV)/results.stamp
	snakemake --cores $(CORES)

verify: $(VENV)/results.stamp
	python -m transformer_ledger verify results

test: check
	pytest -n 2

check: $(VENV)/test.stamp
	ruff check src tests benchmarks
	ruff format --check src tests benchmarks
	snakefmt --check Snakefile workflow
	mypy
	snakemake --lint

test-faults: $(VENV)/test.stamp
	python tests/faults/fuzz.py $(FUZZED)
	python tests/faults/kill.py $(KILLS)
	python tests/faults/same.py

test-cluster: $(VENV)/test.stamp
	pip install --quiet --disable-pip-version-check --editable '.[cluster]'
	python tests/cluster/run.py

mutants: $(VENV)/test.stamp
	python tests/mutation.py

bench: $(VENV)/results.stamp
	python benchmarks/run.py

clean:
	rm -rf .snakemake logs
	find results -mindepth 1 -not -name README.md -delete

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) --version). Try: make PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# A stamp is newer than pyproject.toml while the environment holds its pins, so a second make installs nothing.
$(VENV)/results.stamp: pyproject.toml | $(VENV)/bin/python
	pip install --quiet --disable-pip-version-check --editable '.[pipeline]'
	@touch $@

$(VENV)/test.stamp: pyproject.toml | $(VENV)/bin/python
	pip install --quiet --disable-pip-version-check --editable '.[pipeline,notebook,test]'
	@touch $@ $(VENV)/results.stamp

dictionary: $(VENV)/results.stamp
	python -m transformer_ledger.documents

# Builds and counts every causal model of transformers: minutes.
families: export TRANSFORMER_LEDGER_TIME_LIMIT = 60
families: $(VENV)/results.stamp
	python -m transformer_ledger.executed.catalogue >docs/families.md.new
	mv docs/families.md.new docs/families.md
