# Two commands for users: `make demo` shows it, `make test` checks it. `make bench` measures it.

CARGO ?= cargo

.PHONY: build demo test bench fuzz fuzz-crashes lint setup clean

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

clean:
	$(CARGO) clean
