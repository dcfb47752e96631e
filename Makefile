# `make` lists the targets. Everything runs in .venv, which the first target that needs it creates.

PYTHON ?= python3
CONFIG ?= config.yaml
DATA ?= data
SHELL := /bin/sh
IN_VENV := PATH="$(CURDIR)/.venv/bin:$$PATH"

PIP := .venv/bin/python -m pip --no-input --disable-pip-version-check install --no-compile -c constraints.txt
READY := .venv/ready
LOG := .venv.log
LOCK := results/.lock
EXTRA := $(if $(filter-out demo report,$(MAKECMDGOALS)),dev,workflow)
LOGGER := $(shell [ -t 2 ] && echo --logger rich)
SPREAD := --numprocesses logical --dist loadfile --no-loadscope-reorder

# With --no-compile pip takes a minute less: Python compiles what it imports, and has to be allowed to keep that.
unexport PYTHONDONTWRITEBYTECODE PYTHONPATH PYTHONHOME PIP_TARGET PIP_PREFIX PIP_ROOT PIP_USER

.DEFAULT_GOAL := help
.PHONY: help demo check-evidence test test-slow test-all test-extras test-faults test-mutations test-slurm test-browser slurm lint docs documents report bench clean-env bootstrap

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1	/p' Makefile | while IFS='	' read -r name text; do \
		printf '  make %-12s %s\n' "$$name" "$$text"; done
	@echo '  PYTHON=python3.12 chooses the Python (3.11 or newer) that .venv is made with'

demo: bootstrap ## train, audit and plot on handwritten digits, on the CPU
	@$(IN_VENV) .venv/bin/snakemake $(LOGGER) --quiet host reason --configfile configs/demo.yaml --cores all --resources gpu=0

test: bootstrap ## run the fast tests
	$(IN_VENV) .venv/bin/python -m pytest $(SPREAD)

test-slow: bootstrap ## run the tests of the world around the code: the whole workflow, a wheel, the site, failed jobs
	$(IN_VENV) .venv/bin/python -m pytest -m slow $(SPREAD)

test-all: bootstrap ## run the fast and the slow tests, the whole matrix of configs/ci.yaml, the faults and Slurm
	$(IN_VENV) .venv/bin/python -m pytest -m 'not slurm and not extras' $(SPREAD)
	@$(MAKE) --no-print-directory test-slurm

test-extras: bootstrap ## install every extra by itself and run what is documented of it: gigabytes, many minutes
	$(IN_VENV) .venv/bin/python -m pytest -m extras tests/test_installed.py

test-faults: bootstrap ## kill, starve and damage the work
	$(IN_VENV) .venv/bin/python -m pytest tests/faults -m faults --numprocesses logical --dist worksteal

test-mutations: bootstrap ## break the product in over a hundred places, each of which the tests must notice
	$(IN_VENV) .venv/bin/python tests/mutations.py --jobs 2

test-slurm: bootstrap ## send a small grid through a Slurm of its own (root installs Debian's packages)
	@.venv/bin/python tools/debian_packages.py slurm || { test $$? = 77; exit; }; \
	.venv/bin/python -c 'import snakemake_executor_plugin_slurm' 2>/dev/null || $(MAKE) --no-print-directory slurm || { \
		echo 'fa-audit: test-slurm skipped: the executor could not be installed (pip says why, above)'; exit 0; }; \
	$(IN_VENV) .venv/bin/python -m pytest -m slurm tests/test_slurm.py

test-browser: bootstrap ## open the report in a headless Chromium (root installs Debian's)
	@.venv/bin/python tools/debian_packages.py browser || { test $$? = 77; exit; }; \
	$(IN_VENV) .venv/bin/python -m pytest -m "" tests/test_report_page.py

slurm: bootstrap ## add what sends jobs to a Slurm cluster (docs/cluster.md)
	$(IN_VENV) $(PIP) -q -e '.[slurm]'

lint: bootstrap ## check the style of the code and of the workflow, and the types of the public API
	$(IN_VENV) .venv/bin/ruff check .
	$(IN_VENV) .venv/bin/ruff format --check .
	$(IN_VENV) .venv/bin/mypy
	$(IN_VENV) .venv/bin/snakefmt --check Snakefile rules
	$(IN_VENV) .venv/bin/snakemake --lint

bench: bootstrap ## measure every method's step against backpropagation's
	$(IN_VENV) .venv/bin/python benchmarks/methods.py
	$(IN_VENV) .venv/bin/python tools/documents.py methods_table

docs: bootstrap ## build the documentation as a site that needs no network, site/index.html
	@$(IN_VENV) NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --quiet --strict && echo 'fa-audit: site/index.html'

documents: bootstrap ## write every generated picture, table and number of the documentation (CHECK=1: name the stale)
	@$(IN_VENV) .venv/bin/python tools/documents.py $(if $(CHECK),--check)

check-evidence: bootstrap ## train the cheapest published runs again, on DATA=data, and compare with reference/measured
	@$(IN_VENV) .venv/bin/python tools/check_evidence.py --data "$(DATA)"

report: bootstrap ## make everything of CONFIG=config.yaml, and results/report.html of it (docs/auditing.md)
	@$(IN_VENV) .venv/bin/snakemake $(LOGGER) all results/report.html --cores all --resources gpu=1 --configfile "$(CONFIG)" && \
		echo 'fa-audit: open results/report.html'

clean-env: ## delete .venv
	rm -rf .venv

# $(READY) says where, with which Python, from which pins and with which extra .venv was filled; dev contains workflow.
# It is written last, so that an interrupted installation begins again; the lock lets a second make wait for the first.
bootstrap:
	@"$(PYTHON)" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "fa-audit: '$(PYTHON)' is not Python 3.11 or newer with venv (Debian: python3-venv);" \
			"choose another: make PYTHON=python3.12 demo" >&2; exit 1; }
	@exec 9>.venv.lock || exit; ! command -v flock >/dev/null || flock 9; \
	home="$$PWD, $$("$(PYTHON)" --version)"; wanted="$$home, $$(cat pyproject.toml constraints.txt | cksum)"; \
	found=$$(cat $(READY) 2>/dev/null); case $$found in "$$wanted, dev" | "$$wanted, $(EXTRA)") exit 0 ;; esac; \
	! { [ -e $(LOCK) ] && command -v flock >/dev/null; } || flock -n $(LOCK) true || { \
		echo "fa-audit: a workflow ($$(cat $(LOCK))) is at work in $$PWD with the packages in .venv, which have to be" \
			"installed anew: wait for it or stop it, then run again" >&2; exit 1; }; \
	echo "fa-audit: installing the pinned packages in .venv: several minutes, 6 to 7 GB (log: $(LOG)), 5.3 of them PyTorch" \
		"with CUDA; for the CPU alone stop here and run PIP_EXTRA_INDEX_URL=URL make ..., URL as pytorch.org names it" >&2; \
	rm -f $(READY); { case $$found in "$$home, "*) ;; *) "$(PYTHON)" -m venv --clear .venv ;; esac && \
	$(PIP) -e '.[$(EXTRA)]'; } >$(LOG) 2>&1 && echo "$$wanted, $(EXTRA)" >$(READY) || { \
		echo "fa-audit: the installation failed: $$(grep -i '^error' $(LOG) | tail -n 1) (log: $(LOG))" >&2; exit 1; }
