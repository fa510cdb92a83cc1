#!/usr/bin/env python3
"""tools/bench/peer.py: its computations, and its message about a missing peer. $1: its folder"""
import argparse
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


def steps(*rates, **more):
    return [dict(samples_per_second=r, peak_memory_bytes=2e9, **more) for r in rates]


def the_row_of_a_page_is_against_the_way_with_the_best_median(cwd):
    del cwd
    a = argparse.Namespace(peers=["eager", "compiled"], arch="resnet50", stem="imagenet", image_size=224, batch_size=32, eval=False)
    runs = {"lather": steps(18, 20, 22), "last": steps(9, 9, 9), "first": steps(5, 50, 5), "quick": steps(10, 8, 11, compile_seconds=31.4)}
    cells = peer.page_row(a, "f32", runs, {"last": "eager", "first": "eager", "quick": "compiled"})
    assert cells == ["resnet50, 224 pixels, batch 32", "f32", "20 (18-22)", "9 (9-9)", "10 (8-11)", "2 (1.8-2.5)", "2.00 / 2.00 / 2.00", "31 s"], cells
    del runs["quick"]  # failed
    cells = peer.page_row(a, "f32", runs, {"last": "eager", "first": "eager", "quick": "compiled"})
    assert cells[4:] == ["failed", "2.22 (2-2.44)", "2.00 / 2.00 / -", ""], cells


def one_thread_counts_by_cpu_time_and_several_by_the_clock(cwd):
    del cwd
    base = [{"cpu_rate": 900, "rate": 1500}, {"cpu_rate": 1100, "rate": 1600}]
    assert peer.loader_row("x", [{"cpu_rate": 500, "rate": 1000}] * 2, base) == ["x", "500", "2 (1.8-2.2)", "1000", "1.55 (1.5-1.6)"]
    assert peer.loader_row("x", [{"cpu_rate": 500}] * 2, base)[3:] == ["", ""]


def run_peer(cwd, *words):
    """Rows and text that peer.py prints with stubs of PyTorch and of our programs."""
    ours = {"images_per_second": 1e6, "peak_memory_bytes": 1e9, "cpu_milliseconds": 0.001}
    os.makedirs(os.path.join(cwd, "build/tools"), exist_ok=True)
    for name in ("bench", "pack"):
        path = os.path.join(cwd, "build/tools", name)
        with open(path, "w", encoding="ascii") as f:
            f.write(f"#!/bin/sh\necho '{json.dumps(ours)}'\n")
        os.chmod(path, 0o755)
    python = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fake_torch/python3")
    words = [sys.executable, os.path.join(sys.argv[1], "peer.py"), *words, "--python", python, "--rounds", "2"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=cwd, timeout=100)
    assert done.returncode == 0, done
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines() if line.startswith("|")], done.stdout


def a_compiled_network_has_its_compile_time_apart_from_its_steps(cwd):
    words = ("network", "--arch", "resnet18", "--dtype", "f32")
    rows, _ = run_peer(cwd, *words, "--layout", "channels_last")
    assert [r[1] for r in rows[2:5]] == ["lather", "PyTorch channels_last", "PyTorch channels_last, compiled"], rows
    assert [r[7] for r in rows[2:5]] == ["", "", "0.2 s"] and float(rows[4][2]) > 32 / 0.1, rows
    assert rows[-1][:3] == ["resnet18, 224 pixels, batch 32", "f32", "1e+06 (1e+06-1e+06)"], rows
    rows, _ = run_peer(cwd, *words, "--peers", "compiled", "--eval")
    assert [r[1] for r in rows[2:5]] == ["lather", "PyTorch channels_last, compiled", "PyTorch contiguous, compiled"], rows
    assert len(rows[-1]) == 8 and "evaluation" in rows[-1][0], rows


def loaders_that_are_missing_are_named_and_the_others_measured(cwd):
    os.makedirs(os.path.join(cwd, "images"))
    for name in ("a.jpg", "b.jpg"):
        with open(os.path.join(cwd, "images", name), "wb"):
            pass
    rows, text = run_peer(cwd, "loader", "--data", "images", "--side", "0", "--peers", "torchvision", "--u8")
    assert "Not installed: dali, ffcv." in text, text
    assert [r[0] for r in rows[2:]] == ["Lather, the files", "torchvision, v2 transforms", "torchvision, v2 transforms, u8",
                                        "Lather, the files, u8", "Lather, --decode fast", "Lather, lossless pack"], text
    assert rows[2][1:] == ["1000000", "1 (1-1)", "1000000", "1 (1-1)"] and float(rows[3][1]) > 0 and float(rows[3][3]) > 0, text


sys.exit(run_rows([benchs_object_is_read, medians_and_the_median_of_the_rounds_ratios,
                   who_fails_has_no_further_turn_and_the_others_stand, what_is_missing_is_named_with_status_77,
                   the_row_of_a_page_is_against_the_way_with_the_best_median, one_thread_counts_by_cpu_time_and_several_by_the_clock,
                   a_compiled_network_has_its_compile_time_apart_from_its_steps,
                   loaders_that_are_missing_are_named_and_the_others_measured], "bench-peer-"))
