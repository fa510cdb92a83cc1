#!/bin/sh
# bench loader: stdout is one JSON object, and the samples it writes are the same for any number of
# threads. $1: bench
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

run() { # threads, seed, file
    "$bench" loader --data synthetic:40:20:4 --size 16 --batch-size 8 --threads "$1" --seed "$2" \
        --device ref --json --dump "$folder/$3" --count 24 2>"$folder/stderr"
}

run 1 5 one >"$folder/json"
run 3 5 three >/dev/null
run 1 6 other >/dev/null
expect "stdout is one line" test "$(wc -l <"$folder/json")" -eq 1
for field in '"benchmark": "loader"' '"images_per_second": ' '"steps": 5' '"batch_size": 8' \
    '"threads": 1' '"peak_memory_bytes": ' '"bad_images": 0' '"cpu_milliseconds": ' \
    '"idle_seconds": ' '"mean_queue": ' '"starved_batches": ' '"bound": "'; do
    expect "the object has $field" grep -q "$field" "$folder/json"
done
expect "1 and 3 threads write the same samples" cmp -s "$folder/one" "$folder/three"
expect "another seed writes others" test "$(cmp -s "$folder/one" "$folder/other"; echo $?)" -eq 1
size=$(wc -c <"$folder/one")
expect "24 samples are in the file" test "$size" -gt $((24 * 3 * 16 * 16))
"$bench" loader --data /no/such/folder >"$folder/out" 2>"$folder/stderr"
expect "a missing folder fails" test $? -eq 1
expect "and is named" grep -q "/no/such/folder" "$folder/stderr"
expect "with nothing on stdout" test ! -s "$folder/out"
# A consumer that rests finds batches ready; one that does not waits for them.
bound() # compute-ms
{
    "$bench" loader --data synthetic:4096:80:4 --batch-size 16 --threads 1 --warmup 1 --steps 6 \
        --device ref --json --compute-ms "$1" 2>"$folder/stderr" | grep -o '"bound": "[a-z-]*"'
}
expect "a slow consumer bounds a run" test "$(bound 200)" = '"bound": "compute-bound"'
expect "an idle consumer waits for the loader" test "$(bound 0)" = '"bound": "loader-bound"'

# Inputs that grow, and every flag of the transform.
"$bench" loader --data synthetic:24:40:4 --image-size-schedule 0:8,1:16 --repeated-aug 2 --decode fast \
    --interpolation bicubic --batch-size 8 --steps 6 --device ref --json --dump "$folder/grown" \
    --count 3 >"$folder/json" 2>"$folder/stderr"
expect "two epochs of two sizes run" grep -q '"steps": 6' "$folder/json"
expect "and the first size is dumped" grep -aq '"shape":\[3,3,8,8\]' "$folder/grown"
"$bench" loader --data synthetic --image-size-schedule 4:8 >"$folder/out" 2>"$folder/stderr"
expect "a wrong schedule is refused" grep -q "the first must begin at 0" "$folder/stderr"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
