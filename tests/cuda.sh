#!/bin/sh
# CUDA: the example, the tests and a measurement, over the driver of this machine; over its double if there is none
# that works, which measures nothing. Needs Rust, a C compiler, and the driver; takes less than five minutes. Exit
# status 1 if anything fails.
#
#     tests/cuda.sh          as above
#     tests/cuda.sh --real   fails without a driver that works
set -eu
cd "$(dirname "$0")/.."

CC=${CC:-cc}
CARGO=${CARGO:-cargo}
library=target/capi/release/libslicepool.a
build=target/cuda

# limited COMMAND...: runs it, for at most 80 seconds where that can be said.
limited() {
    if command -v timeout >/dev/null; then timeout 80 "$@"; else "$@"; fi
}

fail() {
    echo "FAILED: $1" >&2
    exit 1
}

# program SOURCE NAME: compiles a program.
program() {
    "$CC" -std=c11 -O2 -Wall -Wextra -Iinclude -Itests/c "$1" "$library" -lpthread -ldl -o "$build/$2"
}

mkdir -p "$build"
"$CARGO" build --quiet --release -p slicepool-capi --target-dir target/capi
program examples-c/cuda.c example
program tests/c/cuda.c tests
program tests/c/cuda_measure.c measure

unset SLICEPOOL_CUDA_LIBRARY
if answer=$(limited "$build/measure" --probe); then
    echo "== Over the driver of this machine"
    if [ -r /proc/driver/nvidia/version ]; then head -n 1 /proc/driver/nvidia/version; fi
    set --
elif [ "${1:-}" = --real ]; then
    fail "$answer"
else
    echo "== $answer"
    echo "== Over the double of the driver: host memory, no GPU. The times below are NOT measurements."
    SLICEPOOL_CUDA_LIBRARY=$PWD/$build/libcuda_double.so
    export SLICEPOOL_CUDA_LIBRARY
    "$CC" -std=c11 -O2 -Wall -Wextra -shared -fPIC tests/c/cuda_double.c -lpthread -o "$SLICEPOOL_CUDA_LIBRARY"
    set -- --library "$SLICEPOOL_CUDA_LIBRARY"
fi

echo "== Example"
limited "$build/example" >"$build/example.txt" || fail "the example"
cat "$build/example.txt"
grep -q '^end: everything given back' "$build/example.txt" || fail "the example has not come to its end"

echo "== Tests"
limited "$build/tests" "$@" || fail "a test"

echo "== Measurement"
limited "$build/measure" || fail "the measurement"

echo "== All passed"
