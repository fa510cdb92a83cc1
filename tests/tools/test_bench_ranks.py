#!/usr/bin/env python3
"""bench links, exchange and stragglers on ranks that are threads, and bench service: their output. $1: bench"""
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


def collectives_of_each_kind_and_size(cwd):
    del cwd
    found = run("collectives", "--ranks", "4", "--steps", "2", "--bytes", "88,4096", "--json")
    rows = found["calls"]
    assert found["ranks"] == 4 and [r["bytes"] for r in rows] == [96, 4096] * 5, found  # a multiple of the ranks' elements
    assert [r["call"] for r in rows[::2]] == ["sum", "maximum", "all-gather", "broadcast", "all-to-all"], found
    assert all(0 < r["us"] <= r["median_us"] and "engine_us" not in r for r in rows), found  # threads have no engine


def links_refuse_nodes_that_do_not_fit(cwd):
    del cwd
    assert "3 ranks are not a multiple of 2 ranks per node" in run("links", "--ranks", "3", "--ranks-per-node", "2", code=2)


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


def stragglers_are_not_waited_for(cwd):
    del cwd
    found = run("stragglers", "--ranks", "3", "--backup-workers", "0,1", "--micro-batches", "2", "--base-ms", "10", "--steps", "3", "--delays", "slow",
                "--tail", "20", "--json")["cells"]
    assert [c["ranks"] for c in found][:2] == [3, 4] and found[1]["kept"] == 0.75, found
    assert found[1]["milliseconds"] < found[0]["milliseconds"], found  # one rank always takes 400 ms, the others 20
    assert "does not rise from 0" in run("stragglers", "--backup-workers", "1", code=2)


def a_service_answers_calls(cwd):
    del cwd
    found = run("service", "--calls", "100", "--large", "1", "--json")
    assert all(found[key] > 0 for key in ("calls_per_second", "calls_per_second_4", "gigabytes_per_second")), found


sys.exit(run_rows([stragglers_are_not_waited_for, a_service_answers_calls, links_of_two_nodes_and_of_one, collectives_of_each_kind_and_size, links_refuse_nodes_that_do_not_fit,
                   an_exchange_sends_what_the_formulas_say, an_exchange_names_what_it_does_not_know], "bench-ranks-"))
