#!/bin/bash
# ./check: counts of stages that run concurrently; the files that clang-tidy reads. $1: source tree.
# Rows are sentences; the last line counts them.
set -u
source=$1 root=$1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
rows_passed=0 rows_failed=0

# shellcheck source=../../tools/check_rows.sh
. "$source/tools/check_rows.sh"
# shellcheck source=../../tools/check_stages.sh
. "$source/tools/check_stages.sh"

tidy() # FILES-IN-A-PROCESS FILE...
{
    echo "tidy $*"
}

row() # NAME COMMAND...
{
    if [ "$2" = tidy ]; then
        "${@:2}"
    else
        echo "row $1"
    fi
}

equals() # SENTENCE SAID WANTED
{
    if [ "$2" = "$3" ]; then
        rows_passed=$((rows_passed + 1))
    else
        rows_failed=$((rows_failed + 1))
        printf 'failed: %s\n%s\n' "$1" "$2"
    fi
}

says() # SENTENCE BUILT WANTED
{
    # shellcheck disable=SC2034
    built=$2
    equals "$1" "$(tidy_sources | grep -v "^row ")" "$3"
}

passes() { passed=$((passed + 1)); }
fails() { failed=$((failed + 2)); }
ends() { kill -KILL "$BASHPID"; }

counts() # SENTENCE PASSED-FAILED-SKIPPED STAGE FUNCTION...
{
    # shellcheck disable=SC2034
    passed=0 failed=0 skipped=0 only='' stage_seconds=''
    concurrently "${@:3}" >/dev/null
    stage here passes >/dev/null
    together >/dev/null 2>&1
    equals "$1" "$passed-$failed-$skipped" "$2"
}

counts "stages that run concurrently are counted" 2-2-0 first passes second fails
counts "  one that is killed is a failure" 1-1-0 first passes second ends

mkdir -p "$work/build-check/main" && cd "$work" || exit 1
folder=$source/build-check/main
cat >build-check/main/compile_commands.json <<END
[
  {"directory": "$folder", "command": "cc -c ../../src/b.c", "file": "../../src/b.c", "output": "b.o"},
  {"directory": "$folder", "file": "../../src/b.c", "output": "b.pic.o"},
  {"directory": "$folder", "file": "../../src/kernels.cu"},
  {"directory": "$folder", "file": "../../tests/a.c"},
  {"directory": "$folder", "file": "../../models/net/a.c"}
]
END
says "clang-tidy reads each compiled source once" true "tidy 16 models/net/a.c src/b.c"
says "  and none without a build" false "  skipped  clang-tidy: the build failed"
echo "$rows_passed passed, $rows_failed failed, 0 skipped"
[ "$rows_failed" = 0 ]
