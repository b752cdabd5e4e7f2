#!/bin/sh
# Fuzzes: runs every target of fuzz/ from its corpus, under libFuzzer and AddressSanitizer.
#
#     tests/fuzz.sh                     all targets, 60 seconds each
#     tests/fuzz.sh SECONDS [TARGET...] for so long, and only these
#
# One line per target; exit status 1 if one finds something. What it finds is left in fuzz/artifacts, and a command is
# printed that replays it, on stable Rust. Nothing is left of new inputs, unless SLICEPOOL_FUZZ_KEEP=1: then the corpus is
# made anew of itself and of them. SLICEPOOL_SEED sets the seed, SLICEPOOL_FUZZ_TARGET where the programs are built. Needs a
# nightly compiler, but not cargo-fuzz.
set -u
cd "$(dirname "$0")/../fuzz" || exit 1
seconds=${1:-60}
[ $# -gt 0 ] && shift
targets=${*:-slicer pools buffers c_border config}
seed=${SLICEPOOL_SEED:-$(od -An -N3 -tu4 /dev/urandom | tr -d ' ')}

skip() {
    echo "SKIPPED: fuzzing; $1"
    [ "${SLICEPOOL_REQUIRE:-}" = all ] && exit 1
    exit 0
}
command -v rustup >/dev/null || skip "install rustup from https://rustup.rs"
rustup toolchain list | grep -q ^nightly || skip "rustup toolchain install nightly --profile minimal"
command -v c++ >/dev/null || skip "apt-get install g++"

target=${SLICEPOOL_FUZZ_TARGET:-$PWD/target}
triple=$(rustc +nightly -vV | sed -n 's/^host: //p')
# What cargo-fuzz sets.
flags="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
-Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares -Zsanitizer=address --cfg fuzzing \
-Ccodegen-units=1"
RUSTFLAGS="$flags ${RUSTFLAGS:-}" cargo +nightly build -q --release --target "$triple" --target-dir "$target" --bins ||
    exit 1

scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
export ASAN_OPTIONS="${ASAN_OPTIONS:-allocator_may_return_null=1:detect_leaks=1}"
mkdir -p artifacts

# fuzz TARGET: says what came of it.
fuzz() {
    program=$target/$triple/release/$1
    mkdir -p "$scratch/$1" "artifacts/$1" "corpus/$1"
    log=$scratch/$1.log
    "$program" -seed="$seed" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=4096 -max_len=1000 -len_control=0 \
        -print_final_stats=1 -artifact_prefix="artifacts/$1/" "$scratch/$1" "corpus/$1" >"$log" 2>&1
    status=$?
    executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    coverage=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -1)
    echo "$1: ${executions:-0} executions, coverage ${coverage:-0}, seed $seed, $([ $status = 0 ] && echo fine || echo FOUND)"
    if [ $status != 0 ]; then
        grep -E "panicked at|ERROR: |SUMMARY: |left: |right: " -A1 "$log" | head -12
        found=$(sed -n 's/.*Test unit written to //p' "$log" | tail -1)
        echo "replay: cd fuzz && cargo run --bin $1 ${found:-artifacts/$1/...}"
        echo "under the sanitizer: $program fuzz/$found"
        return 1
    fi
    if [ "${SLICEPOOL_FUZZ_KEEP:-}" = 1 ]; then
        mkdir "$scratch/$1-merged"
        "$program" -merge=1 -max_len=1000 "$scratch/$1-merged" "corpus/$1" "$scratch/$1" >"$log" 2>&1 || return 1
        rm -f "corpus/$1"/*
        # The tests run them, too, so not many: the longest programs do the most.
        ls -S "$scratch/$1-merged" | head -n 40 | while read -r file; do cp "$scratch/$1-merged/$file" "corpus/$1/"; done
    fi
}

failed=0
for name in $targets; do
    fuzz "$name" || failed=1
done
exit $failed
