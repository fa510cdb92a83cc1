#!/bin/sh
# bench overlap: stdout is one JSON object; a slow link is waited for. $1: bench
set -u
bench=$1
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
passed=0 failed=0

expect() { # name, condition as a command
    name=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
    else
        echo "FAILED: $name"
        failed=$((failed + 1))
    fi
}

run() { # link, file, options
    link=$1 file=$2
    shift 2
    "$bench" overlap --arch resnet10 --image-size 32 --batch-size 2 --steps 1 --grad-comm-dtype bf16 \
        --comm-model "$link" --json "$@" >"$folder/$file" 2>"$folder/stderr"
}

waited() { # file
    sed 's/.*"waited_milliseconds_without_overlap": \([0-9]*\).*/\1/' "$folder/$1"
}

run 50,0.2 slow
expect "it ends well" test $? -eq 0
expect "stdout is one line" test "$(wc -l <"$folder/slow")" -eq 1
for field in '"benchmark": "overlap"' '"milliseconds": ' '"steps": 1' '"batch_size": 2' '"ranks": 2' \
    '"exposed_ratio": ' '"peak_memory_bytes": ' '"bytes_per_step": '; do
    expect "the object has $field" grep -q "$field" "$folder/slow"
done
# 5.4 M gradients of 2 bytes on 0.2 Gbit/s: 434 ms, whatever else the machine does
expect "a slow link is waited for" test "$(waited slow)" -gt 300
run 0,1000 fast
expect "a fast one too" test $? -eq 0
run 5 wrong
expect "half a link is refused" test $? -eq 2
expect "and named" grep -q -e "--comm-model" "$folder/stderr"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
