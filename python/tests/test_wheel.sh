#!/bin/sh
# Builds a wheel, installs it into a fresh environment and runs the package's tests from there.
#
#   test_wheel.sh [PYTHON [SETTING]]     SETTING is one of backend.py: library=PATH, build=FOLDER
#
# PYTHON, a venv's too, must have pip and venv; its numpy and torch are used. Exit status 77 without pip.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
python=${1:-python3}
"$python" -c 'import venv, pip' 2>/dev/null || exit 77
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
unset PYTHONPATH LATHER_LIBRARY
"$python" -m pip wheel --no-deps --no-build-isolation --disable-pip-version-check -q -w "$folder" \
    ${2:+"--config-settings=$2"} "$root/python"
"$python" -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --no-index --disable-pip-version-check -q "$folder"/lather-*.whl
site=$("$folder/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
cd "$folder"
"$folder/venv/bin/python" -c "
import lather, os
assert os.path.dirname(lather.library_path) == os.path.dirname(lather.__file__) and lather.__file__.startswith('$folder'), lather.library_path
print(lather.__version__, lather.relu(lather.tensor([-1.0, 2.0])))"
# The packages of PYTHON's own environment, after those of the fresh one.
"$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$site/outer.pth"
for name in package tensor nn numpy torch; do
    cp "$root/python/tests/test_$name.py" .
    case $name in
    numpy | torch) "$folder/venv/bin/python" -c "import $name" 2>/dev/null || { echo "no $name"; continue; } ;;
    esac
    "$folder/venv/bin/python" "test_$name.py" >out 2>&1 || { cat out; exit 1; }
    echo "test_$name.py: $(grep '^Ran' out)"
done
for tool in report doctor; do
    "$folder/venv/bin/lather-$tool" --help | grep -q '^usage:'
done
"$folder/venv/bin/python" -m pip uninstall -q -y lather
[ ! -e "$site/lather" ] && [ ! -e "$folder/venv/bin/lather-report" ] || { echo "left after uninstalling:"; find "$site/lather"; exit 1; }
echo "wheel: built, installed, tested and removed"
