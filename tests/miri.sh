#!/bin/bash
# Tests of core under Miri, which finds undefined behaviour: with strict provenance, and alignment by what a type promises
# rather than by where memory happens to lie. Some also as on a big-endian machine, and on one of 32 bits. Needs nightly Rust
# with miri and rust-src.
#
#     tests/miri.sh [SECONDS]   a minute, or so many seconds, for each group of tests
#     tests/miri.sh many        all of them to their end, and threads in many orders; takes hours
#
# One line a group. A group whose time is up has passed if nothing was found until then: what is begun is said. Models, traces
# and whatever counts to a million are for other tools.
set -u
cd "$(dirname "$0")/.." || exit 1
CARGO_TARGET_DIR=${SLICEPOOL_MIRI_TARGET:-$PWD/target/miri}
export CARGO_TARGET_DIR
toolchain=${SLICEPOOL_NIGHTLY:-nightly}
seeds=${SLICEPOOL_MIRI_SEEDS:-16}
# Without isolation tests see the seeds of the environment.
usual="-Zmiri-strict-provenance -Zmiri-disable-isolation"
export SLICEPOOL_MODEL_OPS=${SLICEPOOL_MODEL_OPS:-200}

# skip WHAT: says what to install, and fails where everything is required.
skip() {
    echo "SKIPPED: $1"
    [ "${SLICEPOOL_REQUIRE:-}" != all ]
    exit
}

# group FLAGS CARGO_ARGUMENTS... -- FILTERS...: the tests of one program that FILTERS name, or that it does not skip.
group() {
    flags=$1
    shift
    log=$CARGO_TARGET_DIR/group.log
    words=$(printf '%s ' "$@" | sed 's/ --skip [^ ]*//g')
    # Compiling has all the time it needs.
    program=()
    for word in "$@"; do
        [ "$word" != -- ] || break
        program+=("$word")
    done
    MIRIFLAGS="$usual $flags" cargo "+$toolchain" miri test -q -p slicepool-core "${program[@]}" --no-run >"$log" 2>&1
    begin=$SECONDS
    MIRIFLAGS="$usual $flags" timeout "$limit" cargo "+$toolchain" miri test -p slicepool-core "$@" --test-threads=1 \
        >"$log" 2>&1
    result=$?
    passed=$(grep -c '^test .* \.\.\. ok$' "$log")
    # A name that no test has any more would pass for ever.
    if [ $result = 0 ] && [ "$passed" -gt 0 ]; then
        echo "$words: $passed passed, $((SECONDS - begin)) s"
    elif [ $result = 124 ] && [ "$passed" -gt 0 ]; then
        echo "$words: $passed passed until the time was up, $((SECONDS - begin)) s"
    else
        kept=$CARGO_TARGET_DIR/failed-$((failures += 1)).log
        mv "$log" "$kept"
        echo "$words: FAILED after $passed tests (see $kept)"
        grep -m 3 -A 3 -E '^error|panicked| error: |has overflowed|leaked' "$kept"
    fi
}

# strictly CARGO_ARGUMENTS... -- FILTERS...: alignment by what types promise, too.
strictly() { group -Zmiri-symbolic-alignment-check "$@"; }

# by_address CARGO_ARGUMENTS... -- FILTERS...: for blocks of memory that are aligned by looking at their address.
by_address() { group "" "$@"; }

command -v rustup >/dev/null && cargo "+$toolchain" miri --version >/dev/null 2>&1 ||
    skip "Miri is missing; rustup toolchain install nightly && rustup component add --toolchain nightly miri rust-src"
mkdir -p "$CARGO_TARGET_DIR"
failures=0

# Tests that would take all the time of their groups.
long=(--skip closing_by_force_frees_live_slices --skip a_point_below_an_earlier_one)
case ${1:-} in
many) limit=$((24 * 3600)) long=() ;;
*) limit=${1:-60} ;;
esac

# Threads that count to ten thousands under a lock, and lives of thousands of slices.
slow=(--skip lets_one_thread_in_at_a_time --skip called_around_every_access --skip never_overlap_and_every_page_goes_back
    --skip block_as_large_as_the_measured_peak --skip keep_their_books_in_one_block --skip million
    --skip hundred_thousand)
# Arithmetic alone is for other tools, and what looks for holes in bitmaps takes long.
strictly --lib -- "${slow[@]}" --skip arena:: --skip plain:: --skip stripe:: --skip layout::
by_address --lib -- arena:: "${slow[@]}"
strictly --features std --test thread_caches -- "${slow[@]}"
strictly --test slices -- handles:: ${long[@]+"${long[@]}"}
strictly --test devices -- unruly::
strictly --test waiting -- due:: ${long[@]+"${long[@]}"}
strictly --test buffers -- zeroing:: owners:: closing::
for target in s390x-unknown-linux-gnu i686-unknown-linux-gnu; do
    strictly --target $target --lib -- int:: slots:: buffer::slot metadata:: slicer:: ledger::
done

if [ "${1:-}" = many ]; then
    for program in slices devices waiting memory pools limits books buffers buffers_alone injection injection_memory; do
        # Their blocks lie anywhere, and what they count is not about memory.
        strictly --test $program -- --skip block "${slow[@]}"
    done
    by_address --test one_block -- "${slow[@]}"
    by_address --test waiting -- block::
    # Threads, in as many orders.
    for program in threads "buffers threads::" "thread_caches" "buffers_alone"; do
        read -r name filter <<<"$program"
        # shellcheck disable=SC2086
        group "-Zmiri-symbolic-alignment-check -Zmiri-many-seeds=0..$seeds" --features std --test "$name" -- $filter \
            "${slow[@]}"
    done
fi

[ "$failures" = 0 ]
