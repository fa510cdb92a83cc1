#!/usr/bin/env python3
"""bench links and bench exchange on ranks that are threads: what they print. $1: bench"""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from rows import run_rows  # noqa: E402

BENCH = sys.argv[1]


def run(*args, code=0):
    done = subprocess.run([BENCH, *args], capture_output=True, text=True, timeout=100)
    assert done.returncode == code, (done.returncode, done.stderr[-500:])
    return json.loads(done.stdout) if "--json" in args else done.stderr


def links_of_two_nodes_and_of_one(cwd):
    del cwd
    both = run("links", "--ranks", "4", "--ranks-per-node", "2", "--comm-model", "500,2", "--json")
    assert (both["ranks"], both["nodes"], both["ranks_per_node"]) == (4, 2, 2), both
    for kind, peer in (("within", 1), ("between", 2)):
        link = both[kind]
        assert link["peer"] == peer, link
        assert link["latency_us"] >= 500 and 0.1 < link["gbit"] < 2.5, link  # each message waits for the link
    one = run("links", "--ranks", "2", "--json")
    assert one["nodes"] == 1 and one["between"] is None and one["within"]["peer"] == 1, one
    apart = run("links", "--ranks", "2", "--ranks-per-node", "1", "--json")
    assert apart["nodes"] == 2 and apart["within"] is None and apart["between"]["peer"] == 1, apart


def links_refuse_nodes_that_do_not_fit(cwd):
    del cwd
    assert "3 ranks are no multiple of 2 ranks per node" in run("links", "--ranks", "3", "--ranks-per-node", "2", code=2)


def an_exchange_sends_what_the_formulas_say(cwd):
    del cwd
    elements, n, m = 4 * 50 * 50, 2, 3
    flags = 4  # a flag of each matrix is sent too
    whole = 4 * (elements + flags)
    found = run("exchange", "--ranks", str(m * n), "--ranks-per-node", str(n), "--elements", "10000", "--steps", "2",
                "--reducer", "flat", "--reducer", "two-level", "--json")
    assert found["elements"] == elements and found["nodes"] == m, found
    flat, two = found["reducers"]
    assert (flat["name"], two["name"]) == ("flat", "two-level"), found
    total = 2 * (m * n - 1) * whole
    assert flat["bytes_within"] + flat["bytes_between"] == total, (flat, total)
    assert two["bytes_between"] == 2 * (m - 1) * whole, two  # n times less than flat's part between nodes
    assert two["bytes_within"] == 2 * m * (n - 1) * whole, two
    assert flat["bytes_between"] > two["bytes_between"] and flat["milliseconds"] > 0, found


def an_exchange_names_what_it_does_not_know(cwd):
    del cwd
    assert "'nonsense'" in run("exchange", "--reducer", "nonsense", code=2)


sys.exit(run_rows([links_of_two_nodes_and_of_one, links_refuse_nodes_that_do_not_fit,
                   an_exchange_sends_what_the_formulas_say, an_exchange_names_what_it_does_not_know], "bench-ranks-"))
