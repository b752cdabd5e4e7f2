# What a person types. Everything else is Cargo's business.

CARGO ?= cargo
CC ?= cc
CFLAGS ?= -O2 -Wall -Wextra
# A target of Rust, to build and install the library for another machine.
RUST_TARGET ?=
BUILD := target/capi/$(if $(RUST_TARGET),$(RUST_TARGET)/)release
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
DEMO := target/demo

.PHONY: all install uninstall demo test loom shuttle proof fuzz fuzz-corpus soak miri sanitize coverage mutants bench bench-all instructions bench-traces bless check canaries clean firmware firmware-size test-cuda

all: $(BUILD)/libslicepool.a

# Cargo decides whether anything has changed.
.PHONY: $(BUILD)/libslicepool.a
$(BUILD)/libslicepool.a:
	$(CARGO) build --release -p slicepool-capi --target-dir target/capi $(if $(RUST_TARGET),--target $(RUST_TARGET))
	@# The name that programs linked with the shared library look for.
	@eval "$$(packaging/names.sh $(VERSION) $(RUST_TARGET))" && \
	if [ -f "$(BUILD)/$$built" ] && [ "$$runtime" != "$$built" ]; then ln -sf "$$built" "$(BUILD)/$$runtime"; fi
	@touch $(BUILD)/built

# Where `make install` puts things: DESTDIR PREFIX/include, DESTDIR PREFIX/lib. LIBDIR and INCLUDEDIR may be absolute, too.
PREFIX ?= /usr/local
LIBDIR ?= lib
INCLUDEDIR ?= include
DESTDIR ?=
INSTALL := PREFIX="$(PREFIX)" LIBDIR="$(LIBDIR)" INCLUDEDIR="$(INCLUDEDIR)" DESTDIR="$(DESTDIR)" BUILD="$(BUILD)" \
	VERSION="$(VERSION)" TARGET="$(RUST_TARGET)" URL="$(shell sed -n 's/^repository = "\(.*\)"/\1/p' Cargo.toml)" \
	packaging/install.sh

# Libraries with their version links, headers, slicepool.pc and the CMake package.
install: $(BUILD)/built
	@$(INSTALL) install

# What this version installs, with the same variables.
uninstall:
	@$(INSTALL) uninstall

# What `make` has built is installed as it is: whoever may write to PREFIX often has no Cargo.
$(BUILD)/built: $(shell find Cargo.toml Cargo.lock core/Cargo.toml core/src capi -type f)
	@command -v $(firstword $(CARGO)) >/dev/null || { \
	echo "nothing is built yet, or sources have changed, and there is no $(CARGO): run make as a user who has it" >&2; exit 1; }
	@$(MAKE) --no-print-directory all

# Builds and runs the first program to read: examples-c/quickstart.c.
demo: $(BUILD)/libslicepool.a
	mkdir -p $(DEMO)
	$(CC) $(CFLAGS) -Iinclude examples-c/quickstart.c $(BUILD)/libslicepool.a -o $(DEMO)/quickstart
	$(DEMO)/quickstart

# Every test: core, the C library from outside, the examples, the documentation's own programs; and once more, as users
# build it, the one that says that placements are the same in every build.
test:
	$(CARGO) test --workspace
	$(CARGO) test --release -p slicepool-core --test determinism
	$(CARGO) test -p slicepool-core --features std --test thread_caches
	$(CARGO) test -p slicepool-core --no-default-features --lib

# The example, the tests and a measurement over the CUDA driver of this machine; over a double where there is none.
test-cuda:
	tests/cuda.sh

# Models of the buffer pools: what several threads do at once, in every order.
loom:
	RUSTFLAGS="--cfg loom" $(CARGO) test -p slicepool-core --lib --target-dir target/loom models

# Scenarios with more threads, in orders drawn at random.
shuttle:
	RUSTFLAGS="--cfg shuttle" $(CARGO) test -p slicepool-core --lib --target-dir target/shuttle scenarios

# Everything that takes too long for every change, and a table of it. PROOF_SCALE=100 tries it.
proof:
	tests/proof.sh

# Programs made of bytes, under AddressSanitizer: make fuzz SECONDS=60. The corpus alone, and some that are drawn, on stable.
SECONDS ?= 60
fuzz:
	tests/fuzz.sh $(SECONDS)
fuzz-corpus:
	cd fuzz && $(CARGO) test -q

# Threads at work for long; undefined behaviour; the C programs with sanitizers in the library, too; lines that no test runs;
# changes that no test notices. Each says what to install.
soak miri sanitize coverage mutants:
	tests/$@.sh

# One table of ratios to what people use today, from one run. Needs a C++ compiler for one of the peers.
bench: $(BUILD)/libslicepool.a
	cd bench && $(CARGO) run --release --bin table
	cd bench && $(CARGO) run --release --bin buffers

# The same with peers that take long to build.
bench-all: $(BUILD)/libslicepool.a
	cd bench && $(CARGO) run --release --bin table --features heavy
	cd bench && $(CARGO) run --release --bin buffers --features heavy

# Instructions that hot paths take, against those that are checked in. Needs valgrind.
instructions: $(BUILD)/libslicepool.a
	cd bench && $(CARGO) run --release -p slicepool-instructions

# What programs would reserve, and what the device would have to do: recorded ones from the folder in SLICEPOOL_TRACES,
# and synthetic ones.
bench-traces:
	cd bench && $(CARGO) run --release --bin traces

# Writes include/slicepool.h (and the other golden files) anew from the sources.
bless:
	BLESS=1 $(CARGO) test -p slicepool-tests --test header
	BLESS=1 $(CARGO) test -p slicepool-tests --test c_binary --test c_layout

# Formatting, lints and documentation, with warnings as errors.
check:
	$(CARGO) fmt --all --check
	for folder in fuzz bench tests/mutants; do (cd $$folder && $(CARGO) fmt --all --check) || exit 1; done
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps

# Builds that are broken on purpose; a test that does not notice one fails this.
canaries:
	tests/canaries.sh

# Builds the programs for microcontrollers and runs them under qemu; what they take of flash and RAM.
# Needs arm-none-eabi-gcc and qemu-system-arm.
firmware:
	$(MAKE) -C examples-c/firmware run

firmware-size:
	$(MAKE) --no-print-directory -C examples-c/firmware size

clean:
	$(CARGO) clean
