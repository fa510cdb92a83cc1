#!/bin/bash
# ./check: counts of stages that run concurrently; the stage that runs clang-tidy on changed files: the files that it takes, and the
# reasons to skip it. $1: source tree.
# Rows are sentences; the last line counts them.
set -u
source=$1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
rows_passed=0 rows_failed=0

# shellcheck source=../../tools/check_rows.sh
. "$source/tools/check_rows.sh"
# shellcheck source=../../tools/check_stages.sh
. "$source/tools/check_stages.sh"

tidy() # NAME FILE...
{
    echo "tidy $*"
}

row() # NAME COMMAND...
{
    echo "row $1"
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
    equals "$1" "$(tidy_changed | grep -v "^row ")" "$3"
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

commit() # FILE...
{
    git add "$@" && git -c user.name=a -c user.email=a@b commit --quiet --message "$*"
}

name="clang-tidy on files changed last"
export GIT_CEILING_DIRECTORIES=${work%/*}
mkdir -p "$work/src" && cd "$work" || exit 1
says "without git" true "  skipped  $name: there is no git history"
git init --quiet . && touch README src/a.c src/b.c src/c.h
says "without a commit" true "  skipped  $name: there is no git history"
commit README src/a.c
says "a changed file" true "tidy $name src/a.c"
says "without a build" false "  skipped  $name: the build failed"
for i in 1 2 3 4 5 6 7; do
    echo $i >src/c.h && commit src/c.h
done
says "  seven commits later" true "tidy $name src/a.c"
echo 8 >src/c.h && commit src/c.h
says "  eight commits later" true "  none     $name: the last 8 commits of sources change no .c file"
commit src/b.c
says "another file" true "tidy $name src/b.c"
git rm --quiet --cached src/b.c && rm src/b.c && git -c user.name=a -c user.email=a@b commit --quiet --message b
says "  which is gone" true "  none     $name: the last 8 commits of sources change no .c file"
echo "$rows_passed passed, $rows_failed failed, 0 skipped"
[ "$rows_failed" = 0 ]
