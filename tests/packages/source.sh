#!/bin/bash
# Installs from source, and as a Python wheel, in a fresh root, trains with either, and removes them.
#
# Needs root and debootstrap; exit status 77 without. Prints seconds of each step. SUITE (bookworm) is the root's.
set -eu
source=$(cd "$(dirname "$0")/../.." && pwd)
. "$source/tests/packages/root.sh"

train()
{
    in_root sh -c "cd /tmp && train_resnet50 --data fashion-mnist --arch resnet10 --width 8 --optim shampoo --max-steps 20 --output run"
}

uninstall()
{
    in_root ninja -C /build uninstall && ! find "$root/usr/local" -type f | grep .
}

# The network of the guide.
train_in_python()
{
    sed -n '/^cat >net.py/,/^python3 net.py/p' "$source/docs/guides/python.md" | sed 's,^python3,/wheel/bin/python,' >"$root/tmp/net.sh" &&
        grep -q '^/wheel/bin/python net.py' "$root/tmp/net.sh" && in_root sh -c 'cd /tmp && sh net.sh'
}

remove_wheel()
{
    in_root /wheel/bin/pip uninstall -y lather && ! in_root find /wheel/lib -ipath '*lather*' | grep .
}

step "debootstrap $suite" make_root
step "clone" clone "$root/lather"
step "apt update" in_root apt-get update -q
step "tools/packages install build data" in_root sh -c 'cd /lather && tools/packages install build data'
step "meson setup" in_root meson setup /build /lather -Dtests=disabled -Dcuda=disabled
step "meson install" in_root meson install -C /build --quiet
step "training" train
step "ninja uninstall" uninstall
step "apt install python3-venv" in_root apt-get install -y -q --no-install-recommends python3-venv
step "pip wheel" in_root sh -c 'python3 -m venv /builder && /builder/bin/pip wheel --no-deps -w /wheels /lather/python'
step "pip install" in_root sh -c 'python3 -m venv /wheel && /wheel/bin/pip install --no-index /wheels/lather-*.whl'
step "a network in Python" train_in_python
step "pip uninstall" remove_wheel
