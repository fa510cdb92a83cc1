#!/usr/bin/env python3
"""bench regimes: the map's cells are the formulas', and say where nothing helps. argv[1]: bench."""
import json
import subprocess
import sys

BENCH = sys.argv[1]


def regimes(*flags):
    p = subprocess.run([BENCH, "regimes", *flags, "--json"], capture_output=True, text=True)
    assert p.returncode == 0, p.stderr
    assert p.stdout.count("\n") == 1, p.stdout
    return json.loads(p.stdout), p.stderr


def refused(*flags, says):
    p = subprocess.run([BENCH, "regimes", *flags], capture_output=True, text=True)
    assert p.returncode == 2 and says in p.stderr and not p.stdout, (p.returncode, p.stderr)


def near(a, b):
    assert abs(a - b) <= 1e-6 * abs(b), (a, b)


def the_map_has_all_cells():
    out, table = regimes()
    cells = out["cells"]
    assert out["benchmark"] == "regimes" and len(cells) == 3 * 8, out
    assert [c["ranks"] for c in cells[:8]] == [8, 16, 32, 64, 128, 256, 512, 1024]
    for c in cells:
        ms = c["milliseconds"]
        assert c["nodes"] * 8 == c["ranks"] and all(v >= 150 for v in ms.values()), c
        dense = min(v for k, v in ms.items() if k.startswith(("flat", "two-level")))
        near(ms[c["dense"]], dense)
        near(ms[c["fastest"]], min(ms.values()))
        assert abs(c["gain"] - dense / min(ms.values())) < 1e-4, c
        assert c["helps"] == (c["gain"] >= 1.05), c
    assert not cells[0]["helps"], "one node"
    assert any(c["helps"] for c in cells) and not all(c["helps"] for c in cells)
    assert len(table.splitlines()) == 25 and "nothing helps" in table


def a_faster_card_is_not_slower():
    cells = regimes("--gbit", "1,2,5,10,25,100,400", "--ranks", "16..1024")[0]["cells"]
    by = {(c["gbit"], c["ranks"]): c["milliseconds"] for c in cells}
    for (gbit, ranks), ms in by.items():
        for (other, same), more in by.items():
            if same == ranks and other > gbit:
                assert all(more[k] <= ms[k] * (1 + 1e-9) for k in ms), (gbit, other, ranks)


def without_overlap_it_is_the_closed_form():
    d, b = 4_000_000, 1e9 / 8
    flags = ["--params", str(d), "--bucket-mib", "4096", "--gbit", "1", "--ranks", "32", "--latency-us", "30", "--message-us", "0",
             "--within-latency-us", "0", "--within-gbit", "1e9", "--select-ns", "0", "--backward-ms", "10", "--forward-ms", "0"]
    ms = regimes(*flags)[0]["cells"][0]["milliseconds"]
    outside = 4 * 2 * 3 / 4 * d / b  # two dense levels of 4 nodes
    near(ms["two-level"], 10 + 1e3 * (2 * 30e-6 + outside))
    near(ms["flat"], 10 + 1e3 * (2 * 30e-6 + 4 * 8 * 2 * 24 / 32 * d / b))
    near(ms["local-steps"] - 10, (ms["two-level"] - 10) / 32)


def what_is_wrong_is_named():
    refused("--gbit", "1,x", says="--gbit")
    refused("--gbit", "0", says="--gbit")
    refused("--ranks", "8..4", says="--ranks")
    refused("--ranks", "12", says="--per-node 8")
    refused("--density", "0", says="density")
    refused("--rank", "0", says="rank")


ROWS = [the_map_has_all_cells, a_faster_card_is_not_slower, without_overlap_it_is_the_closed_form, what_is_wrong_is_named]
for row in ROWS:
    row()
print(f"{len(ROWS)} passed, 0 failed")
