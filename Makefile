# Two commands for users: `make demo` shows it, `make test` checks it. `make bench` measures it.

CARGO ?= cargo

.PHONY: build demo test bench fuzz fuzz-crashes lint setup clean plugins test-plugins bench-plugins python-wheel

build: setup
	$(CARGO) build --release

setup:
	@scripts/setup

demo: setup
	@$(CARGO) build --release
	@scripts/demo

test: setup
	@scripts/test

lint: setup
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

bench: setup
	@$(CARGO) build --release --workspace --bins --examples
	@scripts/bench

# Coverage-guided fuzzing: make fuzz TARGET=journal_reader TIME=600 (seconds); or TARGET=volume_open
TARGET ?= journal_reader
TIME ?= 300
fuzz: setup
	@scripts/fuzz $(TARGET) $(TIME)

# Crash enumeration for as long as you like: make fuzz-crashes STATES=100000 SEED=1
STATES ?= 100000
SEED ?= 1
fuzz-crashes: setup
	$(CARGO) run --release -p onejournal-sim --bin sim -- --seed $(SEED) --states $(STATES)

# LevelDB and RocksDB, with the packages of the distribution; no part of the build above.
TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
PLUGINS := leveldb rocksdb
plugin = $(MAKE) -C plugins/$(1) LIB=$(TARGET)/release OUT=$(TARGET)/plugins/$(1)

plugins: setup
	@scripts/setup-plugins
	$(CARGO) build --release -p onejournal-capi
	$(foreach name,$(PLUGINS),$(call plugin,$(name)) all &&) true

test-plugins: plugins
	$(foreach name,$(PLUGINS),$(call plugin,$(name)) test &&) true

# The Python package with the SQLite extension, for any Python 3; needs pip, setuptools and wheel.
PYTHON ?= /usr/bin/python3
python-wheel: setup
	$(PYTHON) -m pip wheel --no-deps --no-build-isolation --wheel-dir $(TARGET)/wheels ./plugins/python

# NVRAM: a directory on NVRAM or, to measure without, on a tmpfs. DIR: where the databases are.
DIR ?= $(TARGET)/plugins/bench
NVRAM ?= /dev/shm
bench-plugins: plugins
	for name in $(PLUGINS); do \
	    $(TARGET)/plugins/$$name/bench $(DIR) --nvram $(NVRAM) && \
	    $(TARGET)/plugins/$$name/bench $(DIR) || exit; \
	done

clean:
	$(CARGO) clean
