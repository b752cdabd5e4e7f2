#!/bin/bash
# Changes core in thousands of small ways, one at a time: its tests must notice each. All changes are in one build, and a
# variable says which one is on (tests/mutants/src): an hour or two for all of it, on two processors.
#
#     tests/mutants.sh [FILE...]   those files or folders of core/src; slots, sizes, slicer, pool and buffer
#
# cargo-mutants (cargo install cargo-mutants) lists the changes. SLICEPOOL_MUTANTS_TARGET names a folder: a line for each change
# is added to what ends with -results.txt there, and what stands there already is not tried again. SLICEPOOL_MUTANTS_SHARD=1/8
# tries every eighth, from 0/8 to 7/8. tests/mutants/unnoticed.txt says which changes need not be noticed, and why. Exit status 1 if another is not.
set -eu
cd "$(dirname "$0")/.."
out=${SLICEPOOL_MUTANTS_TARGET:-$PWD/target/mutants}

# skip WHAT: says what to install, and fails where everything is required.
skip() {
    echo "SKIPPED: $1"
    [ "${SLICEPOOL_REQUIRE:-}" != all ]
    exit
}
cargo mutants --version >/dev/null 2>&1 || skip "cargo-mutants is missing; cargo install cargo-mutants"

cargo build -q --release --manifest-path tests/mutants/Cargo.toml --target-dir "$out/tool"
export CARGO_PROFILE_TEST_DEBUG=0 CARGO_PROFILE_DEV_DEBUG=0 RUST_BACKTRACE=0
# Enough to notice, and no time to make what is noticed small.
export SLICEPOOL_MODEL_OPS=${SLICEPOOL_MODEL_OPS:-60000} SLICEPOOL_MODEL_SHRINK=0 SLICEPOOL_SOAK_OPS=100000 SLICEPOOL_DEPTH=5

# mutate NAME TESTS FILE...: with those test programs, beside the unit tests.
mutate() {
    name=$1 tests=$2
    shift 2
    files=()
    for file in "$@"; do
        file=${file#core/src/}
        if [ -d "core/src/$file" ]; then files+=(-f "core/src/$file/**/*.rs"); else files+=(-f "core/src/$file"); fi
    done
    mkdir -p "$out"
    cargo mutants --package slicepool-core --list --json "${files[@]}" >"$out/$name.json"
    # shellcheck disable=SC2086
    "$out/tool/release/slicepool-mutants" . "$out/$name" "$out/$name.json" "$out/$name-results.txt" $tests || status=1
}

[ $# -gt 0 ] || set -- slots.rs sizes.rs slicer pool buffer
slices=() buffers=()
for file in "$@"; do
    case $file in
    *buffer*) buffers+=("$file") ;;
    *) slices+=("$file") ;;
    esac
done
status=0
if [ ${#slices[@]} -gt 0 ]; then
    mutate slices "books determinism devices exhaustive injection injection_memory limits memory model one_block plans pools \
        slices soak tags threads waiting" "${slices[@]}"
fi
if [ ${#buffers[@]} -gt 0 ]; then
    mutate buffers "buffers buffer_config buffers_alone injection_buffers soak thread_caches \
        --features=std" "${buffers[@]}"
fi
exit $status
