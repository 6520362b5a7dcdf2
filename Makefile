# Complete on a fresh machine with Python 3.11+ and git: `make serve`, `make test`, `make test-clients`.

PYTHON ?= python3
VENV   ?= .venv
CLIENTS_VENV ?= .venv-clients
DEPLOY_VENV ?= .venv-deploy
RUN     = $(VENV)/bin/python
ARGS   ?=
MACHINE ?= $(shell uname -m)
# One worker a core, a file's tests in one worker: what a file starts (a server, an oracle) is started once.
PARALLEL = -n auto --dist loadfile

.PHONY: help install serve test test-slow test-clients test-ui test-deploy test-operators gpu check bench peers evaluate evaluate-vision model model-vision docs \
        ui-vendor build test-packages clean

help:
	@echo "make serve      install, then serve the bundled model on port 30000 (ARGS='--port 8000' for options)"
	@echo "make test       install, then every test that is not slow"
	@echo "make test-slow  the whole of what make test takes samples of"
	@echo "make test-clients  OpenAI's, Anthropic's and other clients against a server; installs them into $(CLIENTS_VENV)"
	@echo "make test-deploy  the files of deploy/ as Compose, Helm, Kubernetes' schemas, systemd and nginx read them"
	@echo "make test-ui    the page in Chromium; installs playwright into $(VENV), and as root on Debian chromium by apt"
	@echo "make test-operators  dashboards against a Prometheus that has scraped a server; as root on Debian installs it"
	@echo "make gpu        every test and figure that needs a CUDA card (PYTHON=.venv/bin/python where make serve made one)"
	@echo "make check      lint and types"
	@echo "make bench      every measurement, in half an hour; results go to bench/results/"
	@echo "make peers      other engines for \`ramet bench peers\`, each in an environment in .peers/"
	@echo "make evaluate   ask the bundled model every question of its evaluation, through a server"
	@echo "make model      train the bundled model again, into build/model (two hours and a half on two cores)"
	@echo "make evaluate-vision, make model-vision  the same of the bundled model of pictures (a quarter of an hour)"
	@echo "make docs       generate the tables and plots in docs/"
	@echo "make ui-vendor  compare the page's libraries with those of npm's registry"
	@echo "make build      an sdist, and a wheel with kernels built for each class of CPUs, in dist/ (MACHINE=aarch64: of ARM)"
	@echo "make test-packages  install the wheel of make build by pip, uv and pipx, start it and get a token each time"

install: $(VENV)/installed

$(VENV)/installed: pyproject.toml constraints.txt scripts/install.sh
	PYTHON=$(PYTHON) VENV=$(VENV) bash scripts/install.sh
	@touch $@

serve: install
	$(RUN) -m ramet serve $(ARGS)

test: install
	$(RUN) -m pytest -m "not slow and not gpu and not ui and not operators" $(PARALLEL) $(ARGS)

test-slow: install
	$(RUN) -m pytest -m "(slow or hypothesis) and not gpu and not ui and not operators" --hypothesis-profile whole $(PARALLEL) $(ARGS)

# The clients' pins disagree with the server's: they get a venv of their own and start the server from the other one.
$(CLIENTS_VENV)/installed: pyproject.toml constraints-clients.txt
	$(PYTHON) -m venv $(CLIENTS_VENV)
	$(CLIENTS_VENV)/bin/python -m pip --disable-pip-version-check install -q -c constraints-clients.txt -e ".[clients]"
	@touch $@

test-clients: install $(CLIENTS_VENV)/installed
	RAMET_PYTHON=$(abspath $(RUN)) $(CLIENTS_VENV)/bin/python -m pytest tests/clients $(ARGS)

# Helm and Compose are packages here; promtool, nginx and systemd-analyze are the system's: scripts/test_deploy.sh.
$(DEPLOY_VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(DEPLOY_VENV)
	$(DEPLOY_VENV)/bin/python -m pip --disable-pip-version-check install -q -c constraints.txt -e ".[deploy]"
	@touch $@

test-deploy: $(DEPLOY_VENV)/installed
	PYTHON=$(abspath $(DEPLOY_VENV))/bin/python bash scripts/test_deploy.sh $(ARGS)

# Playwright's package (165 MB: it brings a Node of its own) drives Debian's Chromium; it fetches no browser.
$(VENV)/ui-installed: $(VENV)/installed
	@echo "make test-ui: installing playwright into $(VENV)"
	$(RUN) -m pip --disable-pip-version-check install -q -c constraints.txt -e ".[ui]"
	@touch $@

test-ui: install $(VENV)/ui-installed
	$(RUN) -m pytest -m ui tests/ui $(ARGS)

# What Prometheus finds of a server: its own dashboard's queries, and those of other servers' dashboards.
test-operators: install
	@command -v prometheus >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null || { \
	    echo "make test-operators: there is no prometheus on the PATH, and it is not installed without root and apt" >&2; \
	    exit 1; }; apt-get install -y --no-install-recommends prometheus || { \
	    echo "make test-operators: there is no prometheus on the PATH, and apt-get install failed, see above" >&2; \
	    exit 1; }; }
	$(RUN) -m pytest -m operators tests/operators $(ARGS)

# With a Python that has torch for a CUDA card: nothing is installed and nothing fetched.
gpu:
	@$(PYTHON) -c "import torch" 2>/dev/null || { \
	    echo "make gpu: $(PYTHON) has no torch; after make install: make gpu PYTHON=$(VENV)/bin/python" >&2; exit 1; }
	@$(PYTHON) -c "import sys, torch; torch.cuda.is_available() or sys.exit('make gpu: torch finds no CUDA device')"
	TRITON_INTERPRET=0 $(PYTHON) -m pytest -m gpu tests/gpu -n 8 $(ARGS)
	$(PYTHON) -m ramet bench gpu

check: install
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy -p ramet

peers:
	PYTHON=$(PYTHON) bash scripts/install_peers.sh

bench: install
	$(RUN) -m ramet bench startup
	$(RUN) -m ramet bench pipeline
	$(RUN) -m ramet bench offline
	$(RUN) -m ramet bench offline --phases
	$(RUN) -m ramet bench offline --grow
	$(RUN) -m ramet bench sampling
	$(RUN) -m ramet bench penalties
	$(RUN) -m ramet bench tuning
	$(RUN) -m ramet bench backlog
	$(RUN) -m ramet bench stalls
	$(RUN) -m ramet bench films
	$(RUN) -m ramet bench vision
	$(RUN) -m ramet bench attention
	$(RUN) -m ramet bench delta
	$(RUN) -m ramet bench masks
	$(RUN) -m ramet bench structured
	$(RUN) -m ramet bench compiles

evaluate: install
	$(RUN) -m scripts.demo_model evaluate runtime/models/bundled $(ARGS)

evaluate-vision: install
	$(RUN) -m scripts.demo_model evaluate-vision runtime/models/bundled_vision $(ARGS)

model: install
	$(RUN) -m scripts.demo_model train build/model --work build/model-run $(ARGS)

model-vision: install
	$(RUN) -m scripts.demo_model train-vision build/model-vision --work build/model-vision-run --threads 1 --no-compile $(ARGS)

docs: install
	$(RUN) scripts/gen_docs.py

ui-vendor: install
	$(RUN) scripts/ui_vendor.py

build: install
	RAMET_BUILD_KERNELS=$(MACHINE) $(RUN) -m build

# Not part of CI: four gigabytes are installed. TORCH="--find-links FOLDER" takes torch from a folder.
test-packages:
	@ls dist/ramet-*.whl >/dev/null 2>&1 || $(MAKE) build
	PYTHON=$(PYTHON) bash scripts/test_packages.sh

clean:
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
