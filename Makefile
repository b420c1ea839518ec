# Two commands are enough: `make demo` shows Tenure at work, `make test` tests it. Both install what is
# missing, build once and share what was built.

SHELL := /bin/bash
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)

.DEFAULT_GOAL := help
.PHONY: help demo test test-stores prove soak fuzz mutations check bench setup build

help: ## Say what can be made
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

demo: build ## Count words on three coordinators and four workers while they are killed (DEMO_INPUT=DIR: your files)
	@$(TARGET_DIR)/debug/demo

test: build ## Run all tests: units, properties, clusters of real processes, examples in the documentation
	@.ci/cargo test

test-stores: setup ## Test every store adapter against its server, which is installed if it is missing
	@.ci/setup-stores
	@# More at once than there are cores: most of the time a test waits, for a disk or for a server to start.
	@.ci/cargo test --test stores -- --test-threads=6

prove: setup ## Look for what would break a promise: model, simulation, chaos (needs root) and fuzzing, in a short form
	@.ci/prove

soak: setup ## Look for hours, with new seeds of simulation and chaos (HOURS=1); interrupted, it goes on next time
	@.ci/soak

fuzz: setup ## Fuzz everything that reads bytes from outside (SECONDS=60 for each of ten targets)
	@.ci/fuzz $(or $(SECONDS),60)

mutations: setup ## Make known mistakes, one at a time in a copy, and show that a check finds each
	@.ci/mutations

check: ## Run everything that a change must pass; changes no file
	@.ci/run

bench: setup ## Measure fenced beside unfenced writes, and Tenure beside etcd and ZooKeeper (BENCH=--quick: only see that it runs)
	@.ci/setup-stores
	@benches/setup
	@CARGO_INCREMENTAL=0 .ci/cargo build --config benches/optimized.toml --bin tenure --bench fence
	@CARGO_INCREMENTAL=0 .ci/cargo bench --config benches/optimized.toml --profile dev --bench fence -- $(BENCH)

# What a build needs beyond Rust, git, make, g++ and CA certificates.
setup:
	@.ci/setup

# All targets, also for the demo: so it has the features of the tests, and RocksDB is compiled once for both.
build: setup
	@.ci/cargo build --all-targets
