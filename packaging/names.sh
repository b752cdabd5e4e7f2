#!/bin/sh
# Says how the files of the library are called on a platform, as assignments for a shell:
#
#     packaging/names.sh 0.1.0                        # here
#     packaging/names.sh 0.1.0 aarch64-apple-darwin   # for a target of Rust
#
#     static        the static library
#     built         the shared library as Cargo writes it; empty where there is none
#     shared        the same as it is installed: a file with the whole version in its name
#     runtime       the name that programs look for when they start: a link to `shared`, or the same
#     link          the name that the linker looks for: a link to `runtime`, or a library of its own for that
#     runtime_name  what programs linked with it say they need
set -eu

version=${1:?usage: names.sh VERSION [TARGET]}
target=${2:-}

# A suffix such as -rc.1 is for people.
version=${version%%[-+]*}
major=${version%%.*}
minor=${version#*.}
minor=${minor%%.*}
# Before 1.0 every minor version may break programs.
if [ "$major" = 0 ]; then interface=0.$minor; else interface=$major; fi

case ${target:-$(uname -s)} in
*-windows-msvc*)
  echo "names.sh: no names for $target: use the files that Cargo builds" >&2
  exit 1
  ;;
*-apple-* | Darwin)
  built=libslicepool.dylib
  shared=libslicepool.$version.dylib
  runtime=libslicepool.$interface.dylib
  link=libslicepool.dylib
  runtime_name=@rpath/$runtime
  ;;
*-windows-gnu* | MINGW* | MSYS*)
  built=slicepool.dll
  shared=slicepool.dll
  runtime=slicepool.dll
  link=libslicepool.dll.a
  runtime_name=$runtime
  ;;
*-linux-* | *-linux | *-android* | *bsd* | *-dragonfly* | *-illumos* | *-solaris* | Linux | *BSD | DragonFly | SunOS)
  built=libslicepool.so
  shared=libslicepool.so.$version
  runtime=libslicepool.so.$interface
  link=libslicepool.so
  runtime_name=$runtime
  ;;
*-none-* | *-none)
  built= shared= runtime= link= runtime_name=
  ;;
*)
  echo "names.sh: no names for ${target:-$(uname -s)}" >&2
  exit 1
  ;;
esac

cat <<END
static=libslicepool.a
built=$built
shared=$shared
runtime=$runtime
link=$link
runtime_name=$runtime_name
END
