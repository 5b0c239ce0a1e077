# What a user does, one target each; docker/setup.sh holds what takes more than a line.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help serve model tools image image-gpu test test-all soak fuzz lint bench bench-standard bench-quick lock audit clean

MODEL ?=
PORT ?= 8080
MODEL_NAME ?= minilm
DOCKER_BUILD_FLAGS ?=
PIP_CONF ?=
TRANSFORMERS ?= 5
FUZZ_SECONDS ?= 20
FUZZ_CASES ?= 100000
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
export PORT DOCKER_BUILD_FLAGS PIP_CONF TRANSFORMERS TORCH_INDEX FUZZ_SECONDS FUZZ_CASES

locks := docker/requirements
setup := docker/setup.sh

help:
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' Makefile

serve: build/.home $(if $(MODEL),,build/.model) ## serve MODEL= (a directory, .mar or .tar.gz; default: the embedded encoder) on PORT=8080
	@$(setup) serve '$(MODEL)'

model: .venv/.server ## write ./model, what SageMaker puts into /opt/ml/model, from the embedded encoder
	@[ -e model ] && echo "./model exists and stays as it is" || .venv/bin/python scripts/package_model.py --formats directory

tools: .venv/.scripts ## set up what the scripts of scripts/ need

image: ## build torchserve-byoc:cpu (TRANSFORMERS=4: torchserve-byoc:cpu-transformers4; DOCKER_BUILD_FLAGS=, PIP_CONF= a pip configuration for the build)
	@$(setup) image cpu

image-gpu: ## build torchserve-byoc:gpu
	@$(setup) image gpu

test: lint build/.home build/.model build/.local_mode ## lint, types, unit, server and (with a Docker engine) container tests
	@$(setup) test

test-all: test ## test, and whatever takes longer
	@$(setup) test_all

soak: build/.home build/.model .venv/.tests ## ten minutes of 512 clients at the image in Docker, and as many to warm up (SOAK_MINUTES=)
	@$(setup) soak

fuzz: build/.home .venv/.tests ## fuzz the decoders for FUZZ_SECONDS=20 each, then the server with FUZZ_CASES=100000 damaged requests
	@$(setup) fuzz

lint: .venv/.tests ## ruff, mypy, hadolint, shellcheck
	@$(setup) lint

bench: build/.home build/.model .venv/.tests ## the product, its peers and the limits side by side (90 minutes; MODEL_NAME=minilm, bert-base, translation)
	@$(setup) bench --model $(MODEL_NAME)

bench-standard: build/.home build/.model .venv/.tests ## enough to judge every goal, in 25 minutes (MODEL_NAME=bert-base, translation: 8)
	@$(setup) bench --standard --model $(MODEL_NAME)

bench-quick: build/.home build/.model ## the same in five minutes: two peers, few loads
	@$(setup) bench --quick --model $(MODEL_NAME)

lock: .venv/.tests ## renew the hash-locked requirements
	@$(setup) lock

audit: .venv/.tests ## ask for the known vulnerabilities of everything that is locked
	@.venv/bin/python scripts/audit_locks.py

clean: ## remove what make made, the fetched torch wheel included
	rm -rf build .venv model model.mar model.tar.gz docker/wheels/*.whl

.venv/.server: $(locks)/build.txt $(locks)/cpu.txt $(locks)/model.txt docker/install.sh
	@$(setup) venv
	@touch $@

.venv/.scripts: .venv/.server scripts/requirements.txt
	@$(setup) scripts
	@touch $@

.venv/.tests: .venv/.scripts tests/requirements.txt
	@$(setup) tests
	@touch $@

build/.home: .venv/.server docker/endpoints/build.sh $(locks)/jars.txt $(wildcard docker/jars/*.jar) $(shell find docker/endpoints/src -type f)
	@$(setup) home
	@touch $@

build/.local_mode: .venv/.tests tests/local_mode/requirements.txt
	@$(setup) local_mode
	@touch $@

build/.model: .venv/.server
	@.venv/bin/python scripts/package_model.py --formats directory --output build --overwrite
	@touch $@
