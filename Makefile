# Two commands for users: `make demo` shows it, `make test` checks it. `make bench` measures it.

CARGO ?= cargo
# rust-toolchain.toml pins the compiler. Where rustup cannot download it, the stable one that is
# installed is used.
ifeq (,$(shell $(CARGO) --version 2>/dev/null))
export RUSTUP_TOOLCHAIN := stable
endif

.PHONY: build install uninstall demo test test-long test-release bench bench-quick \
	bench-full report fuzz fuzz-crashes lint setup clean plugins test-plugins \
	test-sqlite-suite test-databases bench-plugins python-wheel book
.PHONY: test-plugins-asan

# What is installed; the other crates only test it.
PRODUCT := -p onejournal-cli -p onejournal-capi -p onejournal-sqlite

build: setup
	$(CARGO) build --release $(PRODUCT)

setup:
	@scripts/setup

# What `make` (and `make plugins`) built: make install PREFIX=/usr DESTDIR=/tmp/package.
# scripts/install has the other places.
PREFIX ?= /usr/local
PROFILE ?= release
export PREFIX DESTDIR PROFILE PAGES SBINDIR BINDIR LIBDIR INCLUDEDIR DATADIR MANDIR UNITDIR
export SYSUSERSDIR
install uninstall:
	@scripts/install $@

demo: setup
	@$(CARGO) build --release -p onejournal-cli
	@scripts/demo

# The gate in a quarter of an hour; a night's search from random seeds; and what a release needs,
# for a day.
test: setup
	@scripts/test

test-long test-release: setup
	@scripts/test $(@:test-%=%)

lint: setup
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps

# All experiments and their report: shrunk (under ten minutes), or in full (150 minutes). In full is
# not always a paper's size: the report has both sizes beside each other. What is missing of the
# programs that are compared is left out; scripts/setup-bench installs them.
RESULTS ?= $(BUILT)/bench-results
bench: bench-quick

bench-quick bench-full: setup
	@ONEJOURNAL_REVISION=$$(scripts/revision) \
	$(CARGO) build --release --workspace --bins --examples --lib
	@$(BUILT)/release/onejournal-bench all --$(@:bench-%=%) --out $(RESULTS)

# The report of the stored results, without measuring: target/report/report.html is one page.
report: setup
	$(CARGO) run --release -p onejournal-bench -- report docs/results --out $(BUILT)/report

# The documents as a book with search, in target/book. A warning is an error.
book:
	@scripts/book $(BUILT)/book

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
BUILT := $(abspath $(or $(CARGO_TARGET_DIR),target))
PLUGINS := leveldb rocksdb
plugin = $(MAKE) -C plugins/$(1) LIB=$(BUILT)/release OUT=$(BUILT)/plugins/$(1)

plugins: setup
	@scripts/setup-plugins
	$(CARGO) build --release -p onejournal-capi
	$(foreach name,$(PLUGINS),$(call plugin,$(name)) all &&) true

test-plugins: plugins
	$(foreach name,$(PLUGINS),$(call plugin,$(name)) test &&) true
	@scripts/test-plugins-cuts

# The tests of both plugins, which are built with the address sanitizer, and so is the library for
# C. In C++ undefined behaviour is an error, too. The library has its own handler of SIGBUS.
ASAN_OPTIONS ?= handle_sigbus=0
ASAN_FLAGS := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined
ASAN_FLAGS += -fno-sanitize-recover=undefined
asan-plugin = ASAN_OPTIONS=$(ASAN_OPTIONS) $(MAKE) -C plugins/$(1) test \
	LIB=$(BUILT)/$(TRIPLE)/release OUT=$(BUILT)/plugins-asan/$(1) CXXFLAGS="$(ASAN_FLAGS)"
test-plugins-asan: TRIPLE = $(shell rustc -vV | sed -n 's/^host: //p')
test-plugins-asan: setup
	@scripts/setup-plugins
	@# Stable compilers have sanitizers, too, but ask for this variable.
	RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address \
	$(CARGO) build --release --target $(TRIPLE) -p onejournal-capi
	$(foreach name,$(PLUGINS),$(call asan-plugin,$(name)) &&) true

# SQLite's own test suite, on a volume and through the extension; as root, on Debian or Ubuntu.
test-sqlite-suite: setup
	@scripts/test-sqlite-suite $(WAYS)

# Power cuts under database servers, and the canaries of that test; as root, on Debian or Ubuntu.
# CUTS=20 for each kind of run.
test-databases: setup
	@scripts/test-databases

# The Python package with the SQLite extension, for any Python 3; needs pip, setuptools and wheel.
PYTHON ?= /usr/bin/python3
python-wheel: setup
	@# One module each time: Debian's pip, imported first, makes its setuptools fail.
	@for module in pip setuptools wheel; do $(PYTHON) -c "import $$module" 2>/dev/null || { \
	echo "python-wheel: $(PYTHON) needs $$module. On Debian or Ubuntu:" \
	"sudo apt-get install python3-$$module" >&2; \
	exit 1; }; done
	$(PYTHON) -m pip wheel --no-deps --no-build-isolation --wheel-dir $(BUILT)/wheels ./plugins/python

# NVRAM: a directory on NVRAM or, to measure without, on a tmpfs. DIR: where the databases are.
DIR ?= $(BUILT)/plugins/bench
NVRAM ?= /dev/shm
bench-plugins: plugins
	for name in $(PLUGINS); do \
	    $(BUILT)/plugins/$$name/bench $(DIR) --nvram $(NVRAM) && \
	    $(BUILT)/plugins/$$name/bench $(DIR) || exit; \
	done

clean:
	$(CARGO) clean
