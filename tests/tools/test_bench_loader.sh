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
    '"threads": 1' '"peak_memory_bytes": ' '"bad_images": 0'; do
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
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
