#!/bin/bash
# Fills the disk while a checkpoint is written: training stops cleanly or continues, with a message,
# and resuming from the last good checkpoint works.
#
#   tools/check_full_disk.sh TRAIN_RESNET50
#
# A small tmpfs where that can be mounted; exit status 77 where it cannot.
set -u
program=$1 folder=$(mktemp -d) passed=0 failed=0
trap 'umount "$folder/disk" 2>/dev/null; rm -rf "$folder"' EXIT
[ -x "$program" ] || {
    echo "$program is not there"
    exit 77
}
mkdir "$folder/disk"
mount -t tmpfs -o size=3m none "$folder/disk" 2>/dev/null || {
    echo "a tmpfs cannot be mounted here"
    exit 77
}

holds() # SENTENCE COMMAND...
{
    sentence=$1
    shift
    if "$@" >"$folder/out" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "failed: $sentence"
        cat "$folder/out" "$folder/log"
    fi
}

train() # STEPS
{
    "$program" --data synthetic:32:16:4 --arch resnet18 --width 8 --batch-size 8 --epochs 1000 \
        --max-steps "$1" --checkpoint-every 2 --keep 0 --eval-every 0 --limit-eval-batches 1 \
        --threads 1 --workers 1 --no-tensorboard --progress lines --resume auto \
        --output "$folder/disk/run" >"$folder/log" 2>&1 </dev/null
}

train 1000
code=$?
holds "the program ends by itself, with success or an error" test "$code" -le 3
holds "its message names the missing space" grep -qi 'space' "$folder/log"
newest=$(ls -d "$folder"/disk/run/checkpoints/step-* 2>/dev/null | sort -t- -k2 -n | tail -1)
holds "a good checkpoint is left" test -s "$newest/model.safetensors"
# With free space again, the run resumes from it.
mount -o remount,size=64m "$folder/disk"
step=${newest##*-}
train $((step + 2))
holds "it can be resumed" test $? = 0
holds "and continues" test -d "$folder/disk/run/checkpoints/step-$((step + 2))"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
