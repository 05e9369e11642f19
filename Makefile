# The commands of kvferry's developers and of its first visitors. `make help` lists them.
# CMake does the work; this file only brings what the machine lacks and calls it.
SHELL := /bin/bash
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
export JOBS

.DEFAULT_GOAL := build
.PHONY: help deps build demo test format format-check lint install clean

help:
	@echo 'make demo          build, then watch prefill and decode processes answer prompts together'
	@echo 'make test          every check: format, build, tests, sanitizers, lint, fuzzers (scripts/test.sh)'
	@echo 'make build         the optimised kvferry command and library, in build/release'
	@echo 'make install       installs command, library and headers   PREFIX=$(PREFIX)  DESTDIR=$(DESTDIR)'
	@echo 'make format        formats every source file; format-check only says which would change'
	@echo 'make lint          clang-tidy over src, tools, sim and bench'
	@echo 'make deps          installs the Debian packages that are missing (the other commands do it first)'
	@echo 'make clean         removes build/'

deps:
	@scripts/deps.sh

build: deps
	@scripts/build.sh release product

demo: build
	build/release/kvferry demo

test:
	@scripts/test.sh

format: deps
	@scripts/format.sh

format-check: deps
	@scripts/format.sh --check

lint: deps
	@scripts/build.sh release product
	@scripts/lint.py build/release

install: build
	cmake --install build/release --prefix '$(PREFIX)'

clean:
	rm -rf build
