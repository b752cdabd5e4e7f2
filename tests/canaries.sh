#!/bin/sh
# Runs tests on deliberately broken builds: each must fail, or it would not notice the fault in earnest either.
#
# The faults are in core/src/slicer behind cfg!(slicepool_canary = "..."). One line per canary; exit status 1 if one
# survives, that is, if a test passes or cannot be built.
set -u
cd "$(dirname "$0")/.." || exit 1
CARGO_TARGET_DIR=${SLICEPOOL_CANARY_TARGET:-$PWD/target/canary}
export CARGO_TARGET_DIR
# Enough for every canary to be noticed.
export SLICEPOOL_MODEL_OPS=${SLICEPOOL_MODEL_OPS:-200000}
export RUST_BACKTRACE=0
mkdir -p "$CARGO_TARGET_DIR" || exit 1
failures=0

# canary NAME TEST...: builds core with the fault NAME and demands that each test fails.
canary() {
    name=$1
    shift
    # A wrapper gives the flag to this workspace only: dependencies are built once, not once per canary.
    wrapper=$CARGO_TARGET_DIR/rustc-$name
    printf '#!/bin/sh\nexec "$@" --cfg '\''slicepool_canary="%s"'\''\n' "$name" >"$wrapper"
    chmod +x "$wrapper"
    verdict=
    for test in "$@"; do
        log=$CARGO_TARGET_DIR/$name-$test.log
        if ! RUSTC_WORKSPACE_WRAPPER=$wrapper cargo test -p slicepool-core --test "$test" --no-run >"$log" 2>&1; then
            verdict="$verdict NOT BUILT for $test (see $log);"
            failures=$((failures + 1))
        elif RUSTC_WORKSPACE_WRAPPER=$wrapper timeout 300 cargo test -p slicepool-core --test "$test" >"$log" 2>&1; then
            verdict="$verdict SURVIVED $test;"
            failures=$((failures + 1))
        elif grep -q panicked "$log" && grep -q 'test result: FAILED' "$log"; then
            verdict="$verdict noticed by $test;"
        else
            verdict="$verdict $test ended without a verdict (see $log);"
            failures=$((failures + 1))
        fi
    done
    echo "canary $name:${verdict%;}"
}

# A hole that fits is refused. The exhaustive test's pool is too small for one that only the last search finds.
canary refuse_what_fits model
# Freed handles are accepted once their slot is live again.
canary skip_generation model exhaustive
# A freed slice is not joined with the hole behind it.
canary no_coalescing model exhaustive
# Slices are placed wherever there is room.
canary ignore_alignment model exhaustive
# Memory skipped for alignment is never used again.
canary swallow_gap model exhaustive

[ "$failures" -eq 0 ] || exit 1
