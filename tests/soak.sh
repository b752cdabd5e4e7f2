#!/bin/sh
# Four threads at work for long: what they hold must stay flat (core/tests/soak). 10^9 operations take some minutes.
#
#     tests/soak.sh [OPERATIONS]
set -eu
cd "$(dirname "$0")/.."
SLICEPOOL_SOAK_OPS=${1:-${SLICEPOOL_SOAK_OPS:-1000000000}}
export SLICEPOOL_SOAK_OPS
exec cargo test -q --release -p slicepool-core --test soak -- --nocapture
