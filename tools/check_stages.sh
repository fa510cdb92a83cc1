# The stages of ./check, which sources this file. A stage is a function; inside it `row` runs one
# check and `rows` counts a run of test programs. shellcheck shell=bash

stage() # NAME FUNCTION
{
    case $1 in
    install | build) ;;
    *"$only"*) ;;
    *) return ;;
    esac
    local start=$SECONDS before="$passed $failed $skipped"
    echo "== $1"
    "$2"
    local seconds=$((SECONDS - start))
    # shellcheck disable=SC2086
    set -- "$1" $before
    local line="$1: $((passed - $2)) passed, $((failed - $3)) failed, $((skipped - $4)) skipped"
    echo "== $line ($seconds s)"
    report="$report| $1 | $((passed - $2)) | $((failed - $3)) | $((skipped - $4)) | $seconds |"$'\n'
}

row() # NAME COMMAND...: exit status 0 passes, 77 skips, else fails with the end of its output
{
    local name=$1 log=$work/row.log code
    shift
    "$@" >"$log" 2>&1 </dev/null
    code=$?
    if [ $code = 0 ]; then
        passed=$((passed + 1))
        echo "  ok       $name"
    elif [ $code = 77 ]; then
        skip "$name" "$(tail -1 "$log")"
    else
        failed=$((failed + 1))
        echo "  FAILED   $name (exit status $code)"
        tail -40 "$log" | sed 's/^/    /'
    fi
    return $code
}

skip() # NAME WHY
{
    skipped=$((skipped + 1))
    echo "  skipped  $1: $2"
}

rows() # NAME BUILD-DIRECTORY [meson test arguments]: the rows of the test programs
{
    local name=$1 dir=$2 log=$work/tests.log p f s
    shift 2
    rm -f "$dir"/meson-logs/testlog*.json
    meson test -C "$dir" --no-rebuild --print-errorlogs "$@" >"$log" 2>&1 </dev/null
    local code=$? json
    json=$(ls -t "$dir"/meson-logs/testlog*.json 2>/dev/null | head -1)
    if [ -z "$json" ]; then
        failed=$((failed + 1))
        echo "  FAILED   $name: no test ran"
        tail -20 "$log"
        return 1
    fi
    read -r p f s <<<"$(python3 tools/count_rows "$json")"
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    if [ $code != 0 ] || [ "$f" != 0 ]; then
        [ "$f" != 0 ] || failed=$((failed + 1))
        tail -120 "$log" | sed 's/^/    /'
    fi
    echo "  $name: $p passed, $f failed, $s skipped"
}

configure() # DIRECTORY [meson arguments]
{
    local dir=$1
    shift
    if [ -f "$dir/build.ninja" ]; then
        meson configure "$dir" "$@"
    else
        meson setup "$dir" "$@"
    fi
}

build() # DIRECTORY [meson arguments]
{
    configure "$@" && ninja -C "$1"
}

install_packages()
{
    local sets="build data test lint"
    $full && sets="$sets full"
    # shellcheck disable=SC2086
    tools/packages install $sets || skip "packages" "some are missing: what needs them is skipped"
}

build_main()
{
    built=false
    row "the build, warnings are errors" build "$work/main" --werror --prefix "$work/prefix" \
        --libdir lib && built=true
}

test_main()
{
    $built || {
        skip "test suites" "the build failed"
        return
    }
    rows "test suites" "$work/main"
}

# Each check has a control that it must reject: its self-test.
checked() # SENTENCE SCRIPT [ARGUMENTS]
{
    local sentence=$1 script=$2
    shift 2
    row "$sentence" "$script" "$@"
    row "  and a violation is rejected" "$script" --self-test
}

check_repository()
{
    row "test rows are counted, crashes too" tools/count_rows --self-test
    checked "includes follow the arrows" tools/check_includes
    checked "functions, files and src/ are within their sizes" tools/check_size
    checked "headers, functions and operations are documented" tools/check_docs
    checked "words and pragmas have their place" tools/check_words
    checked "each public header compiles alone, as C11 and C++17" tools/check_headers
    checked "files are formatted" tools/check_format
    if $built; then
        checked "the library exports what its headers declare" tools/check_symbols "$work/main"
    else
        skip "exported symbols" "the library did not build"
    fi
}
