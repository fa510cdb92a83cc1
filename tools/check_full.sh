# The slow tiers: ./check --full, which sources this file after check_stages.sh.
# shellcheck shell=bash disable=SC2154,SC2034

# A line a stage: its name, estimated minutes on two cores, its function.
slow_stages()
{
    all_slow=(
        "every-test 25 test_all_rows"
        "device 20 test_device"
        "convolutions-random 12 fuzz_convolutions_long"
        "gpu-check 12 pack_and_try_gpu_check"
        "sanitizers-all 25 test_sanitized_all"
        "sanitizers-cuda 12 test_sanitized_cuda"
        "tsan 12 test_threads"
        "races 10 kernel_races"
        "plans 8 every_plan"
        "valgrind 8 build_for_valgrind"
        "analyzers 40 analyze"
        "onednn 25 both_onednn"
        "mpi 6 both_mpis"
        "fuzz 45 fuzz_long"
        "replay 5 replay_long"
        "memory 5 memory_long"
        "kernel-mutants 30 break_kernels"
        "mutants 30 break_source"
        "mutants-random 45 break_source_at_random"
        "coverage 20 list_unexecuted"
        "builds 20 build_apart"
        "network 10 network"
        "programs 10 programs"
        "wheel 10 python_wheel"
        "packages 20 debian_packages"
        "arm64 20 test_on_arm64"
        "same-bits 40 train_on_all"
        "storm 25 storm_full"
    )
    local all=0 before=0 line name minutes function
    for line in "${all_slow[@]}"; do
        read -r name minutes function <<<"$line"
        all=$((all + minutes))
    done
    full_option=" --full"
    for line in "${all_slow[@]}"; do
        read -r name minutes function <<<"$line"
        # A stage belongs to the slice in which its middle is.
        [ $(((2 * before + minutes) * ${slice#*/} / (2 * all) + 1)) != "${slice%/*}" ] || slow_stage "$name" "$function"
        before=$((before + minutes))
    done
}

# The commit that is tested; "+" if the tree has uncommitted changes.
version()
{
    local plus=
    [ -z "$(git status --porcelain -- . ':!docs/results/check.md' ':!tests/cuda/verified' 2>/dev/null)" ] || plus=+
    echo "$(git describe --always 2>/dev/null || echo unknown)$plus"
}

# Results of slow stages, a line each: docs/results/check.md. A stage that passed at this very version is done.
slow_stage() # NAME FUNCTION
{
    local report=docs/results/check.md now passed_then
    now=$(version)
    passed_then=$(awk -F ' *[|] *' -v name="$1" -v now="$now" '$2 == name && $3 == now && $7 == 0 { print $6 }' "$report")
    if [ -n "$passed_then" ] && [ "${now%+}" = "$now" ] && [ -z "$only" ]; then
        echo "== $1: $passed_then passed at $now before ($report)"
        return
    fi
    result=
    stage "$1" "$2"
    [ -n "$result" ] || return 0
    # shellcheck disable=SC2086
    set -- "$1" $result
    {
        grep -v "^| $1 |" "$report"
        echo "| $1 | $now | $(date -u +%F) | $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1), $(nproc) cores | $2 | $3 | $4 | $5 |"
    } >"$work/report" && cp "$work/report" "$report"
}

# All rows of the test programs that have more of them than in ./check; those of CUDA are the stage after this, those of
# --reproducible another.
test_all_rows()
{
    local -x LATHER_TEST_FULL=1
    local -a tests
    mapfile -t tests < <(tools/full_tests "$work/main" --without device --without same-bits)
    [ ${#tests[@]} -gt 0 ] || row "test programs that have more rows" false || return
    rows "all rows of the test programs" "$work/main" --timeout-multiplier 3 "${tests[@]}"
}

# The CUDA backend on stand-ins and emulators.
test_device()
{
    rows "CUDA without a GPU" "$work/main" --suite device --timeout-multiplier 2 && tools/cuda_changed --record
}

fuzz_convolutions_long()
{
    conv_fuzz "$work/main" --seconds 60 "" avx512_bf16 avx512 avx2 generic
}

# The fast backend's kernels, models and programs too.
test_sanitized_all()
{
    row "a build with ASan and UBSan" configure_sanitized "$work/asan-all" -Dcuda=disabled || return
    local rebuild=
    sanitized "all suites under ASan and UBSan" "$work/asan-all" base tensor nn optim cost_model data dist service train fuzz faults kernels conform models tools
}

break_source()
{
    counted "faults that tests must notice" tools/mutate "$work/main" --list tests/mutants
}

break_source_at_random()
{
    counted "random faults" tools/mutate "$work/main" --seed "$(date +%j)" --count 60 --limit 240
}

# Training, and test programs in the emulator.
test_on_arm64()
{
    local libraries=/usr/lib/aarch64-linux-gnu/pkgconfig suite without
    local rebuild=
    local -a suites tests
    train_on_arm64
    if ! command -v qemu-aarch64 >/dev/null || ! PKG_CONFIG_LIBDIR=$libraries pkg-config --exists cmocka; then
        skip "suites for ARM64" "qemu-user or libcmocka-dev:arm64 is missing"
        return
    fi
    [ -f "$work/arm64-tests/build.ninja" ] || row "a build of the suites for ARM64" meson setup "$work/arm64-tests" \
        --cross-file tools/cross/arm64.ini -Dcuda=disabled -Dmpi=disabled -Dtests=enabled --werror || return
    row "all that is built for ARM64" ninja -C "$work/arm64-tests" || return
    for suite in base service tensor nn dist optim cost_model data fuzz train faults launch models conform; do
        suites+=(--suite "$suite")
    done
    without="replay_matrix|replay_cli|quantized_formats|data_service" # start programs, which the emulator cannot: see below
    without="$without|train_.*|same bits|one_file|plugins|verify" # too, and need libraries for images and configs
    without="$without|launch|launch plan" # start programs
    without="$without|conform cpu .*|conform cuda|conform vectors|conform tiles.*" # of x86-64: levels are ARM64's
    without="$without|bombs" # the emulator does not limit memory
    without="$without|mup|option_pairs" # more than a minute
    mapfile -t tests < <(meson test -C "$work/arm64-tests" --no-rebuild --list "${suites[@]}" | sed -n 's,.* / ,,p' | grep -vxE "$without")
    [ ${#tests[@]} -gt 0 ] || row "suites for ARM64" false || return
    rows "suites for ARM64" "$work/arm64-tests" --timeout-multiplier 5 "${tests[@]}"
    if tools/cross/emulate true 2>/dev/null; then
        row "programs for ARM64 that tests start" tools/cross/emulate meson test -C "$work/arm64-tests" --timeout-multiplier 5 \
            replay_cli quantized_formats launch "launch plan" "train_mlp share" "train_mlp served" train_registered \
            "train_vit program" "train_resnet50 usage" "train_resnet50 predict"
    else
        skip "programs for ARM64 that tests start" "user namespaces have no binfmt_misc (Linux 6.7)"
    fi
    row "operations in f64 have the same bits as here" operations_in_f64
}

operations_in_f64()
{
    local program=tests/tensor/ops/test-tensor-gradients here=$work/operations there=$work/operations-arm64
    ninja -C "$work/arm64-tests" $program && "$work/main/$program" --hashes >"$here" &&
        on_arm64 "$work/arm64-tests/$program" --hashes >"$there" &&
        diff "$here" "$there" && [ "$(wc -l <"$here")" -gt 500 ]
}

# All rows of --reproducible, by another compiler and less optimisation too.
train_on_all()
{
    local -x LATHER_TEST_FULL=1 LATHER_OTHER_BUILDS=$work/O2
    row "a build with -O2" build_programs "$work/O2" -Doptimization=2 || return
    if command -v clang >/dev/null; then
        CC=clang row "a build by clang" build_programs "$work/clang" || return
        LATHER_OTHER_BUILDS=$LATHER_OTHER_BUILDS:$work/clang
    else
        skip "the bits of clang" "clang is not installed"
    fi
    row "training has the same bits in all of them" same_bits
}

list_unexecuted()
{
    row "functions that no test executes" tools/coverage "$work/coverage"
}

# gpu_check on the CPU, in small sizes: all of it but the GPU; --full runs every stage, those for a device on the
# stand-in. Each stage's control must fail.
pack_and_try_gpu_check()
{
    local folder=$work/gpu_check stage control stages= controls=
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
    row "gpu_check reports a missing device" no_such_device "$folder"
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
    row "  and every kernel, call of a library and form of graph ran" tests/tools/smoke_covers.py "$to/calls" "$to/results/plans.tsv" src/tensor/backend/cuda/*/*.cu
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

# FOLDER CALL ROW: succeeds if a failing CALL makes exactly ROW of the smoke stage fail. Kernels run on a busy host here, so the limit is
# longer than smoke's minute.
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
    for stage in smoke train sanitize bench peer shampoo profile; do # conform takes long there and has a separate test
        row "gpu_check $stage on the stand-in" "$1/gpu_check" run "$1.standin" --stage "$stage" --device cuda --small
    done
    rm -rf "$1.standin/results" "$1.standin/cache"
    row "gpu_check quarter on the stand-in" env GPU_CHECK_QUIET=120 "$1/gpu_check" quarter "$1.standin" --total 1200 --device cuda --small
}

no_such_device()
{
    "$1/gpu_check" run "$1" --stage conform --device cuda
    case $? in
    0 | 77) return 0 ;; # there is one
    *) return 1 ;;
    esac
}

# Host logic of the CUDA backend, its kernels on the host, the stand-ins for its libraries. Kernels without pattern_init_flag:
# gcc 12 then overwrites a member of a std::tuple when it clears another's padding.
test_sanitized_cuda()
{
    row "a build with ASan, UBSan and CUDA" configure_sanitized "$work/asan-cuda" -Ddevice_tests=full || return
    local rebuild= leaks=0 # tests of misuse leak on purpose
    sanitized "suites of CUDA under ASan and UBSan" "$work/asan-cuda" cuda emulated recorded-steps
}

test_threads()
{
    row "the build with TSan" build "$work/tsan" -Db_sanitize=thread -Db_lundef=false \
        -Dbuildtype=debugoptimized -Dmpi=disabled -Dc_args=-DLT_NO_OPENMP || return
    # Some tests fork while threads run and start threads in the child.
    TSAN_OPTIONS=halt_on_error=1:die_after_fork=0:suppressions=$root/tools/races.txt \
        rows "loader and communicators under TSan" "$work/tsan" --timeout-multiplier 10 --no-suite full --suite data \
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
    for rows in "embedding_grad" "conv2d_stats f16 means far from 0" "rotary" "vec" "gram" "mode_product" "eigh" "qr" "cast" "ritz"; do
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
    plans_of_newest_cudnn "$program"
}

# A sample of the plans with the newest cuDNN that PyPI has for the build's CUDA: its graphs, engines and descriptions of devices.
plans_of_newest_cudnn() # PROGRAM
{
    local folder=$work/newest-cudnn major
    major=$(ldd "$work/main/liblather-cuda.so" | sed -n 's/.*libcublas\.so\.\([0-9]*\) .*/\1/p')
    rm -rf "$folder"
    python3 -m venv "$folder" >/dev/null 2>&1 && "$folder/bin/python" -m pip install -q --no-deps "nvidia-cudnn-cu$major" >/dev/null 2>&1 || {
        skip "a sample of the newest cuDNN's plans" "nvidia-cudnn-cu$major cannot be had"
        return
    }
    row "a sample of the newest cuDNN's plans" env LD_LIBRARY_PATH="$(echo "$folder"/lib/python3*/site-packages/nvidia/cudnn/lib)" "$1"
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

# Not reported: a workspace's parts of several types; NULL arguments of functions that one macro declares, which cppcheck
# takes for one function; kernels' vector constants, which it cannot parse.
run_cppcheck() # FILE...
{
    cppcheck -q --enable=warning,performance,portability --inline-suppr --error-exitcode=1 \
        --suppress=nullPointerArithmeticRedundantCheck --suppress=invalidPointerCast --suppress=ctunullpointer \
        "--suppress=internalAstError:src/tensor/backend/cpu/kernels/*" -I include -I src -D_GNU_SOURCE \
        -j "$(nproc)" "$@"
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
    if { command -v clang-tidy-14 || command -v clang-tidy; } >/dev/null; then
        checked "clang-tidy, every check" tools/check_tidy "$work/main"
    else
        skip "clang-tidy, every check" "not installed"
    fi
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
    chmod 755 "$prefix" # for tests that run programs as another user
    rm -rf "$work/dnnl3"
    row "the build with oneDNN 3" build "$work/dnnl3" -Donednn_root="$prefix" &&
        rows "suites with oneDNN 3" "$work/dnnl3" --no-suite full --suite tensor --suite nn --suite models --suite conform &&
        conv_fuzz "$work/dnnl3" --seconds 30 "" avx512 avx2 generic
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
        rows "ranks under MPICH" "$work/mpich" --no-suite full --suite dist
}

fuzz_one() # TARGET SECONDS
{
    local found=$work/fuzz/found-$1 folder corpus=
    mkdir -p "$found"
    for folder in "tests/fuzz/corpus/$1" "tests/golden/$1"; do
        [ ! -d "$folder" ] || corpus="$corpus $folder"
    done
    # shellcheck disable=SC2086
    "$work/fuzz/tests/fuzz/fuzzer_$1" -max_total_time="$2" -rss_limit_mb=3000 -max_len=4096 \
        -artifact_prefix="$found/" "$found" $corpus
}

fuzz_long()
{
    local targets seconds=300 target
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
    row "nodes that fail" env LATHER_TEST_FULL=1 python3 tests/tools/test_netbed_hosts.py tools/netbed "$work/main/tools/lather" \
        "$work/main/tests/models/train_mlp"
    row "a model on eight ranks" python3 tests/models/tensor_parallel.py "$work/main/models/vit/train_vit" mpirun a_grid_with_depth_trains_like_one_rank
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

# With LATHER_PYTHON, an interpreter with pip, numpy and torch, their tests run from the wheel too.
python_wheel()
{
    row "the Python package is built, installed, tested and removed" sh python/tests/test_wheel.sh "${LATHER_PYTHON:-/usr/bin/python3}"
}

# Built, installed in a fresh root, tried, removed.
debian_packages()
{
    if [ "$(id -u)" != 0 ] || ! command -v debootstrap >/dev/null; then
        skip "installing in a fresh root" "not root, or debootstrap is missing"
        return
    fi
    row "from source and as a wheel" tests/packages/source.sh
    if command -v lintian >/dev/null; then
        row "Debian packages" tests/packages/debian.sh
    else
        skip "Debian packages" "lintian is missing"
    fi
}

storm_full()
{
    storm 200
    counted "60 kills of ranks, nodes and launchers of a gang" tools/gang_storm.py "$work/main/tools/lather" \
        "$work/main/tests/models/train_mlp" --kills 60
    syscall_storm 1000 200 200
    row "20 kills of reproduce" /usr/bin/python3 tests/tools/test_reproduce.py \
        "$work/main/models/resnet50/train_resnet50" --kills 20 \
        --only killed_at_random_moments_it_gives_the_same_report
}

memory_long()
{
    row "the loader's memory over 100,000 images" "$work/main/tests/data/test_data_loader_memory" 10000 100000
}

# Builds that leave much out, and two compilers in one, which have an OpenMP each.
build_apart()
{
    local tiny="--data synthetic:16:32:4 --arch resnet10 --width 8 --batch-size 4 --max-steps 2 --epochs 1"
    # shellcheck disable=SC2086
    row "the build without cpu and MPI, for older GPUs" build "$work/bare" -Dcpu=disabled -Dmpi=disabled \
        -Dgpu_arch=80 && row "  and it trains" "$work/bare/models/resnet50/train_resnet50" --device ref \
        --progress off --eval-every 0 $tiny
    row "the build with portable calls" build "$work/portable" -Dportable=true -Dcuda=disabled &&
        rows "suites with portable calls" "$work/portable" --no-suite full --suite base --suite data --suite dist --suite service \
            --suite train --suite launch
    row "the build without oneDNN" build "$work/plain" -Donednn=disabled -Dcuda=disabled &&
        rows "suites without oneDNN" "$work/plain" --no-suite full --suite tensor --suite nn &&
        rows "networks and kernels without oneDNN" "$work/plain" "models fused" "models resnet" "models resnet_fold" \
            "models builtin_kernels" "models gpt" "models vit" "conform step" "conform cpu generic" "conform cpu avx2" "conform cpu avx512"
    row "the build without cpu, MPI and CUDA" build "$work/least" -Dcpu=disabled -Dmpi=disabled -Dcuda=disabled
    command -v clang >/dev/null || {
        skip "clang with g++" "clang is not installed"
        return
    }
    local -x CC=clang CXX=g++
    row "clang with g++" build "$work/mixed" -Dmpi=disabled -Ddevice_tests=full &&
        row "  and the kernels conform" "$work/mixed/tests/conform/conform" --backend emulated
}

# A barrier, a bound or a wait less: some row must notice.
break_kernels()
{
    counted "kernels with a fault" tests/cuda/mutate.py "$work/main"
    counted "waits that are dropped" tests/cuda/standin/waits.py "$work/main"
    row "tiny nodes and modelled time of every recorded step" python3 tests/cuda/standin/nodes.py "$work/main" every_recorded_step_has_at_most_so_many_tiny_nodes
    row "Shampoo's step relative to AdamW's, by the model and on its page" python3 tests/cuda/standin/nodes.py "$work/main" shampoo_takes_as_long_as_the_page_says
}
