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

# With $rebuild set, if only to nothing, meson first builds what the chosen tests run.
rows() # NAME BUILD-DIRECTORY [meson test arguments]: the rows of the test programs
{
    local name=$1 dir=$2 log=$work/tests.log p f s
    shift 2
    rm -f "$dir"/meson-logs/testlog*.json
    meson test -C "$dir" ${rebuild---no-rebuild} --print-errorlogs "$@" >"$log" 2>&1 </dev/null
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

counted() # NAME COMMAND...: a program that ends with `N passed, N failed[, N skipped]`
{
    local name=$1 log=$work/counted.log code line p f s
    shift
    "$@" >"$log" 2>&1 </dev/null
    code=$?
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$log" | tail -1)
    if [ $code = 77 ]; then
        skip "$name" "$(tail -1 "$log")"
        return
    fi
    read -r p f s <<<"$(echo "$line" | tr -cd '0-9 ' | tr -s ' ')"
    p=${p:-0} f=${f:-0} s=${s:-0}
    if [ $code != 0 ] && [ "$f" = 0 ] || [ $((p + f + s)) = 0 ]; then
        f=$((f + 1))
    fi
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    [ "$f" = 0 ] || tail -40 "$log" | sed 's/^/    /'
    echo "  $name: $p passed, $f failed, $s skipped"
}

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

# Where cmocka is missing, no test program was built: a few other checks passed, which is no success.
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
    row "the CUDA toolkit is found in all its layouts" tools/find_cuda --self-test
    row "kernel launches are translated for the host" tests/cuda/emulate.py --self-test
    row "kernels have places to break" tests/cuda/mutate.py --self-test
    checked "includes follow the arrows" tools/check_includes
    checked "functions, files and src/ are within their sizes" tools/check_size
    checked "headers, functions and operations are documented" tools/check_docs
    checked "words and pragmas have their place" tools/check_words
    checked "each public header compiles alone, as C11 and C++17" tools/check_headers
    checked "files are formatted" tools/check_format
    checked "the source's structure is measured" tools/structure
    if $built; then
        documentation
        machine_code
        checked "the library exports what its headers declare" tools/check_symbols "$work/main"
        row "a build is equal to itself, and not under another seed" tools/compare_builds "$work/main" \
            --self-test --only nesterov
    else
        skip "exported symbols" "the library did not build"
    fi
}

# Kernels for a GPU as machine code: what the compilers say, and what a disassembler shows.
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

documentation()
{
    if command -v doxygen >/dev/null 2>&1; then
        row "the reference of headers and guides, without a warning" ninja -C "$work/main" docs
    else
        skip "the reference of headers and guides" "there is no doxygen"
    fi
}

# Leaks are errors too, but for what OpenMP's and OpenBLAS's own threads keep until the end. Where bytes
# from outside are read and memory is handed around; programs and each instruction set are for --full.
test_sanitized()
{
    local suites="base tensor nn optim data dist service train fuzz kernels"
    row "a build with ASan and UBSan" configure_sanitized "$work/asan" -Dcuda=disabled -Demulation=disabled || {
        skip "sanitized suites" "it cannot be set up"
        return
    }
    $full && suites="$suites conform models tools"
    local rebuild= # only what these suites run
    # shellcheck disable=SC2086
    sanitized "suites under ASan and UBSan" "$work/asan" $suites
}

configure_sanitized() # BUILD-DIRECTORY [meson arguments]
{
    configure "$@" -Db_sanitize=address,undefined -Db_lundef=false -Dbuildtype=debugoptimized -Dmpi=disabled --werror
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
    rows "$name" "$dir" --timeout-multiplier 6 "${chosen[@]}"
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
    if $full; then
        conv_fuzz "$work/main" --seconds 60 "" avx512_bf16 avx512 avx2 generic
    else
        conv_fuzz "$work/main" --count 1800 ""
    fi
}

# gpu_check on the CPU, in small sizes: all of it but the GPU. ./check packs, and runs what packing and
# places are about; --full runs every stage, those for a device on the stand-in. Each stage's control must fail.
dry_run_gpu_check()
{
    local folder=$work/gpu_check stage control stages= controls=
    $built || {
        skip "gpu_check" "the build failed"
        return
    }
    if $full; then
        stages="conform sanitize bench peer shampoo profile more"
        controls="smoke:smoke train:transformers conform:conform sanitize:sanitize train:learn bench:bench peer:peer shampoo:shampoo profile:profile"
    fi
    counted "gpu_check finds libraries, keeps results, has time limits" tests/tools/test_gpu_check.sh tools/gpu_check
    row "gpu_check pack" tools/gpu_check pack "$folder" --build "$work/lean" || return
    local -x LATHER_SANITIZER=$root/tests/tools/fake_sanitizer LATHER_PYTHON=$root/tests/tools/fake_torch/python3
    for stage in $stages; do
        row "gpu_check $stage" "$folder/gpu_check" run "$folder" --stage "$stage" --device cpu --small
    done
    for control in $controls; do
        row "  and a spoilt ${control#*:} is found" rejects "$folder/gpu_check" run "$folder" \
            --stage "${control%:*}" --device cpu --small --control "${control#*:}"
    done
    row "gpu_check says that there is no such device" no_such_device "$folder"
    smoke_on_the_standin "$folder"
    $full && dry_run_on_the_standin "$folder"
}

# All that the device does, and of it one call that fails: it costs its row and no other.
smoke_on_the_standin()
{
    local module=$work/main/tests/cuda/standin/liblather-cuda.so to=$1.smoke
    [ -f "$module" ] || {
        skip "gpu_check smoke on the stand-in" "it was not built"
        return
    }
    rm -rf "$to" && cp -r "$1" "$to" && cp "$module" "$to/lib/" && rm -rf "$to/logs" "$to/results"
    row "gpu_check smoke: a library's call that fails is one row's" one_row_fails "$to" ncclRecv "NCCL: each collective, one rank"
    row "  and every kernel, call of a library and form of graph ran" tests/tools/smoke_covers.py "$to/calls" "$to/results/plans.tsv" src/tensor/backend/cuda/*.cu
    row "gpu_check profile on the stand-in" "$to/gpu_check" profile "$to" --device cuda --small
    row "  and by a profiler, of one step" profiles_one_step "$to"
    row "  and a spoilt profile is found" rejects "$to/gpu_check" profile "$to" --device cuda --small --control profile
}

# FOLDER. A script in the place of ncu makes its table of what the stand-in ran between the profiler's start and stop.
profiles_one_step()
{
    LATHER_NCU=$root/tests/tools/fake_ncu "$1/gpu_check" profile "$1" --device cuda --small || return
    awk -F '\t' '
        FNR == NR { if ($2 ~ /^profiler/) { on = $2 ~ /starts/; marks++ } else if ($2 !~ /^(copy|cudaMem)/) { all++; step += on } next }
        $3 ~ /^[0-9]+$/ { told += $3 }
        END { print told " launches in the table, " step " in the step of " all; exit !(marks == 2 && step > 50 && told == step && 2 * step <= all) }' \
        "$1/work/ncu.csv.works" "$1/logs/profile-by-kernel-ncu.log"
}

# FOLDER CALL ROW. Kernels run on the host here, beside whatever else it does: not within smoke's minute.
one_row_fails()
{
    LATHER_STANDIN_CALLS=$1/calls LATHER_STANDIN_FAIL=$2:1 "$1/gpu_check" smoke "$1" --device cuda --total 300 && return 1
    awk -F '\t' -v want="$3" '$1 == "row" && $5 != "" && $5 != "STARTED" { if ($5 == "ok") good++; else { bad++; name = $4 } }
        END { exit !(good > 20 && bad == 1 && name == want) }' "$1/results/rows"
}

# The same as for a device, whose module is the one on the host: tests/cuda/standin.
dry_run_on_the_standin()
{
    local module=$work/main/tests/cuda/standin/liblather-cuda.so stage
    [ -f "$module" ] || {
        skip "gpu_check on the stand-in" "it was not built"
        row "gpu_check train" "$1/gpu_check" run "$1" --stage train --device cpu --small
        return
    }
    rm -rf "$1.standin" && cp -r "$1" "$1.standin" && cp "$module" "$1.standin/lib/"
    rm -rf "$1.standin/logs" "$1.standin/results"
    for stage in smoke train sanitize bench peer shampoo profile; do # conform takes long there, and is a test of its own
        row "gpu_check $stage on the stand-in" "$1/gpu_check" run "$1.standin" --stage "$stage" --device cuda --small
    done
}

no_such_device()
{
    "$1/gpu_check" run "$1" --stage conform --device cuda
    case $? in
    0 | 77) return 0 ;; # there is one
    *) return 1 ;;
    esac
}

install_and_run_examples()
{
    $built || {
        skip "examples" "the build failed"
        return
    }
    row "meson install" meson install -C "$work/main" --quiet || return
    counted "examples against the installed library" tools/check_examples.sh "$work/prefix"
}

changed_files()
{
    git log -8 --name-only --format= -- src models tools tests 2>/dev/null | grep '\.c$' | sort -u |
        while read -r file; do [ -f "$file" ] && echo "$file"; done | head -"$1"
}

tidy() # NAME FILE...: one file per process; several at once give false warnings about va_list
{
    local name=$1 command
    shift
    export CHECKS=${CHECKS-}
    command=$(command -v clang-tidy-14 || command -v clang-tidy) || {
        skip "$name" "clang-tidy is not installed"
        return
    }
    row "$name" bash -c 'printf "%s\n" "$@" | xargs -P "$(nproc)" -n 1 timeout 300 "$0" --quiet \
        -p build-check/main $CHECKS --warnings-as-errors="*" \
        --extra-arg=-Wno-unknown-warning-option' "$command" "$@"
}

tidy_changed()
{
    local files
    if $built; then
        row "clang reads every file without a warning" tools/check_clang build-check/main
    fi
    files=$(changed_files 12)
    if [ -z "$files" ] || ! $built; then
        skip "clang-tidy on changed files" "no git history, or no build"
        return
    fi
    # Those that are never wrong; .clang-tidy's whole list belongs to --full, where a person reads it.
    local sure=bugprone-assert-side-effect,bugprone-infinite-loop,bugprone-integer-division
    sure=$sure,bugprone-misplaced-widening-cast,bugprone-suspicious-string-compare
    sure=$sure,bugprone-suspicious-semicolon,bugprone-too-small-loop-variable
    sure=$sure,bugprone-undefined-memory-manipulation,bugprone-not-null-terminated-result
    sure=$sure,readability-misleading-indentation,readability-inconsistent-declaration-parameter-name
    # shellcheck disable=SC2086
    CHECKS="--checks=-*,$sure" tidy "clang-tidy on files changed last" $files
}

# The slow tiers: ./check --full.

# Host logic of the CUDA backend, its kernels on the host, the stand-ins for its libraries.
test_sanitized_cuda()
{
    row "a build with ASan, UBSan and CUDA" configure_sanitized "$work/asan-cuda" || return
    local rebuild= leaks=0 # tests of misuse leave things behind
    sanitized "suites of CUDA under ASan and UBSan" "$work/asan-cuda" cuda emulated recorded-steps
}

test_threads()
{
    row "the build with TSan" build "$work/tsan" -Db_sanitize=thread -Db_lundef=false \
        -Dbuildtype=debugoptimized -Dmpi=disabled -Dc_args=-DLT_NO_OPENMP || return
    # A test whose processes are forked beside threads starts threads in them.
    TSAN_OPTIONS=halt_on_error=1:die_after_fork=0:suppressions=$root/tools/races.txt \
        rows "loader and communicators under TSan" "$work/tsan" --timeout-multiplier 10 --suite data \
        --suite dist
}

# Kernels whose threads share memory or count together, with the emulator's threads as ThreadSanitizer's.
kernel_races()
{
    local program=$work/main/tests/conform/conform_races rows
    [ -x "$program" ] || {
        skip "races of kernels" "the build failed, or has no ThreadSanitizer"
        return
    }
    for rows in "embedding_grad" "topk_select f32" "conv2d_stats f16 means far from 0" "rotary" "vec" "gram" "mode_product" "eigh" "qr" "cast" "ritz"; do
        row "races of kernels: $rows" env OMP_NUM_THREADS=1 "$program" --backend emulated --only "$rows"
    done
}

# All that cuDNN proposes for ResNet-50 on two devices, by batch 16, 64 and 256: tens of thousands of plans.
every_plan()
{
    local program=$work/main/tests/cuda/test_cuda_every_plan device dtype
    [ -x "$program" ] || {
        skip "every plan of cuDNN" "the build failed, or is without cuDNN"
        return
    }
    for device in H100 H200; do
        for dtype in f16 bf16 f32; do
            row "every plan of cuDNN: $device, $dtype" "$program" --all --only "$device, $dtype*"
        done
    done
    engines_of_frontend
}

# The same graphs by NVIDIA's cudnn-frontend, whose headers PyPI has.
engines_of_frontend()
{
    local folder headers
    folder=$(mktemp -d)
    python3 -m venv "$folder" >/dev/null 2>&1 && "$folder/bin/python" -m pip install -q --no-deps nvidia-cudnn-frontend >/dev/null 2>&1
    headers=$(find "$folder" -name cudnn_frontend.h | head -1)
    if [ -n "$headers" ] && configure "$work/main" -Dcudnn_frontend="$(dirname "$headers")" >/dev/null; then
        local rebuild=
        rows "engines as cudnn-frontend has them" "$work/main" "cuda frontend"
        configure "$work/main" -Dcudnn_frontend= >/dev/null
    else
        skip "engines as cudnn-frontend has them" "nvidia-cudnn-frontend cannot be had"
    fi
    rm -rf "$folder"
}

test_valgrind()
{
    command -v valgrind >/dev/null || {
        skip "valgrind" "not installed"
        return
    }
    GOMP_SPINCOUNT=1000 OMP_NUM_THREADS=1 rows "the suites of base under valgrind" "$work/asan-free" --suite base \
        --timeout-multiplier 30 --wrapper "valgrind --error-exitcode=9 --quiet"
}

build_for_valgrind()
{
    row "the build for valgrind, without AVX-512" build "$work/asan-free" \
        -Dbuildtype=debugoptimized && test_valgrind
}

run_cppcheck() # FILE...
{
    cppcheck -q --enable=warning,performance,portability --inline-suppr --error-exitcode=1 \
        --suppress=nullPointerArithmeticRedundantCheck -I include -I src -D_GNU_SOURCE \
        -j "$(nproc)" "$@"
}

rejects() # COMMAND...
{
    ! "$@"
}

analyze()
{
    if command -v gcc >/dev/null; then
        checked "gcc -fanalyzer" tools/check_analyzer "$work/main"
    else
        skip "gcc -fanalyzer" "not installed"
    fi
    if command -v cppcheck >/dev/null; then
        row "cppcheck" run_cppcheck src models
        echo 'int lt_a(void); int lt_a(void) { int v[2] = {0}; return v[2]; }' >"$work/overrun.c"
        row "  and an overrun is found" rejects run_cppcheck "$work/overrun.c"
    else
        skip "cppcheck" "not installed"
    fi
    # shellcheck disable=SC2046
    tidy "clang-tidy on all files" $(git ls-files 'src/*.c' 'models/*.c' 'tools/*.c')
}

both_onednn()
{
    # The newest generation that PyPI has for GCC's OpenMP; later ones are for other runtimes.
    # Outside the source tree: meson takes no foreign headers from inside it.
    local prefix
    prefix=$(mktemp -d)
    python3 -m venv "$prefix" >/dev/null 2>&1 &&
        "$prefix/bin/python" -m pip install -q onednn-devel-cpu-gomp >/dev/null 2>&1 || {
        skip "the build with oneDNN 3" "onednn-devel-cpu-gomp cannot be had"
        rm -rf "$prefix"
        return
    }
    rm -rf "$work/dnnl3"
    row "the build with oneDNN 3" build "$work/dnnl3" -Donednn_root="$prefix" &&
        rows "suites with oneDNN 3" "$work/dnnl3" && conv_fuzz "$work/dnnl3" --seconds 30 "" avx512 avx2 generic
    rm -rf "$prefix"
}

# Tests of the build in $work/main are of Open MPI, where that is installed.
both_mpis()
{
    pkg-config --exists mpich || {
        skip "the build with MPICH" "libmpich-dev is not installed"
        return
    }
    row "the build with MPICH" build "$work/mpich" -Dmpi=enabled -Dmpi_package=mpich &&
        rows "ranks under MPICH" "$work/mpich" --suite dist
}

fuzz_one() # TARGET SECONDS
{
    local found=$work/fuzz/found-$1
    mkdir -p "$found"
    "$work/fuzz/tests/fuzz/fuzzer_$1" -max_total_time="$2" -rss_limit_mb=3000 -max_len=4096 \
        -artifact_prefix="$found/" "$found" "tests/fuzz/corpus/$1"
}

fuzz_long()
{
    local targets seconds=600 target
    targets=$(cd tests/fuzz && printf '%s ' fuzz_*.c | sed 's/fuzz_//g; s/\.c//g')
    row "the fuzzers" env CC=clang bash -c 'rm -rf "$0" && meson setup "$0" -Dfuzzers=true \
        -Db_lundef=false -Db_sanitize=address,undefined -Dc_args=-fsanitize=fuzzer-no-link &&
        ninja -C "$0" $(printf "tests/fuzz/fuzzer_%s " "$@")' "$work/fuzz" $targets || return
    export work
    export -f fuzz_one
    printf '%s\n' $targets | xargs -P "$(nproc)" -I{} bash -c \
        'fuzz_one {} '$seconds' >"$work/fuzz/{}.log" 2>&1; echo $? >"$work/fuzz/{}.status"'
    for target in $targets; do
        row "$seconds s of fuzzing $target" fuzz_ended "$target"
    done
}

fuzz_ended() # TARGET
{
    tail -20 "$work/fuzz/$1.log"
    return "$(cat "$work/fuzz/$1.status")"
}

replay_long()
{
    row "the long matrix of optim_replay" /usr/bin/python3 tests/optim/replay_matrix.py \
        "$work/main/tools/optim_replay" --long
}

network()
{
    row "nodes on a virtual network" python3 tests/tools/test_netbed.py tools/netbed "$work/main/tools/bench" \
        "$work/main/models/resnet50/train_resnet50" "$work/main"
    row "a model on eight ranks" python3 tests/models/ranks_tp.py --long "$work/main/models/vit/train_vit" mpirun
}

programs()
{
    local dir=$work/main/tests/launch lather=$work/main/tools/lather mpirun=none
    [ -x "$dir/test_launch_graph" ] || {
        skip "programs of several processes" "the build failed"
        return
    }
    command -v mpirun.openmpi >/dev/null && mpirun=mpirun
    row "1,000 launches leave nothing" env LAUNCHES=1000 "$dir/test_launch_graph"
    row "programs in threads, processes and by mpirun" python3 tests/launch/launch.py "$lather" "$dir" "$mpirun"
    row "a gang that loses a rank" python3 tests/launch/gang.py "$lather" "$work/main/tests/models/train_mlp" "$mpirun"
}

storm_full()
{
    storm 200
    syscall_storm 1000 200 200
    row "20 kills of reproduce" /usr/bin/python3 tests/tools/test_reproduce.py \
        "$work/main/models/resnet50/train_resnet50" --kills 20 \
        --only killed_at_random_moments_it_gives_the_same_report
}

memory_long()
{
    row "the loader's memory over 100,000 images" "$work/main/tests/data/test_data_flat" 10000 100000
}

# Builds that leave much out, and two compilers in one, which have an OpenMP each.
build_apart()
{
    local tiny="--data synthetic:16:32:4 --arch resnet10 --width 8 --batch-size 4 --max-steps 2 --epochs 1"
    # shellcheck disable=SC2086
    row "the build without cpu and MPI, for older GPUs" build "$work/bare" -Dcpu=disabled -Dmpi=disabled \
        -Dgpu_arch=80 && row "  and it trains" "$work/bare/models/resnet50/train_resnet50" --device ref \
        --progress off --eval-every 0 $tiny
    row "the build without cpu, MPI and CUDA" build "$work/least" -Dcpu=disabled -Dmpi=disabled -Dcuda=disabled
    command -v clang >/dev/null || {
        skip "clang beside g++" "clang is not installed"
        return
    }
    local -x CC=clang CXX=g++
    row "clang beside g++" build "$work/mixed" -Dmpi=disabled &&
        row "  and the kernels conform" "$work/mixed/tests/conform/conform" --backend emulated
}

# A barrier, a bound or a wait less: some row must notice.
break_kernels()
{
    counted "kernels with a fault" tests/cuda/mutate.py "$work/main"
    counted "waits that are dropped" tests/cuda/standin/waits.py "$work/main"
    row "tiny nodes and modelled time of every recorded step" python3 tests/cuda/standin/nodes.py "$work/main" every_recorded_step_has_at_most_so_many_tiny_nodes
    row "Shampoo's step beside AdamW's, by the model and on its page" python3 tests/cuda/standin/nodes.py "$work/main" shampoo_takes_as_long_as_the_page_says
}

write_report()
{
    mkdir -p docs/results
    {
        echo "# The last complete check"
        echo
        echo "Made by \`./check --full\` at version $(git describe --always 2>/dev/null)."
        echo
        echo "| stage | passed | failed | skipped | seconds |"
        echo "| --- | --- | --- | --- | --- |"
        printf '%s' "$report"
        echo
        echo "$passed passed, $failed failed, $skipped skipped"
    } >docs/results/check.md
}
