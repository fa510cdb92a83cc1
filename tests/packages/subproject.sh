#!/bin/bash
# An archive of a release as a subproject of Meson, and fetched by CMake, as docs/guides/install.md says.
#
#   subproject.sh ARCHIVE WRAP
set -eu
source=$(cd "$(dirname "$0")/../.." && pwd)
archive=$(realpath "$1") wrap=$(realpath "$2")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
guide=$source/docs/guides/install.md

block() # LANGUAGE
{
    sed -n "/^\`\`\`$1\$/,/^\`\`\`\$/p" "$guide" | sed '1d; $d'
}

mkdir -p "$folder/meson/subprojects/packagefiles" "$folder/cmake"
cp "$source/examples/arrays.c" "$folder/meson/mine.c"
cp "$source/examples/arrays.c" "$folder/cmake/mine.c"
cp "$wrap" "$folder/meson/subprojects/lather.wrap"
cp "$archive" "$folder/meson/subprojects/packagefiles/"
{
    echo "project('mine', 'c')"
    block meson
} >"$folder/meson/meson.build"
meson setup "$folder/meson/build" "$folder/meson" --wrap-mode forcefallback
ninja -C "$folder/meson/build" mine
"$folder/meson/build/mine"
command -v cmake >/dev/null || exit 0
{
    printf 'cmake_minimum_required(VERSION 3.19)\nproject(mine C)\n'
    block cmake | sed "s,lather-[0-9.]*tar.gz,$(basename "$archive"),; s,\${CMAKE_SOURCE_DIR}/lather,$(dirname "$archive")/lather,"
    printf 'add_executable(mine mine.c)\ntarget_link_libraries(mine lather::lather m)\n'
} >"$folder/cmake/CMakeLists.txt"
cmake -S "$folder/cmake" -B "$folder/cmake/build"
cmake --build "$folder/cmake/build"
"$folder/cmake/build/mine"
