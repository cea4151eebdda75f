# Every target makes the virtual environment it needs in .venv, from the versions pinned in constraints.txt.
#
#   make run CUDA=1            torch for NVIDIA GPUs instead of the CPU's
#   make run TORCH_INDEX=URL   torch from another package index; empty: whatever pip finds
#   make run PYTHON=python3.12 another interpreter, 3.11 or later
#   make run ARGS='generate "a red apple" --seed 7'
#   make test PYTEST_ARGS='tests/engine -x'

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
CUDA ?=
ARGS ?=
PYTEST_ARGS ?=
VARIANT := $(if $(CUDA),cuda,cpu)
TORCH_INDEX ?= $(if $(CUDA),,https://download.pytorch.org/whl/cpu)
STAMP := $(VENV)/.installed-$(VARIANT)
BUNDLE_STAMP := $(VENV)/.installed-bundle-$(VARIANT)
RUN := $(VENV)/bin/python
PIP := $(RUN) -m pip --disable-pip-version-check

IS_NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for python in python3.11 python3 python3.12 python3.13 python3.14; do \
	$$python -c '$(IS_NEW_ENOUGH)' 2>/dev/null && { echo $$python; break; }; done)

.PHONY: help run test lint format bundle starter-model venv clean

help: ## What can be made
	@sed -n 's/^\([a-z-]*\):.*## /make \1\t/p' Makefile | expand -t 20

run: $(STAMP) ## Open Safelight
	@$(VENV)/bin/safelight $(ARGS)

# Without these libraries pytest would die inside Qt; with them it runs without a screen as well.
WITHOUT_A_SCREEN := import sys; from app.system_libraries import why_no_window as why; \
	sys.exit(why({"QT_QPA_PLATFORM": "offscreen"}))

test: $(STAMP) ## Run the tests
	@$(RUN) -c '$(WITHOUT_A_SCREEN)'
	@$(RUN) -m pytest $(PYTEST_ARGS)

lint: $(STAMP) ## Check style and types
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

format: $(STAMP) ## Format the code
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

bundle: $(BUNDLE_STAMP) ## Freeze the program into dist/safelight/safelight
	$(VENV)/bin/pyinstaller --noconfirm --clean --distpath dist --workpath build/pyinstaller packaging/safelight.spec
	@du -sh dist/safelight

starter-model: $(STAMP) ## Rebuild the bundled model from public data (hours)
	$(RUN) packaging/starter-model/build.py --work build/starter-model --out resources/models/starter

venv: $(STAMP) ## Only make the environment

clean: ## Remove everything that was made
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find app engine resources tests packaging -name __pycache__ -type d -prune -exec rm -rf {} +

$(RUN):
	@test -n "$(PYTHON)" || { echo "Safelight needs Python 3.11 or later with venv. On Debian or Ubuntu:" \
		"apt-get install python3 python3-venv"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) has no venv module. On Debian or Ubuntu:" \
		"apt-get install python$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# The other variant's torch satisfies the same pin, so pip would keep it.
$(STAMP): pyproject.toml constraints.txt | $(RUN)
	@if [ -n "$$(ls $(VENV)/.installed-* 2>/dev/null | grep -v -e '-$(VARIANT)$$')" ]; then \
		$(PIP) uninstall --yes --quiet torch; rm -f $(VENV)/.installed-*; fi
	@option=$$($(RUN) packaging/torch_index.py $(TORCH_INDEX)) && \
		$(PIP) install --quiet --constraint constraints.txt $$option --editable '.[dev]'
	@touch $@

$(BUNDLE_STAMP): $(STAMP)
	@$(PIP) install --quiet --constraint constraints.txt --editable '.[dev,bundle]'
	@touch $@
