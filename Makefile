# Everything that a fresh clone needs: `make help`.
#
# Installation goes to .venv (VENV=), compiled files to build/. Each step leaves a stamp that
# depends on its sources, so that a second `make` of anything does only what has changed.

VENV       ?= .venv
BUILD      ?= build
JAXMG_CUDA ?= OFF
JAXMG_WERROR ?= OFF
JOBS       ?= $(shell nproc 2>/dev/null || echo 2)
PYTEST     ?=

# The checks and the search for a Python of 3.11 or newer are in tools/prerequisites.
PYTHON ?= $(shell tools/prerequisites python)

comma   := ,
BIN     := $(VENV)/bin
STAMPS  := $(VENV)/stamps
# The extra that brings JAX's CUDA libraries, for the CUDA version that is here.
CUDA_MAJOR = $(shell { nvcc --version || /usr/local/cuda/bin/nvcc --version; } 2>/dev/null | sed -n 's/.*release \([0-9]*\)\..*/\1/p')
EXTRAS  := test$(if $(filter ON,$(JAXMG_CUDA)),$(if $(CUDA_MAJOR),$(comma)cuda$(CUDA_MAJOR)))

NATIVE_SOURCES := CMakeLists.txt $(shell find src cmake -type f 2>/dev/null)
TEST_SOURCES   := $(shell find tests/cpp -type f 2>/dev/null)
PYTHON_SOURCES := python examples tests/python bench

export JAXMG_CUDA
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.DEFAULT_GOAL := help
.PHONY: help demo test test-cpp test-python lint format tidy bench bench-gpu wheel install clean distclean

help:
	@echo "make demo       install into $(VENV) and run the example: kernel ridge regression on 8 devices"
	@echo "make test       C++ tests (where GoogleTest is) and Python tests"
	@echo "make lint       formatting, linting and types"
	@echo "make tidy       static analysis of the C++ sources (some minutes)"
	@echo "make format     rewrite sources in the project's format"
	@echo "make bench      time the routines on this machine's CPU"
	@echo "make bench-gpu  time the routines on this machine's GPUs"
	@echo "make wheel      build dist/jaxmg-*.whl"
	@echo "make install    install into $(VENV) in editable form"
	@echo "make clean      remove what was built (distclean: $(VENV) as well)"
	@echo
	@echo "JAXMG_CUDA=ON   build the CUDA engine too (needs nvcc) and install JAX for CUDA"
	@echo "PYTHON=...      Python to make $(VENV) with; VENV=, BUILD=, JOBS= as one would expect"

# --- installation ------------------------------------------------------------------------------

$(STAMPS)/venv: tools/prerequisites
	@tools/prerequisites all
	$(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS)
	@touch $@

# What pyproject.toml asks of a build, installed for good: builds without isolation can then reuse
# what they compiled before.
$(STAMPS)/requirements: pyproject.toml $(STAMPS)/venv
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' > $(STAMPS)/build-requirements.txt
	$(BIN)/python -m pip install --quiet -r $(STAMPS)/build-requirements.txt
	@touch $@

$(STAMPS)/installed-$(JAXMG_CUDA): $(NATIVE_SOURCES) $(STAMPS)/requirements
	@echo "Compiling and installing jaxmg into $(VENV): a few minutes the first time"
	@rm -f $(STAMPS)/installed-* python/jaxmg/_lib/*.so
	PATH="$(abspath $(BIN)):$$PATH" CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) $(BIN)/python -m pip install --quiet \
	  --no-build-isolation --config-settings=build-dir=$(BUILD)/editable --editable '.[$(EXTRAS)]'
	@touch $@

install: $(STAMPS)/installed-$(JAXMG_CUDA)

# --- running -----------------------------------------------------------------------------------

demo: install
	$(BIN)/python examples/kernel_ridge.py

bench: install
	$(BIN)/jaxmg bench

bench-gpu:
	@$(MAKE) --no-print-directory install JAXMG_CUDA=ON
	$(BIN)/jaxmg bench --gpu

# --- tests -------------------------------------------------------------------------------------

test: test-cpp test-python

test-cpp: $(STAMPS)/requirements
	@if tools/prerequisites gtest; then $(MAKE) --no-print-directory $(BUILD)/cpp/stamp-$(JAXMG_CUDA) \
	  && $(BIN)/ctest --test-dir $(BUILD)/cpp --output-on-failure --no-tests=error -j $(JOBS); fi

configure-cpp = tools/configure $(BIN) $(BUILD)/cpp -DJAXMG_TESTS=ON -DJAXMG_CUDA=$(JAXMG_CUDA) -DJAXMG_WERROR=$(JAXMG_WERROR)

$(BUILD)/cpp/stamp-$(JAXMG_CUDA): $(NATIVE_SOURCES) $(TEST_SOURCES) $(STAMPS)/requirements
	$(configure-cpp)
	$(BIN)/cmake --build $(BUILD)/cpp --parallel $(JOBS)
	@rm -f $(BUILD)/cpp/stamp-*
	@touch $@

# Every test process starts its own virtual devices. Each gets a part of the tests as they come, whose
# compiled programs they share, and takes some of another's when it is done.
test-python: install
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(PYTEST)

# --- style -------------------------------------------------------------------------------------

$(STAMPS)/lint: pyproject.toml $(STAMPS)/venv
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["lint"], sep="\n")' > $(STAMPS)/lint-requirements.txt
	$(BIN)/python -m pip install --quiet -r $(STAMPS)/lint-requirements.txt
	@touch $@

CPP_FILES = $(shell git ls-files -co --exclude-standard 'src/*.h' 'src/*.cpp' 'src/*.cu' 'src/*.cuh' 'tests/*.h' 'tests/*.cpp' 'tests/*.cu' | grep -v third_party)

# With everything installed: what mypy finds depends on the packages that it sees.
lint: $(STAMPS)/lint install
	$(BIN)/ruff check $(PYTHON_SOURCES)
	$(BIN)/ruff format --check $(PYTHON_SOURCES)
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(CPP_FILES)

format: $(STAMPS)/lint
	$(BIN)/ruff check --fix $(PYTHON_SOURCES)
	$(BIN)/ruff format $(PYTHON_SOURCES)
	$(BIN)/clang-format -i $(CPP_FILES)

# Minutes, and so not part of lint. What is compiled here is checked, each file once, headers with it;
# of files whose path matches TIDY: '/tests/' for the tests.
TIDY ?= /src/
tidy: $(STAMPS)/lint $(STAMPS)/requirements
	$(configure-cpp)
	$(BIN)/python -c 'import json, sys; print(*sorted({e["file"] for e in json.load(sys.stdin)}), sep="\n")' \
	  < $(BUILD)/cpp/compile_commands.json | grep '$(TIDY).*\.cpp$$' \
	  | xargs -P $(JOBS) -n 1 $(BIN)/clang-tidy --quiet -p $(BUILD)/cpp

# --- packages ----------------------------------------------------------------------------------

wheel: $(STAMPS)/requirements
	@rm -f dist/jaxmg-*.whl
	PATH="$(abspath $(BIN)):$$PATH" CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) $(BIN)/python -m pip wheel --quiet --no-deps \
	  --no-build-isolation --config-settings=build-dir=$(BUILD)/wheel --wheel-dir dist .
	@ls dist/jaxmg-*.whl

clean:
	rm -rf $(BUILD) dist demo_output python/jaxmg/_lib .pytest_cache .hypothesis .mypy_cache .ruff_cache
	rm -f $(STAMPS)/installed-*
	find $(PYTHON_SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV)
