#!/bin/bash
# A build without cmocka has next to no tests: meson test and ./check must not end well, unless asked.
# $1: the source tree. Rows are sentences; the last line counts them.
set -u
source=$1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
# Neither pkg-config nor CMake finds anything.
mkdir "$work/bin" && printf '#!/bin/sh\nexit 1\n' >"$work/bin/cmake" && chmod +x "$work/bin/cmake"
export PKG_CONFIG_LIBDIR=$work/none PATH=$work/bin:$PATH
passed=0 failed=0 only='' full=false report=''

row_holds() # SENTENCE COMMAND...
{
    local name=$1
    shift
    if "$@" >"$work/out" 2>&1; then
        rows_passed=$((rows_passed + 1))
    else
        rows_failed=$((rows_failed + 1))
        echo "failed: $name"
        tail -5 "$work/out"
    fi
}

rows_passed=0 rows_failed=0
fails()
{
    ! "$@"
}

configured() # DIRECTORY OPTION...
{
    local dir=$1
    shift
    meson setup "$dir" "$source" -Dcpu=disabled -Dmpi=disabled -Dcuda=disabled "$@"
}

# shellcheck source=../../tools/check_stages.sh
. "$source/tools/check_stages.sh"

says() # FAILED-BEFORE TESTS: runs the last message of ./check; its count of failures is in $failed
{
    failed=$1 tests=$2
    say_what_was_not_tested "$work/auto" >"$work/said"
    grep -q "ALMOST NOTHING WAS TESTED.*libcmocka-dev" "$work/said"
}

row_holds "it configures" configured "$work/auto"
row_holds "meson test fails" fails meson test -C "$work/auto" --no-rebuild \
    "almost nothing is tested, as cmocka (libcmocka-dev) is missing"
row_holds "  and names the missing library" grep -q "as cmocka (libcmocka-dev) is missing" "$work/auto/meson-logs/testlog.txt"
row_holds "./check reports it" says 0 auto
row_holds "  and fails" [ "$failed" = 1 ]
row_holds "./check --without-tests reports it" says 0 disabled
row_holds "  and does not fail" [ "$failed" = 0 ]
if [ "${LATHER_TEST_FULL-}" = 1 ]; then
    row_holds "with -Dtests=disabled" meson configure "$work/auto" -Dtests=disabled
    row_holds "  nothing fails for that" fails grep -rq "almost nothing is tested" <(meson test -C "$work/auto" --list 2>&1)
fi
echo 'rule cmocka' >>"$work/auto/build.ninja"
row_holds "with cmocka nothing is said" fails says 0 auto
echo "$rows_passed passed, $rows_failed failed, 0 skipped"
[ "$rows_failed" = 0 ]
