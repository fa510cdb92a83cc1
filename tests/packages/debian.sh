#!/bin/bash
# Builds the Debian packages, checks them with lintian, installs them in a fresh root, uses them, and removes them.
#
#   debian.sh [BUILT]      BUILT: a folder with the .deb files, instead of building them
#
# Needs root, debhelper, lintian, chrpath and debootstrap; exit status 77 without. Prints seconds of each step. SUITE (bookworm) is the root's.
set -eu
source=$(cd "$(dirname "$0")/../.." && pwd)
for program in dpkg-buildpackage dh lintian chrpath; do
    command -v $program >/dev/null || { echo "no $program"; exit 77; }
done
. "$source/tests/packages/root.sh"

build()
{
    clone "$folder/lather" && cd "$folder/lather" && dpkg-buildpackage -b -us -uc
}

root_with_packages()
{
    make_root && mkdir "$root/packages" && cp "$packages"/*.deb "$root/packages/"
}

install()
{
    in_root apt-get update -q && in_root sh -c 'apt-get install -y -q --no-install-recommends /packages/*.deb dataset-fashion-mnist gcc libc6-dev pkg-config'
}

remove()
{
    in_root sh -c "apt-get purge -y -q 'lather-tools' 'liblather*' && apt-get autoremove --purge -y -q" && nothing_is_left
}

run_test() # NAME
{
    cp "$source/debian/tests/$1" "$root/packages/" && in_root "/packages/$1"
}

packages=$folder
if [ $# -gt 0 ]; then
    packages=$1
else
    step "dpkg-buildpackage" build
fi
step "lintian" lintian --fail-on error,warning "$packages"/*.deb
step "debootstrap $suite" root_with_packages
step "apt install" install
for test in "$source"/debian/tests/*; do
    name=$(basename "$test")
    [ "$name" = control ] || step "autopkgtest $name" run_test "$name"
done
step "manual pages" in_root sh -c 'test -e /usr/share/man/man1/lather-pack.1.gz && test -e /usr/share/man/man1/train_gpt.1.gz'
step "purge" remove
