#!/bin/bash
# Everything that takes too long for every change: `make proof`. Half a day, of which fuzzing is the most.
#
#     tests/proof.sh [NAME...]   all of it, or those rows
#
# PROOF_SCALE=100 divides all sizes by that, to try it in a while. At the end there is a table for docs/how-it-is-tested.md.
# Exit status 1 if a row fails. What is missing is said to be SKIPPED, and fails with SLICEPOOL_REQUIRE=all.
set -u
cd "$(dirname "$0")/.." || exit 1
scale=${PROOF_SCALE:-1}
logs=${SLICEPOOL_PROOF_LOGS:-$PWD/target/proof}
mkdir -p "$logs"
wanted=" $* "
rows=()
status=0

# scaled NUMBER: divided by the scale, 1 at least.
scaled() { echo $(($1 / scale > 0 ? $1 / scale : 1)); }

# row NAME COMMAND...: runs one, and keeps a line for the table. What it prints goes to a file, and its last lines here.
row() {
    name=$1
    shift
    [ "$wanted" = "  " ] || [[ $wanted == *" $name "* ]] || return 0
    echo "== $name: $*"
    begin=$SECONDS
    if env "$@" >"$logs/$name.log" 2>&1; then result=passed; else result=FAILED; fi
    skipped=$(grep -m 1 '^SKIPPED:' "$logs/$name.log")
    [ -z "$skipped" ] || result="$result; $skipped"
    [ "${result%%;*}" = passed ] || status=1
    tail -n 8 "$logs/$name.log"
    echo "== $name: $result, $((SECONDS - begin)) s"
    rows+=("| $(date +%Y-%m-%d) | $name | \`$*\` | $((SECONDS - begin)) | $result |")
}

depth=7
preemptions=3
miri=many
mutants=()
if [ "$scale" -gt 1 ]; then
    depth=6
    preemptions=2
    miri=few
    mutants=(SLICEPOOL_MUTANTS_SHARD="0/$((scale * 10))")
fi

row model "SLICEPOOL_MODEL_OPS=$(scaled 100000000)" \
    cargo test -p slicepool-core --test model -- --nocapture
row buffer-model "SLICEPOOL_MODEL_OPS=$(scaled 100000000)" \
    cargo test -p slicepool-core --test buffers -- --nocapture model::
row exhaustive "SLICEPOOL_DEPTH=$depth" cargo test -p slicepool-core --test exhaustive -- --nocapture
row loom "LOOM_MAX_PREEMPTIONS=$preemptions" make loom
row canaries tests/canaries.sh
row sanitize tests/sanitize.sh
row soak tests/soak.sh "$(scaled 1000000000)"
row coverage tests/coverage.sh
row miri tests/miri.sh $miri
row fuzz tests/fuzz.sh "$(scaled 3600)"
row mutants ${mutants[@]+"${mutants[@]}"} tests/mutants.sh

[ ${#rows[@]} -gt 0 ] || { echo "there is no row$wanted" >&2 && exit 2; }
echo
echo "| date | what | command | seconds | result |"
echo "|---|---|---|---|---|"
printf '%s\n' "${rows[@]}"
exit $status
