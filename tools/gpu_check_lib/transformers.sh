# gpu_check's parts for train_gpt and train_vit, in the stages train, bench and profile. shellcheck shell=bash

# PROGRAM COMMAND...: runs the command with that program instead of train_resnet50.
of_program()
{
    local -x trains=$1
    shift
    "$@"
}

# Writes a text of some 200 KB that a model learns within a few steps.
write_text()
{
    local words="attention is a sum of values by shares that a query has of keys, and shares are exponentials. "
    mkdir -p "$dir/work"
    [ -s "$dir/work/text.txt" ] || yes "$words" | head -2200 >"$dir/work/text.txt"
}

# MOST RUN ARGUMENTS...: trains; fails unless the last loss is at most MOST times the first.
loss_falls()
{
    local most=$1 name=$2
    shift 2
    train "$name" "$@" || return
    sed -n 's/.*"event":"step".*"loss":\([-0-9.eE+]*\).*/\1/p' "$dir/work/$name/metrics.jsonl" | awk -v most="$most" '
        NR == 1 { first = $1 } { last = $1 }
        END { printf "loss %.3f, then %.3f, at most %.3f wanted\n", first, last, most * first; exit !(NR > 1 && last <= most * first) }'
}

# Prints mean milliseconds per step and the rate, without the first WARM steps.
mean_step() # RUN WARM
{
    sed -n 's/.*"event":"step".*_per_second":\([0-9.eE+-]*\).*"seconds":\([0-9.eE+-]*\).*/\1 \2/p' "$dir/work/$1/metrics.jsonl" | awk -v warm="$2" '
        NR > warm { n++; seconds += $2; units += $1 * $2 }
        END { if (!n) exit 1; printf "%.2f ms a step, %.0f a second, %d steps\n", 1000 * seconds / n, units / seconds, n }'
}

steps_of() # RUN WARM ARGUMENTS...
{
    local name=$1 warm=$2
    shift 2
    train "$name" "$@" && mean_step "$name" "$warm"
}

# Sets the callers' variables: GPT-2 with 8 sequences of 1024 tokens, ViT-S with 256 images, or small models.
transformer_shapes()
{
    gpt=(--data "$dir/work/text.txt" --arch gpt2 --vocab-size 50304 --seq-len 1024 --batch-size 8)
    vit=(--data synthetic:1024:224:1000 --arch vit_s_16 --batch-size 256)
    few=(--data "$dir/work/text.txt" --layers 2 --heads 4 --width 64 --seq-len 64 --batch-size 16)
    tiny=(--data synthetic:64:16:4 --arch vit_ti_16 --patch-size 4 --depth 2 --heads 2 --width 32 --batch-size 16)
    if $small; then
        gpt=(--data "$dir/work/text.txt" --layers 2 --heads 2 --width 32 --seq-len 32 --batch-size 4)
        vit=(--data synthetic:64:16:4 --arch vit_ti_16 --patch-size 4 --depth 2 --heads 2 --width 16 --batch-size 8)
    fi
    once=(--device "$device" --eval-every -1 --epochs 100)
    write_text
}

train_transformers()
{
    local gpt vit few tiny once steps=60 lr=0.003
    transformer_shapes
    ! $small || few=("${gpt[@]}") tiny=("${vit[@]}") steps=30
    [ "$control" != transformers ] || lr=0
    part "train_gpt learns a text, --amp bf16" of_program train_gpt loss_falls 0.9 gpt "${few[@]}" "${once[@]}" --optim adamw --lr $lr --max-steps $steps --amp bf16
    part "train_gpt: recorded = eager, --amp bf16" of_program train_gpt recorded_is_eager gpt "${few[@]}" "${once[@]}" --max-steps 6 --amp bf16
    part "train_vit: recorded = eager, --amp bf16" of_program train_vit recorded_is_eager vit "${tiny[@]}" "${once[@]}" --max-steps 6 --amp bf16
}

bench_transformers()
{
    local gpt vit few tiny once steps=25 warm=10
    transformer_shapes
    ! $small || steps=4 warm=2
    table "transformers, bf16"
    part "train_gpt: ${gpt[*]:2}" of_program train_gpt steps_of gpt-bench $warm "${gpt[@]}" "${once[@]}" --max-steps $steps --amp bf16
    part "train_vit: ${vit[*]:2}" of_program train_vit steps_of vit-bench $warm "${vit[@]}" "${once[@]}" --max-steps $steps --amp bf16
}

# RUN ARGUMENTS...: prints the operations of a step, as by_operation does for ResNet-50.
spans_of()
{
    local name=$1
    shift
    LATHER_SYNC=1 train "$name" "$@" --max-steps 2 --no-graph --profile "$dir/work/$name.json" && sum_last_step "$dir/work/$name.json"
}

profile_transformers()
{
    local gpt vit few tiny once program shape
    transformer_shapes
    table "a training step of transformers in bf16, not captured"
    tell=operation_cells
    for program in train_gpt train_vit; do
        shape=("${gpt[@]}")
        [ $program = train_gpt ] || shape=("${vit[@]}")
        part "$program by operation" of_program $program spans_of "$program-spans" "${shape[@]}" "${once[@]}" --amp bf16 &&
            say_rows "$program by operation"
    done
    tell=last_line
}
