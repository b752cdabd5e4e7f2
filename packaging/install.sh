#!/bin/sh
# Installs what `make` has built, or removes it again. Called by `make install` and `make uninstall`, which say:
#
#     PREFIX      where to; absolute, or relative to here
#     LIBDIR      for libraries, slicepool.pc and the CMake package; absolute, or relative to PREFIX
#     INCLUDEDIR  for headers; likewise
#     DESTDIR     put in front of every path, and written into no file: for those who make packages
#     BUILD       the folder of the libraries that were built
#     VERSION     of the library
#     TARGET      of Rust, if the libraries are not for this machine
#     URL         where the library comes from
set -eu
umask 022

here=$(dirname "$0")
newline='
'

fail() {
  echo "install.sh: $1" >&2
  exit 1
}

# directory NAME VALUE BASE: the absolute path of VALUE, which may be relative to BASE; without slashes at its end.
directory() {
  path=$2
  case $path in
  '') fail "$1 is empty" ;;
  *"$newline"*) fail "$1 has a line break in it" ;;
  /*) ;;
  *) path=$3/$path ;;
  esac
  path=$(printf '%s' "$path" | sed -e 's|//*|/|g' -e 's|/$||')
  case $path/ in
  */../* | */./*) fail "$1 must not have . or .. in it: $2" ;;
  esac
  printf '%s' "$path"
}

# below BASE PATH: whether PATH is BASE or lies below it.
below() {
  case $2/ in
  "$1"/*) return 0 ;;
  *) return 1 ;;
  esac
}

# up PATH: as many ../ as a relative path has parts.
up() {
  printf '%s' "$1" | sed -e 's|[^/][^/]*|..|g'
}

names=$("$here/names.sh" "$VERSION" "$TARGET") || exit 1
eval "$names"

# Nothing is below the root but what begins with a slash, so "/" is the empty prefix.
prefix=$(directory PREFIX "$PREFIX" "$PWD")
libdir=$(directory LIBDIR "$LIBDIR" "$prefix")
includedir=$(directory INCLUDEDIR "$INCLUDEDIR" "$prefix")
# Loaders of Windows look for libraries beside the program.
case $shared in
*.dll) shareddir=$prefix/bin ;;
*) shareddir=$libdir ;;
esac
packagedir=$libdir/cmake/slicepool

# Paths as slicepool.pc and the CMake package write them: from where they lie, if that is below the prefix.
pc_prefix=$prefix
pc_libdir=$libdir
pc_includedir=$includedir
cmake_includedir=$includedir
cmake_shareddir=$shareddir
if below "$prefix" "$includedir"; then pc_includedir="\${prefix}${includedir#"$prefix"}"; fi
if below "$prefix" "$libdir"; then
  to_prefix=$(up "${libdir#"$prefix"}")
  pc_prefix="\${pcfiledir}/..$to_prefix"
  pc_libdir="\${prefix}${libdir#"$prefix"}"
  if below "$prefix" "$includedir"; then
    cmake_includedir="\${_slicepool_libdir}$to_prefix${includedir#"$prefix"}"
  fi
  cmake_shareddir="\${_slicepool_libdir}$to_prefix${shareddir#"$prefix"}"
fi

# fill TEMPLATE FILE: writes a file from its template.
fill() {
  script=
  replace() { script="$script${newline}s|@$1@|$(printf '%s' "$2" | sed 's/[\\&|]/\\&/g')|g"; }
  major=${VERSION%%.*}
  minor=${VERSION#*.}
  replace VERSION "$VERSION"
  replace MAJOR "$major"
  replace MINOR "${minor%%.*}"
  replace URL "$URL"
  replace PC_PREFIX "$pc_prefix"
  replace PC_LIBDIR "$pc_libdir"
  replace PC_INCLUDEDIR "$pc_includedir"
  replace CMAKE_INCLUDEDIR "$cmake_includedir"
  replace CMAKE_SHARED "$cmake_shareddir/$shared"
  replace STATIC "$static"
  replace LINK "$link"
  replace RUNTIME_NAME "$runtime_name"
  sed "$script" "$here/$1" >"$2.new"
  chmod 644 "$2.new"
  mv -f "$2.new" "$2"
}

# A folder that is there already keeps its mode, which may be the administrator's wish.
folder() {
  mkdir -p "$DESTDIR$1"
}

# leave PATH: removes a folder if there is nothing in it.
leave() {
  if [ -d "$DESTDIR$1" ]; then rmdir "$DESTDIR$1" 2>/dev/null || true; fi
}

# Headers, by their paths below include.
headers() {
  (cd "$here/../include" && find . -type f \( -name '*.h' -o -name '*.hpp' \)) | sed 's|^\./||' | sort
}

install_all() {
  [ -f "$BUILD/$static" ] || fail "there is no $BUILD/$static: run make first"
  folder "$libdir/pkgconfig"
  folder "$packagedir"
  folder "$includedir"
  install -m 644 "$BUILD/$static" "$DESTDIR$libdir/$static"
  # Some targets have no shared libraries.
  if [ -n "$shared" ] && [ -f "$BUILD/$built" ]; then
    folder "$shareddir"
    install -m 755 "$BUILD/$built" "$DESTDIR$shareddir/$shared"
    if [ "$runtime" != "$shared" ]; then
      ln -sfn "$shared" "$DESTDIR$shareddir/$runtime"
      ln -sfn "$runtime" "$DESTDIR$libdir/$link"
    else
      install -m 644 "$BUILD/$link" "$DESTDIR$libdir/$link"
    fi
  fi
  headers | while IFS= read -r header; do
    folder "$includedir/$(dirname "$header")"
    install -m 644 "$here/../include/$header" "$DESTDIR$includedir/$header"
  done
  fill slicepool.pc.in "$DESTDIR$libdir/pkgconfig/slicepool.pc"
  fill slicepoolConfig.cmake.in "$DESTDIR$packagedir/slicepoolConfig.cmake"
  fill slicepoolConfigVersion.cmake.in "$DESTDIR$packagedir/slicepoolConfigVersion.cmake"
  echo "slicepool $VERSION is in $DESTDIR$libdir and $DESTDIR$includedir"
}

uninstall_all() {
  rm -f "$DESTDIR$libdir/$static"
  if [ -n "$shared" ]; then
    rm -f "$DESTDIR$shareddir/$shared" "$DESTDIR$shareddir/$runtime" "$DESTDIR$libdir/$link"
  fi
  headers | while IFS= read -r header; do rm -f "$DESTDIR$includedir/$header"; done
  (cd "$here/../include" && find . -depth -type d ! -name .) | while IFS= read -r folder; do leave "$includedir/$folder"; done
  rm -f "$DESTDIR$libdir/pkgconfig/slicepool.pc"
  rm -f "$DESTDIR$packagedir/slicepoolConfig.cmake" "$DESTDIR$packagedir/slicepoolConfigVersion.cmake"
  leave "$packagedir"
  leave "$libdir/cmake"
  leave "$libdir/pkgconfig"
}

case ${1:-} in
install) install_all ;;
uninstall) uninstall_all ;;
*) fail "usage: install.sh install | uninstall" ;;
esac
