#!/bin/bash
# tools/gpu_check on folders whose programs are scripts: where it looks for libraries, what it writes, when it
# stops. $1: gpu_check. Rows are sentences; the last line counts them.
set -u
check=$(readlink -f "$1")
here=$(dirname "$(readlink -f "$0")")
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

row() # SENTENCE COMMAND...
{
    local name=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL $name: $(tail -5 "$work/out" | tr '\n' '/')"
    fi
}

put() # FILE LINE...
{
    local file=$1
    shift
    mkdir -p "$(dirname "$file")"
    { echo '#!/bin/bash' && printf '%s\n' "$@"; } >"$file"
    chmod +x "$file"
}

fresh() # a folder whose programs are all well
{
    rm -rf "$work/dir" "$work/path"
    mkdir -p "$work/dir/lib" "$work/dir/data"
    echo none >"$work/dir/commit"
    local program
    for program in conform conform_step train_resnet50 bench pack; do
        put "$work/dir/bin/$program" 'echo "it: 3 passed, 0 failed"'
    done
}

run() # EXPECTED-STATUS ARGUMENTS...
{
    local want=$1
    shift
    PATH=$work/path:$PATH "$check" run "$work/dir" "$@" >"$work/out" 2>&1
    [ $? = "$want" ]
}

says() # TEXT: the report
{
    grep -q -- "$1" "$work/dir/report.md"
}

well()
{
    fresh
    run 0 --stage conform && says '| every entry against ref in double | ok |' && says 'conform: 3 passed, 0 failed'
}

two_stages()
{
    fresh
    put "$work/path/python3" 'exit 1'
    run 0 --stage conform,peer && says 'conform: 3 passed' && says 'peer: 1 passed' &&
        [ "$(grep -c '^commit' "$work/dir/report.md")" = 1 ]
}

no_such_stage()
{
    fresh
    run 2 --stage everything && run 2 --stage conform --budget soon && run 2 --stage ''
}

wrong_row()
{
    fresh
    put "$work/dir/bin/conform" 'echo "FAIL relu f32: operand 1"; echo "it: 3 passed, 1 failed"; exit 1'
    run 1 --stage conform && says 'FAILED (1)' && says 'FAIL relu f32' && says 'conform: 1 passed, 2 failed'
}

no_device()
{
    fresh
    put "$work/dir/bin/conform" 'echo "conform: backend cuda: no NVIDIA driver"; exit 77'
    run 77 --stage conform && says 'no NVIDIA driver'
}

no_start()
{
    fresh
    put "$work/dir/bin/conform" 'echo "libc.so.6: version GLIBC_2.99 not found"; exit 1'
    run 1 --stage conform && says 'gpu_check build' && says 'GLIBC_2.99'
}

hangs()
{
    fresh
    put "$work/dir/bin/conform_step" 'exec sleep 600'
    local begin=$SECONDS
    run 1 --stage conform --budget 12 && says 'FAILED (124)' && [ $((SECONDS - begin)) -lt 60 ]
}

left_out()
{
    fresh
    run 1 --stage conform --budget 7 && says 'LEFT OUT'
}

# A library that only a wheel has, and one that this one wants in turn.
wheels()
{
    fresh
    local site=$work/site/nvidia
    mkdir -p "$site/one/lib" "$site/two/lib"
    touch "$site/one/lib/libelsewhere.so.9" "$site/two/lib/libwanted.so.1"
    put "$work/path/ldd" "case \$LD_LIBRARY_PATH in
        *$site/one/lib*$site/two/lib* | *$site/two/lib*$site/one/lib*) ;;
        *$site/one/lib*) echo '	libwanted.so.1 => not found' ;;
        *) echo '	libelsewhere.so.9 => not found' ;;
        esac"
    local -x PYTHONPATH=$work/site
    run 0 --stage conform && grep -q "^$site/one/lib:$site/two/lib:$" "$work/dir/logs/libraries"
}

# Python gets the libraries that it would have had.
python_apart()
{
    fresh
    put "$work/path/python3" "echo \"\$LD_LIBRARY_PATH|\${LATHER_LIBRARY_PATH-}\" >>'$work/seen'"
    rm -f "$work/seen"
    local -x LD_LIBRARY_PATH=/mine
    run 0 --stage peer && grep -q "^/mine|$work/dir/lib:.*/mine$" "$work/seen" && ! grep -v '^/mine|' "$work/seen"
}

sanitizer() # MODE EXPECTED-STATUS TEXT
{
    fresh
    local -x FAKE_SANITIZER=$1 LATHER_SANITIZER=$here/fake_sanitizer
    run "$2" --stage sanitize --small && says "$3"
}

no_sanitizer()
{
    fresh
    local -x LATHER_SANITIZER=$work/absent
    command -v compute-sanitizer >/dev/null && return
    run 1 --stage sanitize && says 'compute-sanitizer | LEFT OUT'
}

row "what is well passes" well
row "several stages have one report, and versions once" two_stages
row "wrong command lines are refused" no_such_stage
row "a wrong entry fails the stage and is in the report" wrong_row
row "without a device the report says why" no_device
row "programs that do not start here are told from wrong ones" no_start
row "a part that hangs is ended" hangs
row "what finds no time is left out, which is no success" left_out
row "libraries are found in wheels, and what they want too" wheels
row "Python does not see the carried libraries" python_apart
row "a sanitizer without findings passes" sanitizer '' 0 'racecheck, every kernel | ok'
row "a sanitizer's finding fails, and is in the report" sanitizer finds 1 'Invalid __global__ write'
row "a sanitizer that says nothing fails" sanitizer silent 1 'memcheck has no summary'
row "without a sanitizer the stage fails" no_sanitizer
echo "$passed passed, $failed failed"
[ $failed = 0 ]
