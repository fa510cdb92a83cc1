#!/bin/sh
# report: a page from metrics, one clear line on bad input, nothing written half.
#
#   test_report.sh REPORT-PROGRAM
set -u
report=$1 folder=$(mktemp -d) passed=0 failed=0
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
fails()
{
    ! "$@"
}

mkdir "$folder/run" "$folder/empty"
for step in 1 2 3; do
    echo "{\"event\":\"step\",\"step\":$step,\"epoch\":0,\"loss\":$step.5,\"lr\":0.1}"
done >"$folder/run/metrics.jsonl"
echo '{"event":"epoch","epoch":0,"step":3,"val_top1":87.25,"val_loss":0.5,"seconds":4}' \
    >>"$folder/run/metrics.jsonl"
echo 'lr: "<0.1>"' >"$folder/run/config.yaml"
echo 'not metrics' >"$folder/empty/metrics.jsonl"

holds "a page is made" "$report" "$folder/run" --title "A & B"
holds "it shows the accuracy" grep -q '87.25 %' "$folder/run/report.html"
holds "it has curves" grep -q '<polyline class="c0" points="' "$folder/run/report.html"
holds "it needs nothing beside it" fails grep -Eq 'src=|href=|<script' "$folder/run/report.html"
holds "its text is escaped" grep -q 'A &amp; B' "$folder/run/report.html"
holds "files are escaped" grep -q '&lt;0.1&gt;' "$folder/run/report.html"
holds "a folder without metrics is an error" fails "$report" "$folder/empty"
holds "and leaves no page" fails test -e "$folder/empty/report.html"
holds "no such folder is an error that names it" sh -c "'$report' /no/such 2>&1 | grep -q /no/such"
holds "no folder is an error" fails "$report"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
