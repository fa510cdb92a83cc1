#!/bin/sh
# tokenize: token files from text, complete or absent, verified, and one clear line on bad input.
#
#   test_tokenize.sh TOKENIZE-PROGRAM SOURCE-FOLDER
set -u
tokenize=$1 source=$2 folder=$(mktemp -d) passed=0 failed=0
trap 'rm -rf "$folder"' EXIT

holds() # SENTENCE COMMAND...
{
    sentence=$1
    shift
    if "$@" >"$folder/out" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "failed: $sentence"
        cat "$folder/out"
    fi
}
says() # PATTERN COMMAND...
{
    pattern=$1
    shift
    "$@" >"$folder/said" 2>&1
    cat "$folder/said"
    grep -q "$pattern" "$folder/said"
}
ends_with() # STATUS COMMAND...
{
    want=$1
    shift
    "$@"
    [ $? = "$want" ]
}
status_of() # STATUS PATTERN COMMAND...
{
    want=$1 pattern=$2
    shift 2
    "$@" >"$folder/said" 2>&1
    got=$?
    cat "$folder/said"
    [ $got = "$want" ] && grep -q "$pattern" "$folder/said" && [ "$(wc -l <"$folder/said")" = 1 ]
}
nothing_new()
{
    ! ls -d "$folder"/new* >/dev/null 2>&1
}

mkdir "$folder/text"
for i in 1 2 3 4 5 6 7 8 9; do
    printf 'document %s has words\n' $i >"$folder/text/$i.txt"
done
holds "a folder of files is packed" says "176 tokens of 8 documents for training, 22 of 1 for validation" \
    "$tokenize" --verify "$folder/text" "$folder/a"
holds "  into two token files" test -s "$folder/a/train.tokens" -a -s "$folder/a/val.tokens"
holds "  which are verified" says "176 tokens verified" "$tokenize" --only-verify "$folder/a/train.tokens"
holds "  the same from call to call" sh -c "'$tokenize' -- '$folder/text' '$folder/b' && cmp '$folder/a/train.tokens' '$folder/b/train.tokens'"
holds "  not over an existing folder" status_of 1 "a: already exists" "$tokenize" "$folder/text" "$folder/a"
holds "characters are ids too" says "tokens of 8 documents" "$tokenize" -t char "$folder/text" "$folder/c"
holds "GPT-2's vocabulary gives fewer tokens" says "1\.[5-9][0-9]* bytes of text per token" \
    "$tokenize" -t "gpt2:$source/tests/golden/bpe" "$source/README.md" "$folder/d"
holds "without validation there is one file" sh -c \
    "'$tokenize' --val-fraction 0 '$folder/text' '$folder/e' && test ! -e '$folder/e/val.tokens'"

printf 'x' | dd of="$folder/a/train.tokens" bs=1 seek=140 conv=notrunc 2>/dev/null
holds "a changed byte is found" status_of 1 "train.tokens: ids 0 .. 175 are corrupt" \
    "$tokenize" --only-verify "$folder/a/train.tokens"
printf "ab\377cdefghijklmnopq" >"$folder/latin.txt"
holds "text that is not UTF-8 is named" status_of 1 "latin.txt: the byte 0xff at offset 2 is not UTF-8" \
    "$tokenize" -t char "$folder/latin.txt" "$folder/new"
holds "  and nothing is written" nothing_new
holds "an unknown tokenizer" status_of 1 "got 'word', want byte" "$tokenize" -t word "$folder/text" "$folder/new"
holds "a vocabulary that is not there" status_of 1 "nowhere/vocab.json: No such file" \
    "$tokenize" -t "gpt2:$folder/nowhere" "$folder/text" "$folder/new"
holds "text that is not there" status_of 1 "nowhere: No such file" "$tokenize" "$folder/nowhere" "$folder/new"
holds "  and nothing is written in any of these" nothing_new
holds "a wrong command line ends with 2" ends_with 2 "$tokenize" "$folder/text"
holds "  an unknown option too" ends_with 2 "$tokenize" --bogus

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
