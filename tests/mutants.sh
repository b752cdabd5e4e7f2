#!/bin/bash
# Changes core in many small ways, one at a time (cargo install cargo-mutants): its tests must notice each. Takes hours for
# all of it.
#
#     tests/mutants.sh [FILE...]   those files or folders of core/src; slicer, slots, sizes, pool and buffer
#
# SLICEPOOL_MUTANTS_RESULTS names a file to which a line for each change is added; SLICEPOOL_MUTANTS_SHARD=1/8 tries a part.
# Exit status 1 if a change goes unnoticed.
set -eu
cd "$(dirname "$0")/.."
results=${SLICEPOOL_MUTANTS_RESULTS:-target/mutants/results.txt}
out=${SLICEPOOL_MUTANTS_TARGET:-$PWD/target/mutants}

# skip WHAT: says what to install, and fails where everything is required.
skip() {
    echo "SKIPPED: $1"
    [ "${SLICEPOOL_REQUIRE:-}" != all ]
    exit
}
cargo mutants --version >/dev/null 2>&1 || skip "cargo-mutants is missing; cargo install cargo-mutants"

# Compiled once and run once.
export CARGO_PROFILE_TEST_DEBUG=0 CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_TEST_OPT_LEVEL=1
# Enough to notice, and no time to make what is noticed small.
export SLICEPOOL_MODEL_OPS=${SLICEPOOL_MODEL_OPS:-60000} SLICEPOOL_MODEL_SHRINK=0 SLICEPOOL_SOAK_OPS=100000
export RUST_BACKTRACE=0

# mutate NAME TESTS FILE...: with the test programs that are quickest to notice what is wrong in those files.
mutate() {
    name=$1
    tests=(--cargo-arg=--lib)
    for test in $2; do tests+=(--cargo-arg=--test --cargo-arg="$test"); done
    shift 2
    files=()
    for file in "$@"; do
        file=${file#core/src/}
        if [ -d "core/src/$file" ]; then files+=(-f "core/src/$file/**/*.rs"); else files+=(-f "core/src/$file"); fi
    done
    shard=()
    [ -z "${SLICEPOOL_MUTANTS_SHARD:-}" ] || shard=(--shard "$SLICEPOOL_MUTANTS_SHARD")
    ended=0
    mkdir -p "$out/$name" "$(dirname "$results")"
    cargo mutants --package slicepool-core --jobs 1 --no-shuffle --output "$out/$name" --colors never --caught --unviable \
        ${shard[@]+"${shard[@]}"} "${files[@]}" "${tests[@]}" || ended=$?
    # 2 and 3: some were missed, or took too long, which is noticed as well. Others: it did not come to an end.
    case $ended in 0 | 2 | 3) ;; *) broken=1 ;; esac
    for outcome in caught missed timeout unviable; do
        sed "s/^/$outcome /" "$out/$name/mutants.out/$outcome.txt"
    done >>"$results"
    missed+=${missed:+$'\n'}$(sed 's/^/    /' "$out/$name/mutants.out/missed.txt")
    tried=$((tried + $(cat "$out/$name"/mutants.out/{caught,missed,timeout}.txt | wc -l)))
}

[ $# -gt 0 ] || set -- slots.rs sizes.rs slicer pool buffer
slices=() buffers=()
for file in "$@"; do
    case $file in
    *buffer*) buffers+=("$file") ;;
    *) slices+=("$file") ;;
    esac
done
missed='' tried=0 broken=0 begin=$SECONDS
if [ ${#slices[@]} -gt 0 ]; then
    mutate slices "exhaustive model slices pools memory soak" "${slices[@]}"
fi
if [ ${#buffers[@]} -gt 0 ]; then
    mutate buffers "buffers buffer_config buffers_alone soak" "${buffers[@]}"
fi
printf '%s changes in %s s; not noticed:\n%s\n' $tried $((SECONDS - begin)) "${missed:-    none}"
[ $broken = 0 ] && [ $tried -gt 0 ] && [ -z "$missed" ]
