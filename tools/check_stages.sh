# The stages of ./check, which sources this file after check_rows.sh.
# shellcheck shell=bash disable=SC2154,SC2034

configure() # DIRECTORY [meson arguments]
{
    local dir=$1
    shift
    if [ -f "$dir/build.ninja" ]; then
        meson configure "$dir" -Dtests="$tests" "$@"
    else
        meson setup "$dir" -Dtests="$tests" "$@"
    fi
}

# Reports a build without cmocka, in which no test program was built: passing the few other checks is no success.
say_what_was_not_tested() # BUILD-DIRECTORY
{
    [ -f "$1/build.ninja" ] && ! grep -q cmocka "$1/build.ninja" || return 0
    echo "ALMOST NOTHING WAS TESTED: no test program was built, as cmocka (libcmocka-dev) is missing" \
        "or --without-tests was given"
    [ "$tests" = disabled ] || [ "$failed" != 0 ] || failed=1
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

# Sets device_tests: short, or full if CUDA sources changed since the last complete run of their tests.
choose_device_tests()
{
    device_tests=short
    if ! command -v g++ >/dev/null && ! command -v clang++ >/dev/null; then
        device_tests=off
        skip "CUDA's kernels on the host" "there is no C++ compiler"
    elif $full || ! tools/cuda_changed; then
        device_tests=full
    fi
}

build_main()
{
    built=false
    choose_device_tests
    row "the build, warnings are errors" build "$work/main" --werror --prefix "$work/prefix" \
        --libdir lib -Ddevice_tests="$device_tests" && built=true
}

# Tests wait for the disk at each checkpoint that they write.
with_folders_in_memory() # COMMAND...
{
    local code
    memory_folder=$(mktemp -d /dev/shm/lather-check-XXXXXX 2>/dev/null)
    if [ -n "$memory_folder" ] && chmod 1777 "$memory_folder" && cp "$(type -P true)" "$memory_folder/" && "$memory_folder/true" &&
        [ "$(df --output=avail -k "$memory_folder" | tail -1)" -gt $((2 << 20)) ]; then
        local -x TMPDIR=$memory_folder
    fi
    "$@"
    code=$?
    [ -z "$memory_folder" ] || rm -rf "$memory_folder"
    return $code
}

# One more than cores: most suites wait for processes, threads or time now and then.
processes=$(($(nproc) + 1))

test_main()
{
    $built || {
        skip "test suites" "the build failed"
        return
    }
    # A busy machine is no hang: three times meson's 30 seconds.
    with_folders_in_memory rows "test suites" "$work/main" --no-suite full --timeout-multiplier 3 --num-processes "$processes" &&
        [ "$device_tests" = full ] && echo "  all tests of CUDA without a GPU passed: tools/cuda_changed --record"
}

# Trains in an emulator of ARM64, where --reproducible has the same bits as on this machine.
train_on_arm64()
{
    if ! command -v aarch64-linux-gnu-gcc >/dev/null || ! command -v qemu-aarch64 >/dev/null; then
        skip "ARM64" "gcc-aarch64-linux-gnu, libc6-dev-arm64-cross or qemu-user is missing"
        return
    fi
    local -x LATHER_ARM64=$work/arm64
    # Without forced inlining NEON's kernels compile in a fifth of the time.
    row "the programs for ARM64" build_programs "$LATHER_ARM64" --cross-file tools/cross/arm64.ini -Doptimization=1 \
        -Dc_args=-Dalways_inline=unused || return
    row "  and training has the same bits as here" same_bits
    row "  and BFDOT is used where the processor has it" chooses_bfdot
}

on_arm64() # PROGRAM [ARGUMENT...]
{
    qemu-aarch64 -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH=/usr/aarch64-linux-gnu/lib "$@"
}

chooses_bfdot()
{
    on_arm64 -cpu max "$LATHER_ARM64/models/resnet50/train_resnet50" --version | grep -x 'CPU kernels: neon_bf16; with --reproducible neon' &&
        on_arm64 -cpu cortex-a72 "$LATHER_ARM64/models/resnet50/train_resnet50" --version | grep -x 'CPU kernels: neon'
}

training_programs="models/resnet50/train_resnet50 models/vit/train_vit models/gpt/train_gpt tools/optim_replay"

build_programs() # DIRECTORY [meson arguments]
{
    local dir=$1
    [ -f "$dir/build.ninja" ] || meson setup "$@" -Dcuda=disabled -Dmpi=disabled -Dtests=disabled --werror || return
    # shellcheck disable=SC2086
    ninja -C "$dir" $training_programs
}

same_bits()
{
    local program programs=
    for program in $training_programs; do
        programs="$programs $work/main/$program"
    done
    # shellcheck disable=SC2086
    python3 tests/models/same_bits.py $programs
}

# By their suite, by a C source, by a script's imports; but none without such rows.
finds_full_tests()
{
    local found name
    $built || return
    grep -q cmocka "$work/main/build.ninja" || return 0
    found=$(tools/full_tests "$work/main") && for name in "conform levels 1/3" "faults optim" "race"; do
        grep -qx "$name" <<<"$found" || return
    done
    ! grep -qx "base options" <<<"$found" && ! grep -qx "launch" <<<"$found"
}

check_repository()
{
    row "test rows are counted, crashes too" tools/count_rows --self-test
    row "the CUDA toolkit is found in all its layouts" tools/find_cuda --self-test
    row "changes of what CUDA's tests compile are seen" tools/cuda_changed --self-test
    row "faults are applied, and killed or not" tools/mutate --self-test
    row "  and those of tests/mutants find their lines" tools/mutate --places tests/mutants
    row "functions that nothing executes are listed" tools/coverage --self-test
    row "tests that do more in --full are found" finds_full_tests
    row "commands of guides run, and fail" tools/check_guides --self-test
    row "kernel launches are translated for the host" tests/cuda/emulate.py --self-test
    row "kernels have places to break" tests/cuda/mutate.py --self-test
    checked "includes follow the arrows" tools/check_includes
    checked "no files call or include each other in a circle" tools/check_circles
    checked "functions, files and folders are within their sizes" tools/check_size
    checked "headers, functions and operations are documented" tools/check_docs
    checked "words and pragmas have their place" tools/check_words
    checked "each public header compiles alone, as C11 and C++17" tools/check_headers
    checked "files are formatted" tools/check_format
    row "a page of figures that are not the source's is rejected" tools/structure --self-test
    if $built; then
        row "docs/results/structure.md has the source's figures" tools/structure --check docs/results/structure.md \
            --program "$work/main/models/resnet50/train_resnet50"
        documentation
        [ "$device_tests" != full ] || machine_code
        checked "the library exports what its headers declare" tools/check_symbols "$work/main"
        interface
        row "a build is equal to itself, and not under another seed" tools/compare_builds "$work/main" \
            --self-test --only nesterov
    else
        skip "exported symbols" "the library did not build"
    fi
}

# Checks GPU kernels as machine code, from the compilers' reports and a disassembler's listing.
machine_code()
{
    local -x LATHER_NVDISASM=$work/nvdisasm/bin/nvdisasm
    row "kernels neither spill nor use local memory, on four architectures" tools/check_kernels "$work/main"
    row "  and those that would are rejected" tools/check_kernels --self-test
    [ -x "$LATHER_NVDISASM" ] || find_disassembler
    row "the hottest kernels read and write 16 bytes at a time" tools/check_kernels "$work/main" --vectors
    row "  and narrow accesses are rejected" tools/check_kernels --self-test --vectors
}

# From PyPI, where there is a network; in a folder, which later runs find again.
find_disassembler()
{
    local folder=$work/nvdisasm
    python3 -m venv "$folder" >/dev/null 2>&1 && "$folder/bin/python" -m pip install -q nvidia-cuda-nvdisasm >/dev/null 2>&1 &&
        ln -s "$(find "$folder" -path '*nvidia*/bin/nvdisasm' | head -1)" "$LATHER_NVDISASM" || rm -rf "$folder"
}

# The record is of x86-64.
interface()
{
    if command -v abidiff >/dev/null && [ "$(uname -m)" = x86_64 ]; then
        checked "the interface is the last release's" tools/check_abi
    else
        skip "the interface is the last release's" "abigail-tools is missing, or this is not x86-64"
    fi
}

documentation()
{
    if command -v doxygen >/dev/null 2>&1; then
        row "the reference of headers and guides, without a warning" ninja -C "$work/main" docs
    else
        skip "the reference of headers and guides" "there is no doxygen"
    fi
}

# Leaks are errors too, but for what OpenMP's own threads keep until the end. Suites in which bytes from
# outside are read and memory is handed between threads, unoptimised; the others are for --full.
test_sanitized()
{
    optimization=0 flags=-g1 row "a build with ASan and UBSan" configure_sanitized "$work/asan" -Dcuda=disabled || {
        skip "sanitized suites" "it cannot be set up"
        return
    }
    local rebuild= # only what these suites run
    with_folders_in_memory sanitized "suites under ASan and UBSan" "$work/asan" base data service fuzz dist bytes
}

# The flag by which uninitialised variables have a pattern of bytes instead of what the stack holds, if the compiler (gcc 12, clang) has it.
pattern_init_flag()
{
    ! "${CC:-cc}" -ftrivial-auto-var-init=pattern -fsyntax-only -x c /dev/null 2>/dev/null || echo -ftrivial-auto-var-init=pattern
}

# By $optimization, else 2: -Dbuildtype would reset it in a folder that was configured before; and by $flags. Warnings are no errors,
# as GCC finds false ones of format-truncation with sanitizers.
configure_sanitized() # BUILD-DIRECTORY [meson arguments]
{
    configure "$@" -Db_sanitize=address,undefined -Db_lundef=false -Ddebug=true -Doptimization="${optimization-2}" -Dmpi=disabled \
        -Dc_args="${flags-} $(pattern_init_flag)"
}

sanitized() # NAME BUILD-DIRECTORY SUITE...
{
    local name=$1 dir=$2 chosen=() leaks=${leaks-1} suite
    for suite in "${@:3}"; do
        chosen+=(--suite "$suite")
    done
    local -x ASAN_OPTIONS=detect_leaks=$leaks:strict_string_checks=1
    local -x LSAN_OPTIONS="suppressions=$root/tools/leaks.txt:print_suppressions=0"
    local -x UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 LATHER_TEST_PATIENCE=6
    rows "$name" "$dir" --timeout-multiplier 6 --num-processes "$processes" --no-suite full "${chosen[@]}"
}

storm() # KILLS
{
    local program
    for program in resnet50/train_resnet50 vit/train_vit; do
        counted "$1 kills of ${program##*/}" tools/kill_storm.py "$work/main/models/$program" --kills "$1"
    done
}

syscall_storm() # KILLS ENOSPC EIO
{
    counted "$1 kills, $2 full disks, $3 broken ones at random system calls" tools/syscall_storm.py \
        "$work/main/models/resnet50/train_resnet50" --kills "$1" --enospc "$2" --eio "$3"
}

kill_runs()
{
    $built || {
        skip "kill storm" "the build failed"
        return
    }
    storm 20
    syscall_storm 10 10 10
    counted "a full disk" tools/check_full_disk.sh "$work/main/models/resnet50/train_resnet50"
}

# With --count the same forms on every machine, with --seconds others each time.
fuzz_on_two_cores() # PROGRAM ISA (--count|--seconds) LIMIT
{
    local -x LATHER_CPU_ISA=$2 OMP_NUM_THREADS=1
    local seed=57913
    [ "$3" = --count ] || seed=$RANDOM
    LATHER_SEED=$seed "$1" "${@:3}" >"$work/fuzz.first" 2>&1 &
    local first=$! code=0
    LATHER_SEED=$((seed + 40000)) "$1" "${@:3}" >"$work/fuzz.second" 2>&1 || code=$?
    wait "$first" || code=$?
    grep -hv ' wrong 0$' "$work/fuzz.first" "$work/fuzz.second" # a report shows the last lines only
    return "$code"
}

# Random convolutions against ref. ISA: instructions that are hidden from it, "" for none.
conv_fuzz() # BUILD-DIRECTORY (--count|--seconds) LIMIT ISA...
{
    local program=$1/tests/conform/conv_fuzz isa
    [ -x "$program" ] || {
        skip "random convolutions" "the build failed, or is without oneDNN"
        return
    }
    for isa in "${@:4}"; do
        row "random convolutions, 2 x $3 ${2#--}${isa:+, $isa}" fuzz_on_two_cores "$program" "$isa" "$2" "$3"
    done
    row "  and a spoilt one is found" rejects "$program" --control spoil --count 9
    row "  and one that crashes" rejects "$program" --control crash --count 2
}

fuzz_convolutions()
{
    conv_fuzz "$work/main" --count 1800 ""
}

# gpu_check without a GPU, where CUDA sources or the tool changed.
check_gpu()
{
    if $full || [ "${device_tests-off}" != full ] || ! $built; then # --full has a separate stage
        return
    fi
    pack_and_try_gpu_check
}

install_and_run_examples()
{
    $built || {
        skip "examples" "the build failed"
        return
    }
    row "meson install" meson install -C "$work/main" --quiet --no-rebuild || return
    counted "examples against the installed library" tools/check_examples.sh "$work/prefix"
    counted "commands of the guides" tools/check_guides "$work/prefix"
}

compiled_sources() # the .c files of src, models and tools that the build compiles
{
    PYTHONPATH=$root/tools python3 -c 'import checklib; print(*sorted(checklib.compiled("build-check/main")))'
}

# By $CHECKS. Several files in a process take less time, but then one check gives false warnings about va_list.
tidy() # FILES-IN-A-PROCESS FILE...
{
    local command
    command=$(command -v clang-tidy-14 || command -v clang-tidy) || {
        echo "clang-tidy is not installed"
        return 77
    }
    set -o pipefail
    # shellcheck disable=SC2086
    printf '%s\n' "${@:2}" | xargs -P "$(nproc)" -n "$1" timeout 300 "$command" --quiet -p build-check/main ${CHECKS-} \
        "--warnings-as-errors=*" --extra-arg=-Wno-unknown-warning-option \
        --extra-arg=-enable-trivial-auto-var-init-zero-knowing-it-will-be-removed-from-clang 2>&1 |
        { grep -v "warnings generated\.$" || true; }
}

tidy_sources()
{
    local others="examples tests"
    if ! $built; then
        skip "clang-tidy" "the build failed"
        return
    fi
    # Checks without false alarms; tools/check_tidy runs .clang-tidy's whole list in --full.
    local sure=bugprone-assert-side-effect,bugprone-infinite-loop,bugprone-integer-division
    sure=$sure,bugprone-misplaced-widening-cast,bugprone-suspicious-string-compare
    sure=$sure,bugprone-suspicious-semicolon,bugprone-too-small-loop-variable
    sure=$sure,bugprone-undefined-memory-manipulation,bugprone-not-null-terminated-result
    sure=$sure,readability-misleading-indentation,readability-inconsistent-declaration-parameter-name
    local CHECKS="--checks=-*,clang-diagnostic-*,$sure"
    # shellcheck disable=SC2046
    row "clang and clang-tidy read src, models and tools without a warning" tidy 16 $(compiled_sources)
    if [ $? = 77 ]; then
        others=
    else
        echo 'double lt_a(float x); double lt_a(float x) { return x; }' >"$work/promotion.c"
        row "  and a promotion is found" rejects tidy 1 "$work/promotion.c"
    fi
    # shellcheck disable=SC2086
    row "clang reads ${others:-every file} without a warning" tools/check_clang build-check/main $others
}
