#!/bin/sh
# Runs tests with faults that are built in on purpose: each must fail, or it would not notice the fault in earnest either.
#
# The faults are in core/src, behind broken("..."). They are all in one build; the environment says which is wanted. One
# line per canary; exit status 1 if one survives, that is, if a test passes, or if the tests do not pass without a fault.
#
#     tests/canaries.sh                     all of them, as many at a time as there are processors
#     tests/canaries.sh canary NAME TEST... that one, and so with model
set -u
cd "$(dirname "$0")/.." || exit 1
CARGO_TARGET_DIR=${SLICEPOOL_CANARY_TARGET:-$PWD/target/canary}
export CARGO_TARGET_DIR
# Enough for every canary to be noticed.
export SLICEPOOL_MODEL_OPS=${SLICEPOOL_MODEL_OPS:-400000}
export RUST_BACKTRACE=0
# How a canary is noticed is of no interest.
export SLICEPOOL_MODEL_SHRINK=0
export SLICEPOOL_SOAK_OPS=1000000
mkdir -p "$CARGO_TARGET_DIR" || exit 1
# A wrapper gives the flag to this workspace only: dependencies are built as ever.
RUSTC_WORKSPACE_WRAPPER=$CARGO_TARGET_DIR/rustc-canary
export RUSTC_WORKSPACE_WRAPPER
# Not written again while another of these may be running it.
if [ ! -x "$RUSTC_WORKSPACE_WRAPPER" ]; then
    printf '#!/bin/sh\nexec "$@" --cfg slicepool_canary\n' >"$RUSTC_WORKSPACE_WRAPPER"
    chmod +x "$RUSTC_WORKSPACE_WRAPPER"
fi

# run NAME TEST: runs a test with the fault NAME. `memory::blocks` is what the test program `memory` has in `blocks`.
run() {
    program=${2%%::*}
    part=${2#"$program"}
    part=${part#::}
    log=$CARGO_TARGET_DIR/$1-$program${part:+-$part}.log
    SLICEPOOL_CANARY=$1 timeout 300 cargo test -q -p slicepool-core --test "$program" ${part:+"$part::"} >"$log" 2>&1
}

# canary NAME TEST...: demands that each test fails with the fault NAME.
canary() {
    name=$1
    shift
    verdict=
    status=0
    for test in "$@"; do
        if run "$name" "$test"; then
            verdict="$verdict SURVIVED $test;"
            status=1
        # A test's device may find more that is wrong while it is dropped because of the first.
        elif grep -q panicked "$log" && grep -qE 'test result: FAILED|panic in a destructor during cleanup' "$log"; then
            verdict="$verdict noticed by $test;"
        else
            verdict="$verdict $test ended without a verdict (see $log);"
            status=1
        fi
    done
    echo "canary $name:${verdict%;}"
    return $status
}

# model NAME TEST: demands that a model of threads, or another test of `make loom`'s build, fails with the fault NAME.
model() {
    log=$CARGO_TARGET_DIR/$1-loom.log
    if SLICEPOOL_CANARY=$1 RUSTFLAGS="--cfg loom" timeout 300 cargo test -q -p slicepool-core --lib \
        --target-dir "$CARGO_TARGET_DIR/loom" "$2" >"$log" 2>&1; then
        echo "canary $1: SURVIVED the model"
        return 1
    # Memory that is freed twice may end the program.
    elif grep -qE 'test result: FAILED|signal: ' "$log"; then
        echo "canary $1: noticed by the model $2"
    else
        echo "canary $1: the model ended without a verdict (see $log)"
        return 1
    fi
}

# bytes NAME TEST: demands the same of the programs made of bytes.
bytes() {
    log=$CARGO_TARGET_DIR/$1-bytes.log
    (
        cd fuzz || exit 1
        unset RUSTC_WORKSPACE_WRAPPER
        SLICEPOOL_CANARY=$1 RUSTFLAGS="--cfg slicepool_canary" timeout 300 cargo test -q --test corpus \
            --target-dir "$CARGO_TARGET_DIR/bytes" "$2"
    ) >"$log" 2>&1
    if grep -q 'test result: FAILED' "$log"; then
        echo "canary $1: noticed by programs made of bytes, $2"
    elif grep -q 'test result: ok' "$log"; then
        echo "canary $1: SURVIVED programs made of bytes"
        return 1
    else
        echo "canary $1: the programs made of bytes ended without a verdict (see $log)"
        return 1
    fi
}

# all: the lines of the list below, some at a time.
all() {
    processors=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)
    sed '/^#/d' | xargs -P "$processors" -L 1 tests/canaries.sh
}

case ${1:-} in
canary | model | bytes)
    "$@"
    exit
    ;;
esac

# Without a fault, everything passes.
for test in exhaustive injection soak memory::granularity memory::blocks memory::types memory::mapping limits::growth_flags \
    books::labels books::events buffers::caches buffers::exhaustion buffers::memory; do
    if ! run none "$test"; then
        echo "$test fails without any fault (see $log)"
        exit 1
    fi
done

all <<'END'
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
canary budget_leak model injection soak
# Linear and optimal resources share pages.
canary kinds_share_pages memory::granularity
# Blocks that have gone count for how large the next one is.
canary blocks_never_shrink memory::blocks
# A request that must not grow does.
canary never_grow_grows model limits::growth_flags
# A slice has the name of the one that was there before it.
canary labels_outlive_slices books::labels
# What is held counts as the first memory type's.
canary one_type_for_all memory::types
# Events have their neighbours' numbers.
canary events_out_of_order books::events
# A page goes back without being unmapped.
canary returned_while_mapped memory::mapping
# Buffers that a cache gives back together are lost.
canary buffer_lost buffers::caches soak
# A cache keeps one buffer more than it may.
canary buffer_cache_grows buffers::caches
# A class whose buffers are in caches says so, and leaves them there.
canary buffer_no_pressure buffers::exhaustion
# A device that has no memory for a slab is not asked for a smaller one.
canary buffer_slab_whole buffers::memory
# A table of the ledger is put to use although it has become too small meanwhile.
model table_too_small ledger::tests::a_table_that_was_asked_for
# Two threads with one handle both release the buffer.
model buffer_claim models::of_two_threads
# What is out is counted after a buffer may have come back.
model buffer_count_late models::a_pool_that_is_closed
# A cache catches up with a mark that is not there yet.
model buffer_epoch_first models::what_a_request
# A cache comes into being, and does not know that the pool is closed.
model buffer_epoch_late models::a_cache_that_comes
# A free range is not joined, a page goes back mapped, a buffer is lost, a name stays, kinds share pages: see above.
bytes no_coalescing slicer
bytes returned_while_mapped pools
bytes buffer_lost buffers
bytes labels_outlive_slices c_border
bytes kinds_share_pages config
END
