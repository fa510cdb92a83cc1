#!/usr/bin/env python3
"""tools/bench/peer.py: its computations, and its message about a missing peer. $1: its folder"""
import json
import os
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import peer  # noqa: E402
import turns  # noqa: E402
from rows import run_rows  # noqa: E402

OURS = {"step": 2, "refresh": 30, "state": 1 << 20, "roots": 135}


def benchs_object_is_read(cwd):
    del cwd
    text = json.dumps({"optimizers": {"shampoo": {"plain_milliseconds": 2, "refresh_milliseconds": 30, "state_bytes": 1 << 20, "roots": 135}}})
    assert peer.read_bench(text, "shampoo") == OURS


def medians_and_the_median_of_the_rounds_ratios(cwd):
    del cwd
    slow = dict(OURS, step=4)  # the second of three rounds was disturbed
    theirs = [{"step": s, "refresh": 90, "state": 1 << 20} for s in (8, 8, 10)]
    rows = list(peer.shampoo_rows((OURS, slow, OURS), (OURS,) * 3, theirs))
    assert rows[0] == ("a step between refreshes, ms", "2", "8", "4.00"), rows
    assert rows[1] == ("refresh of 135 roots by eigendecomposition, ms", "30", "90", "3.00"), rows


def who_fails_has_no_further_turn_and_the_others_stand(cwd):
    del cwd
    turned = []

    def fails():
        turned.append("fails")
        raise turns.Failed("no memory")
    runs, why = turns.play({"fine": lambda: 3, "fails": fails}, 2)
    assert runs == {"fine": [3, 3]} and list(why) == ["fails"] and turned == ["fails"], (runs, why, turned)


def what_is_missing_is_named_with_status_77(cwd):
    del cwd
    words = [sys.executable, os.path.join(sys.argv[1], "peer.py"), "shampoo", "--bench", "/nowhere/bench", "--reference", "/nowhere"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 77 and "/nowhere" in done.stderr, done


sys.exit(run_rows([benchs_object_is_read, medians_and_the_median_of_the_rounds_ratios,
                   who_fails_has_no_further_turn_and_the_others_stand, what_is_missing_is_named_with_status_77], "bench-peer-"))
