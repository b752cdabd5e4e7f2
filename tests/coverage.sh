#!/bin/sh
# How many lines of core its tests run. Needs cargo-llvm-cov (cargo install cargo-llvm-cov) and the toolchain's llvm-tools.
#
#     tests/coverage.sh [LEAST]   fails below that many per cent of all lines; 95
#
# A line for each file, and for those below LEAST the lines that nothing runs. What stands in a module of tests inside a file
# is not counted.
set -eu
cd "$(dirname "$0")/.."
least=${1:-95}
CARGO_TARGET_DIR=${SLICEPOOL_COVERAGE_TARGET:-$PWD/target/coverage}
export CARGO_TARGET_DIR
# Enough for every line that the model reaches at all.
export SLICEPOOL_MODEL_OPS="${SLICEPOOL_MODEL_OPS:-100000}" SLICEPOOL_SOAK_OPS="${SLICEPOOL_SOAK_OPS:-400000}"

# skip WHAT: says what to install, and fails where everything is required.
skip() {
    echo "SKIPPED: $1"
    [ "${SLICEPOOL_REQUIRE:-}" != all ]
    exit
}

cargo llvm-cov --version >/dev/null 2>&1 || skip "cargo-llvm-cov is missing; cargo install cargo-llvm-cov"
find "$(rustc --print sysroot)" -name 'llvm-profdata*' 2>/dev/null | grep -q . ||
    skip "llvm-tools are missing; rustup component add llvm-tools"

mkdir -p "$CARGO_TARGET_DIR"
lines=$CARGO_TARGET_DIR/lines.txt
if ! cargo llvm-cov -p slicepool-core --features std --tests --ignore-filename-regex '/(tests|traces)/' \
    --lcov --output-path "$lines" -- --quiet >"$CARGO_TARGET_DIR/tests.log" 2>&1; then
    tail -n 40 "$CARGO_TARGET_DIR/tests.log"
    exit 1
fi

awk -F '[:,]' -v root="$PWD/" -v least="$least" '
    # The line at which the tests of a file begin.
    function tests_of(file,    line, number, before, found) {
        found = 1e9
        while ((getline line <(root file)) > 0) {
            number++
            if (before == "#[cfg(test)]" && line ~ /^mod .* \{$/) found = number
            before = line
        }
        close(root file)
        return found
    }
    /^SF:/ {
        file = substr($0, 4)
        sub(root, "", file)
        counted = file ~ /^core\/src\// && file !~ /tests\.rs$/
        end = counted ? tests_of(file) : 0
    }
    /^DA:/ && counted && $2 < end {
        all[file]++
        if ($3 > 0) run[file]++
        else missing[file] = missing[file] " " $2
    }
    END {
        for (file in all) {
            share = 100 * run[file] / all[file]
            printf "%5.1f %% of %4d  %s%s\n", share, all[file], file, share < least ? ":" missing[file] : ""
            lines_all += all[file]
            lines_run += run[file]
        }
        if (lines_all == 0) { print "nothing was measured"; exit 1 }
        share = 100 * lines_run / lines_all
        printf "%5.1f %% of %4d lines in all; %d are wanted\n", share, lines_all, least
        exit share < least
    }
' "$lines" >"$CARGO_TARGET_DIR/table.txt" && status=0 || status=1
grep -v 'in all' "$CARGO_TARGET_DIR/table.txt" | sort -n
grep 'in all' "$CARGO_TARGET_DIR/table.txt"
exit $status
