# Every target sets up what it needs first (scripts/setup.sh), and does nothing there when nothing is missing.

SHELL := /bin/bash
CARGO := scripts/cargo
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
TIDEWATER := $(TARGET_DIR)/release/tidewater
PROFILE ?= generic
# A job that fills a small drive, unless a trace is given.
TRACE ?=
REPORT ?= report.html
PAPERS ?= papers.html

# As `cargo clippy -- -D warnings` calls the compiler. By its environment, so that `cargo doc` finds what was checked
# and checks nothing again; `--examples` beside it takes the features of tests in, for the same reason.
CLIPPY := RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-cluster papers build quick install uninstall pgo test test-guest test-databases check fmt
.PHONY: guest-shell
.PHONY: bench python wheel python-cluster bench-databases torture deb tarball oci test-packages docs pictures clean

help: ## This list
	@echo 'Tidewater: a software-defined solid-state drive. The targets:'
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo '  make demo TRACE=my.csv PROFILE=generic REPORT=my.html replays a trace of your own.'

setup: ## Install or list what is missing: C compiler, protoc, Rust toolchain
	@scripts/setup.sh
	@echo 'setup: all there'

build: ## Build the release binaries, and the library that `tidewater run` preloads
	@scripts/setup.sh
	$(CARGO) build --release --locked --package tidewater --bin tidewater
	$(CARGO) build --release --locked --package tidewater-shim --package tidewater-keeper
	@echo 'The binary: $(TIDEWATER)'

install: ## Install everything: binary, manual pages, completions, services, C library, layers (PREFIX=/usr/local)
	@scripts/setup.sh
	@PREFIX='$(or $(PREFIX),/usr/local)' DESTDIR='$(DESTDIR)' scripts/install.sh

uninstall: ## Remove what `make install` put there (PREFIX=/usr/local)
	@PREFIX='$(or $(PREFIX),/usr/local)' DESTDIR='$(DESTDIR)' scripts/install.sh --uninstall

pgo: ## Build the release binary a tenth faster, in two rounds (needs llvm-tools)
	@scripts/setup.sh
	@scripts/pgo.sh $(ARGS)

deb: ## Build the Debian packages tidewater, libtidewater0 and libtidewater-dev into target/deb
	@scripts/setup.sh
	@scripts/deb.sh

tarball: ## Build a static binary with manual pages and completions into target/tarball, for any Linux
	@scripts/setup.sh
	@scripts/tarball.sh

oci: ## Build a container image from the Debian package into target/oci, without a daemon
	@scripts/setup.sh
	@scripts/oci.sh

test-packages: ## Install the packages in a fresh system, use them as the README does, and remove them
	@scripts/setup.sh
	@scripts/packages.sh

docs: ## Build the site (guide, reference, internals, API) into target/site
	@scripts/setup.sh
	@scripts/docs.sh

pictures: build ## Make the pictures of the README
	@scripts/pictures.sh

quick: # A build in minutes: optimized, but not as a whole program. Its records are those of a release build.
	@scripts/setup.sh
	$(CARGO) build --profile quick --locked --package tidewater --bin tidewater

demo: TIDEWATER := $(TARGET_DIR)/quick/tidewater
demo: quick ## Run a job on a drive that collects garbage (or TRACE=my.csv), and write report.html
ifeq ($(TRACE),)
	$(TIDEWATER) replay --profile '$(PROFILE)' --job scripts/demo.job --precondition steady \
		--capacity 8GiB --set nand.ways=2 --report '$(REPORT)'
else
	$(TIDEWATER) replay --profile '$(PROFILE)' --trace '$(TRACE)' --report '$(REPORT)'
endif
	@echo
	@echo 'The report, for your browser: file://$(abspath $(REPORT))'

demo-cluster: build ## Kill the primary of three devices while a program appends, and see what becomes of it (etcd)
	$(CARGO) build --release --locked --package tidewater-client --features mapped --example replicated
	@scripts/demo-cluster.sh '$(TARGET_DIR)/release'

papers: build ## Repeat the experiments of papers and write papers.html
	@# Checks that do not hold end it with an error, after the page was written.
	$(TIDEWATER) experiment run --all --report '$(PAPERS)' $(ARGS); status=$$?; \
	if [ $$status = 0 ] || [ $$status = 3 ]; then \
		echo; echo 'The figures, for your browser: file://$(abspath $(PAPERS))'; \
	fi; \
	exit $$status

wheel: ## Build the Python package's wheel into target/python/wheels
	@scripts/setup.sh
	@scripts/python.sh --wheel

python: ## Build the Python package's wheel, and test it (ARGS='-k name' picks tests)
	@scripts/setup.sh
	@scripts/python.sh $(ARGS)

python-cluster: ## The same, with the tests of Ray and MPI
	@scripts/setup.sh
	@PYTHON_CLUSTER=1 scripts/python.sh $(ARGS)

test: ## Run every test
	@scripts/setup.sh --browser
	@scripts/test.sh

test-guest: ## Boot Linux guests (QEMU) that judge the device with their own tools
	@scripts/setup.sh
	@scripts/guest.sh $(ARGS)

guest-shell: TIDEWATER := $(TARGET_DIR)/quick/tidewater
guest-shell: quick ## A drive, a Linux guest that has it, and a prompt (ARGS='--profile villars': options of serve)
	@TIDEWATER='$(TIDEWATER)' scripts/guest-shell.sh $(ARGS)

test-databases: ## Crash PostgreSQL, Redis, SQLite and RocksDB on the device, and compare
	@scripts/setup.sh
	@scripts/databases.sh $(ARGS)

check: ## Check format, lints, documentation, words and licences
	@scripts/setup.sh
	$(CARGO) fmt --all --check
	$(CLIPPY) $(CARGO) check --locked --workspace --all-targets
	$(CLIPPY) RUSTDOCFLAGS='-D warnings' $(CARGO) doc --locked --workspace --no-deps --lib --bin tidewater --examples
	$(CARGO) test --locked --workspace --test workspace --test words

fmt: ## Format the sources
	@scripts/setup.sh
	$(CARGO) fmt --all

bench: ## Measure speed: requests per second and instructions per request
	@scripts/setup.sh
	$(CARGO) bench --locked --package tidewater-bench $(ARGS)

bench-databases: build ## Measure PostgreSQL, Redis, SQLite and RocksDB with and without the device
	@scripts/bench-databases.sh $(ARGS)

torture: ## Run the long tests: power cut at every event, and the like
	@scripts/setup.sh
	@scripts/torture.sh $(ARGS)
	@# Names of tests choose among those alone: test-guest ARGS='--long NAME' runs one long guest.
	@if [ -z '$(ARGS)' ]; then \
		scripts/guest.sh --long && scripts/databases.sh --rounds 50 && scripts/python.sh -m slow; \
	fi

clean: ## Remove what was built
	rm -rf '$(TARGET_DIR)' report.html papers.html
