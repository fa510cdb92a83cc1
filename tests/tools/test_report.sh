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
holds "it has curves" grep -q '<polyline class="s0" points="' "$folder/run/report.html"
holds "it needs no other file" fails grep -Eq 'src=|href=|<script' "$folder/run/report.html"
holds "its text is escaped" grep -q 'A &amp; B' "$folder/run/report.html"
holds "files are escaped" grep -q '&lt;0.1&gt;' "$folder/run/report.html"
holds "a page without eval.json has no images" fails grep -q '<img' "$folder/run/report.html"

cat >"$folder/labels.py" <<'END'
import re, sys
found = re.findall(r'<text x="([0-9.]+)" y="[0-9.]+" text-anchor="end">([^<]*)</text>', open(sys.argv[1]).read())
assert found and all(float(x) >= 6.6 * len(label) for x, label in found), found
charts = open(sys.argv[1]).read().split("<svg")[1:]
for chart in charts:
    width = float(re.search(r'viewBox="0 0 (\d+)', chart).group(1))
    ticks = re.findall(r'<text x="([0-9.]+)" y="[0-9.]+" text-anchor="middle">([^<]*)</text>', chart)
    assert ticks and all(re.fullmatch("[0-9]+", label) for _, label in ticks), ticks
    ends = [(float(x) - 3.85 * len(label), float(x) + 3.85 * len(label)) for x, label in ticks]
    assert all(0 <= a and b <= width + 0.01 for a, b in ends), ("cut", ticks)
    assert all(b < c for (_, b), (c, _) in zip(ends, ends[1:])), ("overlapping", ticks)
    rows = re.findall(r'text-anchor="end">([-+.0-9e]+)</text>', chart)
    assert rows and len(set(rows)) == len(rows), ("equal labels", rows)
END
mkdir "$folder/small"
for step in 1 2 3; do
    echo "{\"event\":\"step\",\"step\":$step,\"epoch\":0,\"loss\":0.000$step,\"lr\":0.0000123$step}"
done >"$folder/small/metrics.jsonl"
"$report" "$folder/small" >"$folder/out" 2>&1
holds "labels of ticks are within the chart, and steps are whole" python3 "$folder/labels.py" "$folder/small/report.html"
mkdir "$folder/large"
for step in 12345670 12345671 12345680; do # seven digits and more, losses that differ in the ninth
    echo "{\"event\":\"step\",\"step\":$step,\"epoch\":0,\"loss\":100000.00$step,\"lr\":0.1}"
done >"$folder/large/metrics.jsonl"
"$report" "$folder/large" >"$folder/out" 2>&1
holds "long labels too" python3 "$folder/labels.py" "$folder/large/report.html"
sed 's/text-anchor="middle">12345680/text-anchor="middle">123456800000/' "$folder/large/report.html" >"$folder/cut.html"
holds "a cut label is found" fails python3 "$folder/labels.py" "$folder/cut.html"
holds "the page is light or dark as its reader's screen" grep -q 'prefers-color-scheme:dark){body' "$folder/large/report.html"

mkdir "$folder/part" "$folder/same"
for run in part same; do
    for step in 1 2 3 4; do # speeds of 10 and 1000 in seconds of 9 and 1: 109 in the mean
        echo "{\"event\":\"step\",\"step\":$step,\"epoch\":0,\"loss\":1,\"images_per_second\":$((step % 2 ? 10 : 1000)),\"seconds\":$((step % 2 ? 9 : 1))}"
    done >"$folder/$run/metrics.jsonl"
    for step in 2 4; do # a resumed epoch has two records
        echo "{\"event\":\"epoch\",\"epoch\":0,\"step\":$step,\"train_loss\":1,\"val_loss\":1,\"val_top1\":50,$(test $run = part \
            && echo '"val_samples":64,"val_total":300' || echo '"val_is_train":1')}"
    done >>"$folder/$run/metrics.jsonl"
    "$report" "$folder/$run" >/dev/null 2>&1
done
holds "a part of the images is named" grep -q 'top-1 accuracy on 64 of 300 images held back' "$folder/part/report.html"
holds "its curve names the part" grep -q '>evaluation on 64 of 300</text>' "$folder/part/report.html"
holds "data without a split has no headline" fails grep -q 'class="big"\|held back for' "$folder/same/report.html"
holds "it names the data of the evaluation" grep -q 'Evaluated on training images: 50.00 % top-1 there' "$folder/same/report.html"
holds "the speed is samples over seconds" grep -q '<td>speed<td>109 images/s' "$folder/part/report.html"
holds "an epoch with two records counts once" grep -q '<td>epochs<td>1<' "$folder/part/report.html"
holds "a comparison says both" "$report" "$folder/part" "$folder/same" --output "$folder/both.html"
holds "in a row" grep -q '<td>evaluated on<td>64 of 300 held-back samples<td>all training samples' "$folder/both.html"

cp -r "$folder/run" "$folder/evaluated"
cat >"$folder/evaluated/eval.json" <<'END'
{"weights": "w<i>", "data": "<script>d", "images": 4, "top1": 50, "top5": 100, "loss": 1.5, "f1_macro": 49.5, "auc": "<i>", "map": 60,
 "classes": [{"name": "<b>cat", "images": 2, "correct": 1, "predicted": 3, "top1": 50, "precision": 33.3},
             {"name": null, "images": 2, "correct": 1, "predicted": 1, "top1": 50, "precision": null}],
 "confusion": [[1, 1], [2, "x"]], "confused": [{"label": 1, "predicted": 0, "count": 2}],
 "samples": [
  {"path": "\"onload=<", "label": 0, "probability": 0.25, "predictions": [{"index": 1, "probability": 0.75}],
   "image": "data:image/bmp;base64,Qk0="},
  {"path": "b", "label": 9, "probability": 1, "predictions": [{"index": -1, "probability": 1}],
   "image": "data:image/svg+xml;base64,Qk0="},
  {"path": "c", "label": 0, "probability": 1, "predictions": [{"index": 0, "probability": 1}],
   "image": "data:image/png;base64,\"><script>"},
  {"path": "d", "label": 1, "probability": 0.5, "predictions": [{"index": 1, "probability": 0.5}],
   "image": "data:image/jpeg;base64,/9g="}]}
END
page=$folder/evaluated/report.html
holds "a page with eval.json is made" "$report" "$folder/evaluated"
holds "it has F1 and mAP, but no AUC that is no number" grep -q 'top-1 50.00 %, macro F1 49.50 %, mAP 60.00 %, loss' "$page"
holds "it has a confusion matrix" grep -q '<th>&lt;b&gt;cat<td class="hit"' "$page"
holds "it shows the images that are ones" test "$(grep -o '<img' "$page" | wc -l)" = 2
holds "a wrong one is marked" grep -q 'figure class="wrong"><img alt="" src="data:image/bmp;base64,Qk0=" title="&quot;onload=&lt;">' "$page"
holds "a right one is marked" grep -q 'figure class="right"><img alt="" src="data:image/jpeg' "$page"
holds "nothing of the file is markup" fails grep -Eq '<script|<b>cat|<i>|svg[+]xml' "$page"
holds "it loads nothing" fails grep -Eq 'href=|src="[^d]|url[(]' "$page"
python3 - "$folder/evaluated/eval.json" <<'END'
import json, sys
kinds = [{"name": f"k{i}", "images": 1, "correct": i % 2, "predicted": 1, "top1": 100 * (i % 2), "precision": 0} for i in range(300)]
with open(sys.argv[1], "w") as f:
    json.dump({"classes": kinds, "confused": [{"label": i, "predicted": i + 1, "count": 300 - i} for i in range(299)],
               "samples": []}, f)
END
holds "a page with many classes is made" "$report" "$folder/evaluated"
holds "it has the most confused pairs" grep -q '<td>k19<td>k20<td>281' "$page"
holds "and not the others" fails grep -q '<td>k20<td>k21' "$page"
holds "it has the worst classes only" test "$(grep -c 'class="bar"' "$page")" = 20
echo '{"classes": 7}' >"$folder/evaluated/eval.json"
holds "an eval.json without classes is an error" fails "$report" "$folder/evaluated"
holds "it leaves the page as it was" grep -q '<td>k19<td>k20<td>281' "$page"

cp -r "$folder/run" "$folder/other<"
printf 'lr: 0.5\noutput: o\nfreeze:\n  - a\n  - b\nseed: 3\n' >"$folder/other</config.yaml"
sed 's/87.25/91.5/' "$folder/run/metrics.jsonl" >"$folder/other</metrics.jsonl"
holds "runs are compared" "$report" "$folder/run" "$folder/other<" -o "$folder/both.html"
holds "each chart has a curve of each" test "$(grep -c '<polyline class="s1"' "$folder/both.html")" = "$(grep -c '<svg.*role="img"' "$folder/both.html")"
holds "names are escaped" grep -q 'other&lt;</tr>' "$folder/both.html"
holds "settings that differ are listed" grep -q '<tr><td>lr<td>&quot;&lt;0.1&gt;&quot;<td>0.5</tr>' "$folder/both.html"
holds "lists are settings too" grep -q '<tr><td>freeze<td>–<td>a, b</tr>' "$folder/both.html"
holds "the name of the folder is not a setting" fails grep -q '<tr><td>output' "$folder/both.html"
holds "last numbers stand side by side" grep -q '<td>87.25 %<td>91.50 %' "$folder/both.html"
holds "a run that is compared with itself differs in nothing" sh -c "'$report' '$folder/run' '$folder/run' -o '$folder/same.html' && grep -q None. '$folder/same.html'"
rm "$folder/other</config.yaml" && mkfifo "$folder/other</config.yaml"
holds "a pipe in place of the settings is not waited for" timeout 60 "$report" "$folder/run" "$folder/other<" -o "$folder/both.html"
holds "a run without metrics is named" sh -c "'$report' '$folder/run' '$folder/empty' -o '$folder/none.html' 2>&1 | grep -q empty/metrics.jsonl"
mkdir "$folder/text"
for step in 1 2; do
    echo "{\"event\":\"epoch\",\"epoch\":$((step - 1)),\"step\":$step,\"train_loss\":2,\"val_loss\":1.5,\"val_perplexity\":$step.25}"
done >"$folder/text/metrics.jsonl"
holds "a language model's page is made" "$report" "$folder/text"
holds "its metric is the headline" grep -q '"big">2.25</span><br>perplexity in evaluation' "$folder/text/report.html"
holds "and has a chart" grep -q '<title>Perplexity</title>' "$folder/text/report.html"
holds "it does not mention top-1" fails grep -qi top-1 "$folder/text/report.html"
holds "of several the lowest is the best" sh -c "'$report' '$folder/text' '$folder/text' -o '$folder/texts.html' && grep -q 'perplexity, best<td>1.25<td>1.25' '$folder/texts.html'"
for wrong in "" --bogus "a b c d e f g h i"; do
    "$report" $wrong >"$folder/out" 2>&1
    holds "a wrong command line ends with 2: $wrong" test $? = 2
done
holds "a folder without metrics is an error" fails "$report" "$folder/empty"
holds "and leaves no page" fails test -e "$folder/empty/report.html"
holds "no such folder is an error that names it" sh -c "'$report' /no/such 2>&1 | grep -q /no/such"
holds "no folder is an error" fails "$report"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
