#!/bin/sh
# bench loader: stdout is one JSON object. $1: bench
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

"$bench" loader --data synthetic:40:20:4 --size 16 --batch-size 8 --threads 1 --device ref --json >"$folder/json" 2>"$folder/stderr"
expect "stdout is one line" test "$(wc -l <"$folder/json")" -eq 1
for field in '"benchmark": "loader"' '"images_per_second": ' '"steps": 5' '"batch_size": 8' \
    '"threads": 1' '"peak_memory_bytes": ' '"bad_images": 0' '"cpu_milliseconds": ' \
    '"idle_seconds": ' '"mean_queue": ' '"starved_batches": ' '"bound": "'; do
    expect "the object has $field" grep -q "$field" "$folder/json"
done
"$bench" loader --data /no/such/folder >"$folder/out" 2>"$folder/stderr"
expect "a missing folder fails" test $? -eq 1
expect "and is named" grep -q "/no/such/folder" "$folder/stderr"
expect "with nothing on stdout" test ! -s "$folder/out"
# A consumer that rests finds batches ready; one that does not waits for them.
bound() # compute-ms
{
    "$bench" loader --data synthetic:4096:80:4 --batch-size 4 --threads 1 --warmup 1 --steps 6 \
        --device ref --json --compute-ms "$1" 2>"$folder/stderr" | grep -o '"bound": "[a-z-]*"'
}
[ -n "${LATHER_SANITIZED-}" ] || expect "a slow consumer bounds a run" test "$(bound 200)" = '"bound": "compute-bound"'
expect "an idle consumer waits for the loader" test "$(bound 0)" = '"bound": "loader-bound"'

"$bench" loader --data synthetic:24:40:4 --decode fast --size 16 --batch-size 8 --steps 6 --device ref --json >"$folder/json" 2>"$folder/stderr"
expect "epochs follow each other" grep -q '"steps": 6' "$folder/json"
"$bench" loader --data synthetic:24:40:4 --normalize --size 16 --batch-size 8 --device ref --json >"$folder/json" 2>"$folder/stderr"
expect "batches are normalized to f32" grep -q '"dtype": "f32"' "$folder/json"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
