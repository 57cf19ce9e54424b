#!/bin/sh
# What is installed is enough: builds an example with nothing but the installed files and
# pkg-config. Arguments: build directory, C++ compiler, source file, further compiler flags.
set -eu
build=$1 compiler=$2 source=$3
shift 3
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT
DESTDIR=$prefix cmake --install "$build" --component libpool >"$prefix/log"
pc=$(find "$prefix" -name cxlpool.pc)
# The tree is under DESTDIR, so its prefix is too.
root=$(sed -n 's/^prefix=//p' "$pc")
sed -i "s|$root|$prefix$root|g" "$pc"
PKG_CONFIG_PATH=$(dirname "$pc")
export PKG_CONFIG_PATH
# shellcheck disable=SC2046
"$compiler" -Wall -Wextra -Werror "$@" "$source" -o "$prefix/example" \
  $(pkg-config --cflags --libs cxlpool)
if CXLPOOL_SOCKET=$prefix/none.sock "$prefix/example" 2>"$prefix/err"; then
  echo "the example found an agent where there is none" >&2
  exit 1
fi
grep -q 'start cxlpool-agent or set CXLPOOL_SOCKET' "$prefix/err"
