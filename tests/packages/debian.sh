#!/bin/bash
# Builds the Debian packages, checks them with lintian, installs them in a fresh root, uses them, and removes them.
#
#   debian.sh [BUILT]      BUILT: a folder with the .deb files, instead of building them
#
# Needs root, debhelper, lintian, chrpath and debootstrap; exit status 77 without. Prints seconds of each step. SUITE (bookworm) is the root's.
set -eu
source=$(cd "$(dirname "$0")/../.." && pwd)
suite=${SUITE:-bookworm} mirror=${MIRROR:-http://deb.debian.org/debian}
for program in dpkg-buildpackage dh lintian chrpath debootstrap; do
    command -v $program >/dev/null || { echo "no $program"; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo "not root"; exit 77; }
folder=$(mktemp -d)
root=$folder/root
trap 'umount "$root/proc" 2>/dev/null || true; rm -rf "$folder"' EXIT

step() # NAME COMMAND...
{
    local name=$1 start=$SECONDS
    shift
    "$@" >"$folder/log" 2>&1 || {
        tail -30 "$folder/log"
        echo "failed: $name"
        exit 1
    }
    echo "$name: $((SECONDS - start)) s"
}

build()
{
    git -c safe.directory='*' clone -q "$source" "$folder/lather" && cd "$folder/lather" && dpkg-buildpackage -b -us -uc
}

in_root()
{
    DEBIAN_FRONTEND=noninteractive LC_ALL=C chroot "$root" "$@"
}

fresh_root()
{
    debootstrap --variant=minbase "$suite" "$root" "$mirror" && mount -t proc proc "$root/proc" && cp /etc/resolv.conf "$root/etc/" &&
        list_files >"$folder/before" && mkdir "$root/packages" && cp "$packages"/*.deb "$root/packages/"
}

# Without what the package manager and the system keep for themselves.
list_files()
{
    (cd "$root" && find . -xdev \( -path ./proc -o -path ./tmp -o -path ./packages -o -path ./var -o -path ./run -o -path ./dev \) -prune -o -print | sort)
}

install()
{
    in_root apt-get update -q && in_root sh -c 'apt-get install -y -q --no-install-recommends /packages/*.deb dataset-fashion-mnist gcc libc6-dev pkg-config'
}

remove()
{
    in_root sh -c "apt-get purge -y -q 'lather-tools' 'liblather*' && apt-get autoremove --purge -y -q"
    list_files >"$folder/after"
    comm -13 "$folder/before" "$folder/after" | grep -i lather && return 1
    return 0
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
step "debootstrap $suite" fresh_root
step "apt install" install
for test in "$source"/debian/tests/*; do
    name=$(basename "$test")
    [ "$name" = control ] || step "autopkgtest $name" run_test "$name"
done
step "manual pages" in_root sh -c 'test -e /usr/share/man/man1/lather-pack.1.gz && test -e /usr/share/man/man1/train_gpt.1.gz'
step "purge" remove
