# gpu_check report: writes DIR/results/report.md from the other files there. shellcheck shell=bash

# Prints lines of `KEY  WHAT  <=|>=  WANTED  MOONSHOT  UNIT`: each target, and the fact that it is compared with.
targets()
{
    sed 's/  */ /g; s/ *; */\t/g' <<'END'
peer.best.compiled   ; ResNet-50, batch 256: our fastest 16-bit precision against torch.compile's    ; >= ; 1.3  ; 2.0  ; x
peer.f16.256.compiled; the same in f16 alone, alternating                                            ; >= ; 1.3  ; 2.0  ; x
peer.best.eager      ; batch 256: against eager AMP, channels_last, the fastest of each              ; >= ; 1.6  ; 2.5  ; x
peer.f16.256.eager   ; the same in f16 alone, alternating                                            ; >= ; 1.6  ; 2.5  ; x
bench.roof           ; batch 256, f16: step relative to the roof of the fused graph                  ; <= ; 1.6  ; 1.2  ; x
bench.roof           ; the same, as docs/results/gpu-model.md has it                                 ; <= ; 1.40 ; -    ; x
bench.roof.bf16      ; batch 256, bf16: the same                                                     ; <= ; 1.55 ; -    ; x
peer.f16.16.eager    ; batch 16, f16, against eager                                                  ; >= ; 3    ; -    ; x
shampoo.50.2048      ; Shampoo, f = 50, block 2048, products in TF32: mean step relative to AdamW's  ; <= ; 1.05 ; 1.02 ; x
shampoo.1.1024       ; Shampoo, f = 1, block 1024, the same                                          ; <= ; 1.3  ; 1.10 ; x
refresh.2048         ; a refresh of block 2048: torch.linalg.eigh, one after the other, against ours ; >= ; 20   ; 50   ; x
refresh.1024         ; a refresh of block 1024: the same                                             ; >= ; 20   ; 50   ; x
peer.memory          ; batch 256, f16: peak memory relative to eager PyTorch AMP                     ; <= ; 0.75 ; 0.65 ; x
END
}

# Prints ratios of two facts, as facts.
ratios()
{
    awk -F '\t' '
        { v[$1] = $2 }
        function best(who,    i, r, m) {
            for (i = 1; i <= split("f16 bf16", r, " "); i++)
                if (v["peer." r[i] ".256." who ".rate"] > m) m = v["peer." r[i] ".256." who ".rate"]
            return m
        }
        function tell(key, a, b) { if (a > 0 && b > 0) printf "%s\t%.4g\n", key, a / b }
        END {
            graphs = best("graphs"); compiled = best("compiled")
            tell("peer.best.compiled", best("lather"), graphs > compiled ? graphs : compiled)
            tell("peer.best.eager", best("lather"), best("eager"))
            tell("peer.memory", v["peer.f16.256.lather.peak"], v["peer.f16.256.eager.peak"])
            for (key in v) {
                if (key ~ /^peer\..*\.ratio$/) print substr(key, 1, length(key) - 6) "\t" v[key]
                if (key ~ /^bench\.roof(\.bf16)?$|^shampoo\.[0-9]*\.[0-9]*$/) print key "\t" v[key]
            }
            tell("refresh.2048", v["eigh.2048"], v["roots.2048"])
            tell("refresh.1024", v["eigh.1024"], v["roots.1024"])
        }' "$dir/results/facts"
}

target_table()
{
    echo "| target | wanted | moonshot | measured | |"
    echo "| --- | --- | --- | --- | --- |"
    { ratios && echo && targets; } | awk -F '\t' '
        !NF { targets = 1; next }
        !targets { v[$1] = $2; next }
        {
            far = $5 == "-" ? "" : $3 " " $5 " " $6
            if (!($1 in v)) { measured = ""; verdict = "not measured" }
            else {
                measured = sprintf("%.4g %s", v[$1], $6)
                verdict = ($3 == ">=" ? v[$1] >= $4 + 0 : v[$1] <= $4 + 0) ? "met" : "NOT MET"
                if (far != "" && ($3 == ">=" ? v[$1] >= $5 + 0 : v[$1] <= $5 + 0)) verdict = "met, moonshot too"
            }
            printf "| %s | %s %s %s | %s | %s | %s |\n", $2, $3, $4, $6, far, measured, verdict
        }'
    right_table
}

# Prints a table of correctness: parts by name, and how many passed.
right_table()
{
    printf '%s\t%s\t%s\n' smoke '' "each kind of work runs once" \
        conform '' "every entry, gradients and steps conform to the reference" \
        train '^learns' "learns the carried images in every precision" \
        train '^recorded' "recorded steps are eager steps, bit for bit" \
        train '^a second run' "reruns have the same bits with --deterministic" \
        train '^fused' "fused and unfused training go the same way" \
        train '^saved' "checkpoints cross between devices" \
        train 'NCCL' "NCCL's calls, one rank" \
        sanitize '' "compute-sanitizer finds nothing" |
        awk -F '\t' '
            FNR == NR { if ($1 == "row") result[$2 "\t" $4] = known($5, result[$2 "\t" $4]); next }
            function known(new, old) { return new == "LEFT OUT" && old != "" && old != "STARTED" ? old : new }
            {
                good = bad = open = 0
                for (key in result) {
                    split(key, part, "\t")
                    if (part[1] != $1 || part[2] !~ $2 || result[key] == "") continue
                    if (result[key] == "ok") good++
                    else if (result[key] == "LEFT OUT" || result[key] == "STARTED") open++
                    else bad++
                }
                verdict = bad ? "NOT MET" : !good ? "not measured" : open ? "not all measured" : "met"
                printf "| %s | all | | %s | %s |\n", $3, good + bad ? good " of " good + bad + open : "", verdict
            }' "$dir/results/rows" -
}

# Prints a table for each section. A part's last result counts; a different earlier one is noted.
row_tables()
{
    awk -F '\t' -v texts="$dir/results/text" '
        $1 == "section" {
            key = $2 "\t" $3
            if (!(key in columns)) section[++sections] = key
            columns[key] = $4
        }
        $1 == "stage" { said[$2] = said[$2] sprintf("\n%s: %s s%s%s", $3, $4, $5 == "" ? "" : "; clocks, temperature, power before: " $5, $6 == "" ? "" : "; after: " $6) }
        $1 == "text" { text[$2 "\t" $3 "\t" $4] = $5 }
        $1 == "row" {
            key = $2 "\t" $3 "\t" $4
            if (!(key in result)) { title[$2 "\t" $3, ++rows[$2 "\t" $3]] = $4; result[key] = "" }
            if ($5 == "STARTED") { open[key] = 1; next }
            open[key] = 0
            if ($5 == "LEFT OUT" && result[key] != "" && result[key] != "LEFT OUT") next
            if (result[key] != "" && result[key] != "LEFT OUT" && result[key] != $5 && $5 != "")
                before[key] = ", " result[key] " before"
            result[key] = $5; seconds[key] = $6; cells[key] = $7
        }
        function bar(text,    n, i, out) { n = split(text, part, " [|] "); out = ""; for (i = 1; i <= n; i++) out = out " --- |"; return n ? out : " --- |" }
        function block(title, name,    line, file, lines) {
            file = texts "/" name
            while ((getline line < file) > 0) {
                if (!lines++) print "\n" title ":\n"
                print "    " line
            }
            close(file)
        }
        function show(key,    i, id, n) {
            if (!rows[key]) return
            split(key, part, "\t")
            print "\n### " part[2] "\n"
            print "| part | result | seconds | " columns[key] " |"
            print "| --- | --- | --- |" bar(columns[key])
            for (i = 1; i <= rows[key]; i++) {
                id = key "\t" title[key, i]
                print "| " title[key, i] " | " (open[id] ? "DID NOT END" : result[id]) before[id] " | " seconds[id] " | " cells[id] " |"
            }
            for (i = 1; i <= rows[key]; i++) {
                id = key "\t" title[key, i]
                if (id in text) block(title[key, i], text[id])
            }
        }
        END {
            n = split("smoke conform train bench peer shampoo profile sanitize more", order, " ")
            for (s = 1; s <= n; s++) {
                shown = 0
                for (i = 1; i <= sections; i++) {
                    split(section[i], part, "\t")
                    if (part[1] != order[s]) continue
                    if (!shown++) print "\n## " order[s] "\n" (said[order[s]] == "" ? "\n(did not end)" : said[order[s]])
                    show(section[i])
                }
            }
        }' "$dir/results/rows"
}

report_text()
{
    local file machine
    machine=$(head -qn 1 "$dir"/results/versions.* 2>/dev/null | sort -u | paste -sd ';' | sed 's/,.*//')
    echo "# gpu_check on ${machine:-a machine}"
    echo
    echo "Written by \`gpu_check\` (docs/guides/cuda.md) at version $(cat "$dir/commit"), $(date -u '+%Y-%m-%d %H:%M') UTC."
    [ ! -f "$dir/results/small" ] || printf '\n%s\n' "A dry run in small sizes: its numbers do not represent speed."
    if [ -f "$dir/results/closed" ]; then
        printf '\n%s\n\n' "The device could not be opened:"
        sed 's/^/    /' "$dir/results/closed"
    fi
    printf '\n%s\n\n' "## Targets"
    target_table
    printf '\n%s\n' "## Versions"
    for file in "$dir"/results/versions.*; do
        [ ! -f "$file" ] || { echo && sed 's/^/    /' "$file"; }
    done
    row_tables
}

write_report()
{
    report_text >"$dir/results/report.new" && mv "$dir/results/report.new" "$dir/results/report.md"
}
