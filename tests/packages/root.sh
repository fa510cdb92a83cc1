# A fresh root by debootstrap for tests that install: sourced, with $source, the repository, set.
# Needs root and debootstrap; exit status 77 without. SUITE (bookworm) is the root's.
# shellcheck shell=bash disable=SC2154
suite=${SUITE:-bookworm} mirror=${MIRROR:-http://deb.debian.org/debian}
command -v debootstrap >/dev/null || { echo "no debootstrap"; exit 77; }
[ "$(id -u)" = 0 ] || { echo "not root"; exit 77; }
folder=$(mktemp -d)
root=$folder/root
trap 'umount "$root/proc" 2>/dev/null || true; rm -rf "$folder"' EXIT

# Prints the seconds of a step.
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

in_root()
{
    DEBIAN_FRONTEND=noninteractive LC_ALL=C chroot "$root" "$@"
}

# Without what the package manager and the system keep for themselves.
list_files()
{
    (cd "$root" && find . -xdev \( -path ./proc -o -path ./tmp -o -path ./packages -o -path ./var -o -path ./run -o -path ./dev \) -prune -o -print | sort)
}

make_root()
{
    debootstrap --variant=minbase "$suite" "$root" "$mirror" && mount -t proc proc "$root/proc" && cp /etc/resolv.conf "$root/etc/" &&
        list_files >"$folder/before"
}

# Fails and prints the files if some are left that mention the library.
nothing_is_left()
{
    list_files >"$folder/after"
    ! comm -13 "$folder/before" "$folder/after" | grep -i lather
}

clone() # FOLDER
{
    git -c safe.directory='*' clone -q "$source" "$1"
}

