#!/bin/bash
# The C programs under AddressSanitizer with UndefinedBehaviorSanitizer, and under ThreadSanitizer, which see into the
# library too: it is built with them. Needs nightly Rust with its sources, and a C compiler with sanitizers.
#
#     tests/sanitize.sh                           both, every program
#     tests/sanitize.sh address|thread [NAME...]  one of them, some programs: tests/c/NAME.c
#
# One line a program. Before, a canary for each: a program that makes the library write past a block of memory, and one
# that lets two threads into it at once, have to be reported.
set -u
cd "$(dirname "$0")/.." || exit 1
build=${SLICEPOOL_SANITIZE_TARGET:-$PWD/target/sanitize}
toolchain=${SLICEPOOL_NIGHTLY:-nightly}
compiler=${CC:-cc}
host=$(rustc -vV | sed -n 's/^host: //p')
lists=tests/tests/c_sanitizers.rs

# skip WHAT: says what to install, and fails where everything is required.
skip() {
    echo "SKIPPED: $1"
    [ "${SLICEPOOL_REQUIRE:-}" != all ]
    exit
}

# flags SANITIZER: those of the C compiler. ThreadSanitizer wants to lie where older ones expect it.
flags() {
    case $1 in
    address) echo "-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer" ;;
    thread) echo "-fsanitize=thread -fno-omit-frame-pointer" ;;
    esac
}

# library SANITIZER: the file that Cargo makes.
library() { echo "$build/$1/$host/debug/libslicepool.a"; }

# list NAME: what a list of names in the tests under valgrind holds.
list() { sed -n "/^const $1: /,/^\];/s/^ *\"\(.*\)\",*$/\1/p" $lists; }

# compile SANITIZER SOURCE PROGRAM
compile() {
    # shellcheck disable=SC2046
    "$compiler" -std=c11 -g -O1 $(flags "$1") -Iinclude -Itests/c "$2" "$(library "$1")" "$build/$1/names.o" \
        -lpthread -ldl -o "$3"
}

# under SANITIZER PROGRAM [ARGUMENT...]: the layout of memory is not random, as some sanitizers cannot live with all of it.
under() {
    sanitizer=$1
    shift
    export ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1
    # A child that was forked beside threads goes on.
    export TSAN_OPTIONS=die_after_fork=0:halt_on_error=1:second_deadlock_stack=1
    if setarch -R true 2>/dev/null; then setarch -R timeout 600 "$@"; else timeout 600 "$@"; fi
}

# one SANITIZER NAME: compiles and runs a program.
one() {
    begin=$SECONDS
    log=$build/$1/$2.log
    program=$build/$1/$2
    if ! compile "$1" "tests/c/$2.c" "$program" >"$log" 2>&1; then
        echo "$1 $2: DOES NOT COMPILE (see $log)"
        return 1
    fi
    mapfile -t tests < <("$program" --list | grep -vxFf "$build/left-out")
    if under "$1" "$program" --divide "$divide" "${tests[@]}" >"$log" 2>&1; then
        echo "$1 $2: ${#tests[@]} tests, $((SECONDS - begin)) s"
    else
        echo "$1 $2: FAILED (see $log)"
        grep -E -m 3 'WARNING|ERROR|runtime error|FATAL|does not hold' "$log"
        return 1
    fi
}

# canary SANITIZER WORDS: a program that makes the library do wrong has to be reported, in Rust code and in these words.
canary() {
    log=$build/$1/canary.log
    if ! compile "$1" "$build/canary_$1.c" "$build/$1/canary" >"$log" 2>&1; then
        echo "canary $1: DOES NOT COMPILE (see $log)"
        return 1
    fi
    if under "$1" "$build/$1/canary" >"$log" 2>&1; then
        echo "canary $1: SURVIVED"
        return 1
    fi
    if grep -q "$2" "$log" && grep -q '\.rs:' "$log"; then
        echo "canary $1: noticed"
    else
        echo "canary $1: ended without a report (see $log)"
        return 1
    fi
}

# From xargs: one program, in the environment of those who asked.
if [ "${1:-}" = one ]; then
    divide=$4
    one "$2" "$3"
    exit
fi

command -v rustup >/dev/null && rustc "+$toolchain" --version >/dev/null 2>&1 ||
    skip "nightly Rust is missing; rustup toolchain install nightly"
[ -d "$(rustc "+$toolchain" --print sysroot)/lib/rustlib/src/rust/library/core" ] ||
    skip "the sources of Rust's core are missing; rustup component add --toolchain $toolchain rust-src"

case ${1:-} in
address | thread) sanitizers=$1 && shift ;;
"") sanitizers="address thread" ;;
*) echo "address or thread, not $1" >&2 && exit 2 ;;
esac

# programs SANITIZER: all that are run there under any tool, but for threads only those that are run under valgrind.
programs() {
    case $1 in
    address) cat $lists ;;
    thread) sed -n '/^programs! { run_under_valgrind:/,/^}/p' $lists ;;
    esac | sed -n 's|.*"tests/c/\(.*\)\.c".*|\1|p' | sort -u
}

mkdir -p "$build"
{ list TIMED && list NOT_SANITIZED; } >"$build/left-out"
[ "$(wc -l <"$build/left-out")" -gt 3 ] || { echo "the lists in $lists are not as they were" >&2 && exit 1; }

# Two threads in an allocator that was told there would be one.
cat >"$build/canary_thread.c" <<'END'
#include "check.h"
#include "shorthand.h"

static void *churn(void *allocator) {
  for (int i = 0; i < 1000; i++) {
    slicepool_request request = SLICEPOOL_REQUEST_INIT;
    slicepool_slice slice = SLICEPOOL_SLICE_INIT;
    request.size = 64;
    if (slicepool_allocate(allocator, &request, &slice) == SLICEPOOL_OK) (void)slicepool_free(allocator, slice.id);
  }
  return NULL;
}

int main(void) {
  slicepool_device table = SLICEPOOL_DEVICE_INIT;
  OK(slicepool_host_device(&table));
  slicepool_pool_options pool = sliced(MIB, 0, 0, 64);
  slicepool_allocator_config config = config_for(&pool, 1);
  config.flags = SLICEPOOL_ALLOCATOR_EXTERNALLY_SYNCHRONIZED;
  slicepool_allocator *allocator = create_of(&table, config);
  pthread_t threads[2];
  for (int i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, churn, allocator) == 0);
  for (int i = 0; i < 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  return 0;
}
END

# Host memory of half the size that was asked for.
cat >"$build/canary_address.c" <<'END'
#include "check.h"
#include "shorthand.h"

static void *too_little(void *user_data, uint64_t size, uint64_t alignment) {
  void *memory = NULL;
  (void)user_data;
  if (alignment < sizeof memory) alignment = sizeof memory;
  CHECK(posix_memalign(&memory, alignment, size / 2) == 0);
  return memory;
}

static void leave(void *user_data, void *memory, uint64_t size, uint64_t alignment) {
  (void)user_data, (void)memory, (void)size, (void)alignment;
}

int main(void) {
  slicepool_device table = SLICEPOOL_DEVICE_INIT;
  OK(slicepool_host_device(&table));
  slicepool_host host = SLICEPOOL_HOST_INIT;
  host.allocate = too_little;
  host.deallocate = leave;
  slicepool_pool_options pool = sliced(MIB, 0, 0, 64);
  slicepool_allocator_config config = config_for(&pool, 1);
  config.host = &host;
  (void)create_of(&table, config);
  return 0;
}
END

# What newer compilers than that of the programs call.
cat >"$build/names.c" <<'END'
#include <string.h>
void *__tsan_memcpy(void *to, const void *from, size_t bytes) { return memcpy(to, from, bytes); }
void *__tsan_memmove(void *to, const void *from, size_t bytes) { return memmove(to, from, bytes); }
void *__tsan_memset(void *to, int byte, size_t bytes) { return memset(to, byte, bytes); }
END

status=0
for sanitizer in $sanitizers; do
    mkdir -p "$build/$sanitizer"
    # As few rounds as the tests under valgrind have: ThreadSanitizer is slower than AddressSanitizer.
    case $sanitizer in address) divide=200 ;; thread) divide=2000 ;; esac
    echo 'int main(void) { return 0; }' >"$build/nothing.c"
    # shellcheck disable=SC2046
    "$compiler" $(flags "$sanitizer") "$build/nothing.c" -o "$build/nothing" 2>/dev/null && under "$sanitizer" "$build/nothing" ||
        skip "$compiler has no working -fsanitize=$sanitizer; apt-get install gcc or clang, libasan, libtsan"
    # Without checks of the programs' own compiler in it.
    case $sanitizer in
    thread) "$compiler" -c -O1 -fno-builtin "$build/names.c" -o "$build/thread/names.o" || exit 1 ;;
    address) "$compiler" -c -x c /dev/null -o "$build/address/names.o" || exit 1 ;;
    esac
    echo "$sanitizer: the library"
    RUSTFLAGS="-Zsanitizer=$sanitizer -Awarnings" cargo "+$toolchain" rustc -q -p slicepool-capi --lib --crate-type staticlib \
        --target "$host" -Zbuild-std=core,alloc --target-dir "$build/$sanitizer" || exit 1
    case $sanitizer in
    address) canary address "heap-buffer-overflow" || status=1 ;;
    thread) canary thread "data race" || status=1 ;;
    esac
    processors=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)
    if [ $# -gt 0 ]; then printf '%s\n' "$@"; else programs "$sanitizer"; fi >"$build/programs"
    [ -s "$build/programs" ] || { echo "the lists in $lists are not as they were" >&2 && exit 1; }
    xargs -P "$processors" -I{} tests/sanitize.sh one "$sanitizer" {} $divide <"$build/programs" || status=1
done
exit $status
