#!/bin/sh
# Runs tests on deliberately broken builds: each must fail, or it would not notice the fault in earnest either.
#
# The faults are in core/src behind cfg!(slicepool_canary = "..."). One line per canary; exit status 1 if one survives,
# that is, if a test passes or cannot be built.
set -u
cd "$(dirname "$0")/.." || exit 1
CARGO_TARGET_DIR=${SLICEPOOL_CANARY_TARGET:-$PWD/target/canary}
export CARGO_TARGET_DIR
# Enough for every canary to be noticed.
export SLICEPOOL_MODEL_OPS=${SLICEPOOL_MODEL_OPS:-400000}
export RUST_BACKTRACE=0
# How a canary is noticed is of no interest.
export SLICEPOOL_MODEL_SHRINK=0
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
# A request for one pool goes to any.
canary any_pool model
# A page of more than twice the request serves at once.
canary exclusive_any_page model
# A page one granule too large serves in place of the exact one.
canary direct_near_size model
# Free pages are not moved when there are more places to look for them.
canary direct_lost_in_split model
# Above the watermark the page that was freed last goes first.
canary reclaim_newest model
# Pages that are too small stay beside the larger one.
canary growth_keeps_idle model
# A new page stays one check too long.
canary age_off_by_one model
# A page that is used again stays as old as it was.
canary age_never_reset model
# All pages that are too old go in one call.
canary age_all_at_once model
# Age takes what a pool has to keep.
canary keep_nothing model
# A trim empties one pool after the other.
canary trim_pool_order model
# Pages that have been given back count towards the peak of what is held.
canary held_for_ever model
# A slice is released one value before the one it waits for.
canary release_early model
# A device that has no memory is asked again with every request.
canary ask_for_ever model
# A request is refused although pages that hold nothing could make room for it.
canary keep_idle_when_short model
# What has been given back counts towards the limits.
canary budget_leak model

[ "$failures" -eq 0 ] || exit 1
