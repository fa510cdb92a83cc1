# gpu_check's stages that measure: bench, peer, shampoo. shellcheck shell=bash

# KEY: prints its value in the JSON object of the last log.
number_of()
{
    sed -n 's/.*"'"$1"'": *"\{0,1\}\([^",}]*\(,[0-9]*x[0-9]*\)*\).*/\1/p' "$log" | tail -1
}

# Sets the caller's variables; smaller sizes with --small, bf16 with --device cpu. All activations are kept, as in gpu-model.md.
bench_shape()
{
    steps=30 warm=5 batch=256 amp=f16 shape=(--recompute off)
    ! $small || shape+=(--image-size 32 --arch resnet10 --num-classes 10) steps=1 warm=1 batch=2
    [ "$device" != cpu ] || amp=bf16
}

timed="images/s | ms, median | ms, mean | peak MiB | first step, s | "

# Prints the numbers of a training step; the function $last_cell prints the last column.
timed_cells()
{
    echo "$(number_of images_per_second) | $(number_of milliseconds) | $(number_of mean_milliseconds) | $(
        awk -v b="$(number_of peak_memory_bytes)" 'BEGIN { printf "%.0f", b / 1048576 }') | $(
        number_of cold_start_seconds) | $("$last_cell")"
}

# BATCH PRECISION [ARGUMENTS...]: autotunes a step's plans and compiles its fused kernels in a separate part, so that parts that
# measure do not spend their time on it. Runs once for each machine; $shape as set by bench_shape.
tune()
{
    local section most=240 tell=last_line words title key
    words=${*:3}
    title="batch $1, $2${words:+, $words}: timed and kept, not measured" key="tuned.$*"
    [ ! -d "$dir/cache" ] || [ "$(known "$key")" != "$(cat "$dir/logs/machine")" ] || return 0
    table "plans"
    part "$title" "$bin/bench" train --device "$device" --json --batch-size "$1" --amp "$2" --steps 1 --warmup 1 "${shape[@]}" "${@:3}" &&
        fact "$key" "$(cat "$dir/logs/machine")"
}

# --- bench ---

# BATCH: prints the roof of ResNet-50's fused 16-bit graph in milliseconds. Its kernels move 278 MB per image at the measured rate
# of copies; products that take longer than their bytes add 10.4 us per image at 790 TFLOP/s, scaled to the measured rate.
roof()
{
    awk -v batch="$1" -v rate="$(known bench.copy)" -v flop="$(known bench.product)" 'BEGIN {
        if (rate > 0 && flop > 0)
            print batch * (278e6 / rate / 1e6 + 10.44e-3 * 790e3 / flop) }'
}

empty_cell()
{
    :
}

# KEY BATCH: adds the ratio of the last step to the roof as a fact, for a successful step at full size.
roof_fact()
{
    local least ms
    least=$(roof "$2") ms=$(number_of milliseconds)
    $small || [ -z "$least" ] || [ -z "$ms" ] || fact "$1" "$(awk -v ms="$ms" -v roof="$least" 'BEGIN { print ms / roof }')"
}

# Prints the ratio of a 16-bit step at full size to the roof.
ratio_to_roof()
{
    local least
    least=$(roof "$cell")
    [ -z "$least" ] || awk -v ms="$(number_of milliseconds)" -v roof="$least" 'BEGIN { printf "%.2f x of %.2f ms", ms / roof, roof }'
}

# BATCH PRECISION TITLE-END ARGUMENTS...: a part that measures a training step.
bench_step()
{
    local cell=$1 precision=$2 title="batch $1, $2$3" last_cell=empty_cell
    shift 3
    case $small$precision in false*16) last_cell=ratio_to_roof ;; esac
    tell=timed_cells
    part "$title" "$bin/bench" train --device "$device" --json --batch-size "$cell" --amp "$precision" \
        --steps "$steps" --warmup "$warm" "${shape[@]}" "$@" && [ "$log" != /dev/null ] && fact "ms.$title" "$(number_of milliseconds)"
    tell=last_line
}

ceiling_cells()
{
    sed -n 's/^\(copy .*\)/\1/p' "$log" | tail -1
}

measure_ceilings()
{
    local sizes=(--megabytes 2048 --side 8192)
    [ "${device%%:*}" = cuda ] && ! $small || sizes=(--megabytes 8 --side 128)
    table "ceilings"
    tell=ceiling_cells
    if part "copy and matrix products" "$bin/bench" ceilings --device "$device" "${sizes[@]}" && [ -s "$log" ]; then
        fact bench.copy "$(sed -n 's/^copy \([0-9.]*\) GB.*/\1/p' "$log")"
        fact bench.product "$(sed -n 's/.* f16 \([0-9.]*\) GFLOP.*/\1/p' "$log")"
    fi
    part "the same with TF32" "$bin/bench" ceilings --device "$device" --tf32 "${sizes[@]}"
    tell=last_line
}

# AMP WAY: prints the speed-up over --fused off, from medians over turns.
fused_ratio()
{
    grep "^ms.batch $batch, $1, --fused" "$dir/results/facts" | sort -t "$tab" -k 2,2g | awk -F '\t' -v way="$2" '
        function middle(list, n) { return (list[int((n + 1) / 2)] + list[int((n + 2) / 2)]) / 2 }
        / --fused off,/ { off[++o] = $2 }
        index($1, " --fused " way ",") { other[++n] = $2 }
        END { if (o && n) printf "%.3f x as fast as --fused off\n", middle(off, o) / middle(other, n) }'
}

# AMP WAY...: measures the settings of --fused in turns.
bench_fused()
{
    local precision=$1 way turn=0
    shift
    for way in "$@"; do
        turn=$((turn + 1))
        bench_step "$batch" "$precision" ", --fused $way, turn $turn" --fused "$way"
    done
    for way in on auto; do
        row "batch $batch, $precision: --fused $way" "" "" "$(fused_ratio "$precision" $way)"
    done
}

# Measures the first step without cached plans, then with plans from disk.
bench_first()
{
    local -x XDG_CACHE_HOME=$dir/work/cold
    rm -rf "$XDG_CACHE_HOME"
    bench_step "$batch" "$amp" ", no plans on disk"
}

stage_bench()
{
    local steps warm batch amp shape cell
    bench_shape
    tune "$batch" "$amp"
    most=90
    measure_ceilings
    [ "$control" != bench ] || part "control" "$bin/bench" train --device none
    table "a ResNet-50 training step" "${timed}relative to the roof"
    bench_step "$batch" "$amp" ""
    roof_fact bench.roof "$batch"
    bench_first
    bench_step "$batch" "$amp" ", --no-graph" --no-graph
    $small || tune 16 f16
    $small || bench_step 16 f16 ""
    bench_step "$batch" "$amp" ", --deterministic" --deterministic
    $small || bench_step 64 f16 ""
    $small || bench_step 16 f16 ", --no-graph" --no-graph
    table "unfused against fused graph, alternating" "${timed}relative to the roof"
    if $small; then
        bench_fused "$amp" off on auto
        bench_transformers
        return
    fi
    bench_fused f16 off on auto off on auto
    table "other precisions" "${timed}relative to the roof"
    tune 256 tf32
    bench_step 256 tf32 ""
    tune 256 bf16
    bench_step 256 bf16 ""
    roof_fact bench.roof.bf16 256
    most=240
    bench_transformers
}

# --- peer ---

# COMMAND OPTION...: runs bench/peer.py.
peer()
{
    local -x LATHER_LIBRARY_PATH=$LD_LIBRARY_PATH
    python "$dir/bench/peer.py" "$1" --python "$(cat "$dir/logs/python")" --device "$device" --facts "$dir/work/facts" "${@:2}"
}

# TITLE: fails, with a skipped row, if there is no PyTorch.
needs_torch()
{
    has_torch && return
    done_before "$1" >/dev/null || pass_over "$1" skipped "no Python here has torchvision, and torch for this device"
    return 1
}

take_facts()
{
    [ ! -f "$dir/work/facts" ] || cat "$dir/work/facts" >>"$dir/results/facts"
    rm -f "$dir/work/facts"
}

# TITLE: adds a row for each contestant in the last log.
contestants()
{
    local name cells
    while IFS=$tab read -r name cells; do
        row "$1: $name" "" "" "$cells"
    done < <(sed -n 's/^| [bt]*f[0-9]* | \([^|]*\) | \(.*[^ |]\)[ |]*$/\1\t\2/p' "$log")
}

peer_cells()
{
    :
}

# BATCH:AMP SECONDS WAYS [TITLE-END]: a part that compares with PyTorch in these modes.
peer_cell()
{
    local batch=${1%:*} precision=${1#*:} seconds=$2 ways=$3 title
    title="batch $batch, $precision${4-}"
    tune "$batch" "$([ "$precision" = f32 ] && echo off || echo "$precision")"
    most=$((seconds + 20)) tell=peer_cells
    # A part that is cut off would count as a failure of PyTorch.
    $small || [ "$(left)" -gt "$most" ] || done_before "$title" >/dev/null || {
        pass_over "$title" "LEFT OUT" "it may take $most s"
        return
    }
    [ "$(left)" -gt "$most" ] || seconds=$(($(left) - 20))
    rm -f "$dir/work/facts"
    part "$title" peer network --bench "$bin/bench" --dtype "$precision" --batch-size "$batch" \
        --budget "$seconds" --peers "$ways" "${rounds[@]}"
    [ ! -s "$log" ] || contestants "$title"
    take_facts
    tell=last_line
}

stage_peer()
{
    local rounds=(--rounds 3 --steps 20 --warmup 5) shape=()
    table "lather and PyTorch, alternating" "images/s, median | range | lather is faster by | peak memory | first step | compile"
    [ "$control" != peer ] || part "control" false
    needs_torch "PyTorch" || return
    if $small; then
        shape=(--arch resnet18 --image-size 32)
        rounds=(--rounds 2 --steps 1 --warmup 1 "${shape[@]}" --layout channels_last)
        peer_cell 2:f32 100 eager,compiled
        return
    fi
    peer_cell 256:f16 200 eager,compiled
    peer_cell 16:f16 230 eager,compiled,graphs
    peer_cell 256:bf16 180 eager,compiled
    peer_cell 256:f16 180 graphs ", torch.compile's other mode"
}

# --- more ---

# Batches and precisions without a target.
stage_more()
{
    local steps warm batch amp shape cell rounds=(--rounds 3 --steps 20 --warmup 5)
    bench_shape
    table "other batches and precisions of lather and PyTorch, alternating" "images/s, median | range | lather is faster by | peak memory | first step | compile"
    if ! $small && needs_torch "PyTorch"; then
        for cell in 64:f16 256:tf32 64:bf16 16:bf16 64:tf32 16:tf32; do
            peer_cell $cell 160 eager,compiled
        done
    fi
    table "other batches and precisions" "${timed}relative to the roof"
    most=150
    for cell in $($small && echo 2:off || echo 64:bf16 16:bf16 64:tf32 16:tf32); do
        bench_step "${cell%:*}" "${cell#*:}" ""
    done
    $small && return
    table "unfused against fused graph in bf16, alternating" "${timed}relative to the roof"
    most=240
    bench_fused bf16 off on auto off on auto
}

# --- shampoo ---

ratio_to_adamw()
{
    awk -v a="$(number_of mean_milliseconds)" -v b="$(known shampoo.adamw)" 'BEGIN { if (b > 0) printf "%.3f", a / b }'
}

# F BLOCK: prints the modelled ratio to a step with AdamW, products in TF32, from the carried docs/results/gpu-model.md; nothing if
# it has no such row.
modelled()
{
    sed -n "s/^| f = $1, block $2 |.*| \\([0-9.]*\\) | [0-9.]* |\$/\\1/p" "$dir/gpu-model.md" 2>/dev/null
}

# Prints the measured ratio, and the modelled one for $f, $block and $products.
ratio_to_adamw_and_model()
{
    local model=''
    [ "$products" = f32 ] || model=$(modelled "$f" "$block")
    echo "$(ratio_to_adamw)${model:+ (model $model)}"
}

# TURN: measures AdamW, the reference of the following rows.
adamw_step()
{
    local last_cell=empty_cell
    tune "$batch" "$amp"
    tell=timed_cells
    part "adamw, turn $1" "$bin/bench" train --device "$device" --json --batch-size "$batch" --amp "$amp" --optim adamw \
        --steps $least --warmup "$warm" "${shape[@]}" && [ -s "$log" ] && fact shampoo.adamw "$(number_of mean_milliseconds)"
    tell=last_line
}

# F BLOCK tf32|f32: measures the mean over whole refresh intervals after the first; a median step may have no refresh. tf32|f32
# is the precision of gram and mode products; the targets are for TF32.
shampoo_step()
{
    local f=$1 block=$2 products=$3 last_cell=ratio_to_adamw_and_model flag=--no-tf32 key=.f32
    [ "$products" = f32 ] || flag=--tf32 key=
    tune "$batch" "$amp" --optim shampoo --precondition-frequency 1 --max-preconditioner-dim "$block" $flag
    tell=timed_cells
    part "shampoo, f = $f, block $block, products in ${products^^}" "$bin/bench" train --device "$device" --json \
        --batch-size "$batch" --amp "$amp" --optim shampoo --precondition-frequency "$f" --max-preconditioner-dim "$block" $flag \
        --steps $((f > least ? f : least / f * f)) --warmup "$warm" "${shape[@]}"
    tell=last_line
    [ -s "$log" ] && [ -n "$(number_of mean_milliseconds)" ] || return
    fact "factors.$block" "$(number_of factor_sides)"
    fact "shampoo.$f.$block$key" "$(ratio_to_adamw)"
}

# F:BLOCK:PRECISION...: measures each, and AdamW before every second one.
compare_with_adamw()
{
    local cell f block products
    [ $# -gt 0 ] || return
    table "Shampoo and AdamW: mean steps" "${timed}relative to AdamW"
    for cell in "$@"; do
        [ $((turn % 2)) = 0 ] || adamw_step $((turn / 2 + 1))
        IFS=: read -r f block products <<<"$cell"
        shampoo_step "$f" "$block" "$products"
        turn=$((turn + 1))
    done
}

# Prints the solver's time summed over sizes.
roots_cells()
{
    echo "$(roots_sum) ms together"
}

roots_sum()
{
    grep -o '"solver": "rational", "milliseconds": [-0-9.eE+]*' "$log" | awk '{ sum += $4 } END { printf "%.4g", sum }'
}

# BLOCK SIDES: measures a refresh, here and as a loop of torch.linalg.eigh.
refresh()
{
    tell=roots_cells
    part "ours, block $1" "$bin/bench" roots --device "$device" --sizes "$2" --conditions 1e4 --batch 2 --repeats 3 \
        --solvers rational --no-accuracy --json && [ -s "$log" ] && fact "roots.$1" "$(roots_sum)"
    sed -n '/^{/d; s/^[0-9.e+]* *\([0-9]* x[0-9]*\) *rational *\([0-9.]* ms\).*/\1  \2/p' "$log" 2>/dev/null | say "ours, block $1"
    tell=last_line
    needs_torch "a loop of torch.linalg.eigh, block $1" || return
    rm -f "$dir/work/facts"
    part "a loop of torch.linalg.eigh, block $1" peer eigh "$2" --rounds 2 && sed -i "s/^eigh.milliseconds/eigh.$1/" "$dir/work/facts"
    grep '^|' "$log" 2>/dev/null | say "a loop of torch.linalg.eigh, block $1"
    take_facts
}

# BLOCK: prints the sizes and counts of ResNet-50's factors, as measured by shampoo_step or as known.
sides()
{
    local found
    found=$(known "factors.$1")
    case $found$1 in
    "1024") found=1024x29,1000x2,576x3,512x27,256x32,147x1,128x16,64x12,9x13 ;;
    "2048") found=2048x7,1152x4,1024x14,1000x1,576x3,512x22,256x32,147x1,128x12,64x12,9x9 ;;
    "64") found=64x3,16x2 ;;
    esac
    echo "$found"
}

stage_shampoo()
{
    local steps warm batch amp shape cell turn=1 least=30 blocks="2048 1024"
    local first='50:2048:tf32 1:1024:tf32 50:2048:f32 1:1024:f32'
    local second='50:1024:tf32 1:2048:tf32 10:1024:tf32 10:2048:tf32 100:2048:tf32 100:1024:tf32'
    bench_shape
    ! $small || first="3:64:tf32" second="" least=2 blocks=64
    most=90
    compare_with_adamw $first
    [ "$control" != shampoo ] || part "control" "$bin/bench" train --optim none
    table "a refresh: roots of all of the network's factors"
    for cell in $blocks; do
        refresh "$cell" "$(sides "$cell")"
    done
    # shellcheck disable=SC2086
    compare_with_adamw $second
}
