# Two commands matter: `make demo` and `make test`. Both create the environment when it is missing.
PYTHON ?= python3
JOBS ?= 2
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check install --quiet --constraint constraints.txt

.PHONY: help demo test test-oldest test-newest lint docs site screenshots golden accuracy bench clean
.DEFAULT_GOAL := help

help:
	@echo "make demo      record a small job on this machine, predict two what-ifs, measure both"
	@echo "make test      install what the tests need, lint, type-check and run every test"
	@echo "make test-oldest  the tests with the oldest versions that pyproject.toml allows"
	@echo "make test-newest  the tests with the newest versions of everything"
	@echo "make lint      ruff, mypy and who imports whom only"
	@echo "make docs      rewrite what is generated from code (schema, transforms, devices, api, the rooms)"
	@echo "make site      build the documentation into site/"
	@echo "make screenshots  take the pictures of docs/images anew (needs Chromium)"
	@echo "make golden    rewrite the expected reports under tests/whole/golden"
	@echo "make accuracy  rerun all accuracy studies and rewrite docs/how-far-off.md and docs/accuracy*.md"
	@echo "make bench     print the benchmarks"
	@echo "make clean     remove the environment and all caches"

demo: $(VENV)/installed-demo
	$(PY) examples/demo.py

test: lint
	$(PY) -m pytest -n $(JOBS) --cov --cov-report=term-missing:skip-covered

# Both in environments of their own, without the tests of texts that one set of versions prints
# (golden reports, pages) and of what only `make lint` installs.
OLDEST := .venv-oldest
NEWEST := .venv-newest
EXTRAS := record,batch,export,plot,test
ELSEWHERE := $(addprefix --ignore=tests/whole/test_,docs.py golden.py reports.py rooms.py site.py)

test-oldest: $(OLDEST)/installed
	$(OLDEST)/bin/python -m pytest -n $(JOBS) -W default $(ELSEWHERE)

test-newest: $(NEWEST)/installed
	$(NEWEST)/bin/python -m pytest -n $(JOBS) -W default $(ELSEWHERE)

$(OLDEST)/installed: pyproject.toml tests/support/lower_bounds.py
	$(PYTHON) -m venv $(OLDEST)
	$(PYTHON) -m tests.support.lower_bounds > $(OLDEST)/lower-bounds.txt
	$(OLDEST)/bin/python -m pip --disable-pip-version-check install --quiet \
	  --constraint $(OLDEST)/lower-bounds.txt --editable ".[$(EXTRAS)]"
	@touch $@

# Torch alone stays as pinned: the newest one may bring gigabytes for a GPU.
$(NEWEST)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(NEWEST)
	grep '^torch==' constraints.txt > $(NEWEST)/torch.txt
	$(NEWEST)/bin/python -m pip --disable-pip-version-check install --quiet --upgrade \
	  --upgrade-strategy eager --constraint $(NEWEST)/torch.txt --editable ".[$(EXTRAS)]"
	@touch $@

lint: $(VENV)/installed-test
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(VENV)/bin/lint-imports
	$(PY) -m docs.rooms

docs: $(VENV)/installed-test
	$(PY) -m docs.generate docs

site: $(VENV)/installed-test
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

screenshots: $(VENV)/installed-test
	$(PY) -m tests.support.docs.screenshots docs/images

golden: $(VENV)/installed-test
	GOLDEN=write $(PY) -m pytest -q tests/whole/test_golden.py tests/whole/test_docs.py

accuracy: $(VENV)/installed-test
	$(PY) -m benchmarks.accuracy
	$(PY) -m benchmarks.accuracy.job
	$(PY) -m benchmarks.memory
	$(PY) -m benchmarks.counterfactual --programs 2000 --seed 0

bench: $(VENV)/installed-test
	for each in benchmarks/*.py; do $(PY) -m benchmarks.$$(basename $$each .py) || exit 1; done

clean:
	rm -rf $(VENV) $(OLDEST) $(NEWEST) build dist site *.egg-info .*_cache .coverage* htmlcov demo-out

# The environment is rebuilt only where its inputs changed; each stamp is newer than what it was made from.
$(VENV)/created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is not Python 3.11 or newer; name one: make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/installed-demo: $(VENV)/created pyproject.toml constraints.txt
	$(PIP) --editable ".[record]"
	@touch $@

$(VENV)/installed-test: $(VENV)/created pyproject.toml constraints.txt
	$(PIP) --editable ".[record,test,lint,docs]"
	@touch $@ $(VENV)/installed-demo
