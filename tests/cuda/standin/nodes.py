#!/usr/bin/env python3
"""The nodes of a recorded step of ResNet-50 on the stand-in: at most so many, and the bytes that they move; what Shampoo asks for.

    tests/cuda/standin/nodes.py BUILD [ROW]

Prints cmocka's lines. The network is narrow: how many nodes a step has does not hang on its width."""
import importlib.machinery
import importlib.util
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../support"))
import rows  # noqa: E402

TOOL = os.path.join(HERE, "../../../tools/cuda_nodes")
LOADER = importlib.machinery.SourceFileLoader("cuda_nodes", TOOL)
sys.dont_write_bytecode = True
nodes = importlib.util.module_from_spec(importlib.util.spec_from_loader("cuda_nodes", LOADER))
LOADER.exec_module(nodes)
BUILD = os.path.abspath(sys.argv[1])
MOST = {"f16": 340, "bf16": 432, "tf32": 534}  # they were 752, 716, 711; lower them with the count
# Works and read-backs of Shampoo's update between refreshes and of a refresh of all roots, blocks of 2048.
SHAMPOO = [(130, 1), (1146, 1)]


def recorded(amp):
    return nodes.recorded(BUILD, "tests/cuda/standin", nodes.flags_of(amp, "on", "adamw", "off"), 4, 8)


def a_recorded_step_has_at_most_so_many_nodes(_):
    """The control: at most one less is refused."""
    for amp, most in MOST.items():
        found = recorded(amp)
        assert not nodes.exceeds(found, most), amp
        assert amp != "f16" or nodes.exceeds(found, most - 1), "a ceiling that is too high"


def shampoo_asks_for_at_most_so_much(_):
    """Of full width: how its blocks are batched hangs on their sizes. The control: a work less is refused. The one
    read-back is the last of both."""
    for works, (most, reads) in zip(nodes.shampoo(BUILD, 2048), SHAMPOO):
        found = [i for i, w in enumerate(works) if w.name == nodes.READ_BACK]
        assert not nodes.exceeds(works, most + reads) and found == [len(works) - 1], (len(works), found)
        assert nodes.exceeds(works, len(works) - 1) and sum(w.flops for w in works) > 1e10


def staggered_steps_have_all_roots_or_none(_):
    """Without roots it is the update between refreshes; a step with a batch of them, which here is of all, looks at its numbers and at
    what came of the roots besides."""
    plain, rooted = nodes.staggered(BUILD, 2048)
    update, refresh = nodes.shampoo(BUILD, 2048)
    assert [w.name for w in plain] == [w.name for w in update]
    assert sum(w.name == nodes.READ_BACK for w in rooted) == 3 and len(rooted) >= len(plain) + len(refresh), (len(rooted), len(plain))


def directions_are_not_written_back(folder):
    """The update's last pass over memory reads the direction, the parameter and momentum, and writes the last two: to 2 %, as parts
    of vectors are no fours."""
    if not os.path.exists(os.path.join(BUILD, "tests/cuda/standin/traced/liblather-cuda.so")):
        raise rows.Skip("built with a sanitizer of its own")
    works = nodes.works_of(BUILD, "tests/cuda/standin/traced", folder, [
        "tools/bench", "optim", "--device", "cuda", "--optim", "shampoo", "--arch", "resnet10", "--steps", "1", "--warmup", "0", "--threads", "1"],
        1, NORM="1000", EAGER="1", ALIKE="1")
    last = max(i for i, w in enumerate(works) if w.name == "finish")
    passes = [w for w in works[last:] if w.name == "run_batch"]
    read, written = sum(w.read for w in passes), sum(w.written for w in passes)
    assert passes and abs(read / 3 - written / 2) <= 0.02 * written / 2, (read, written)


def bytes_of_kernels_are_counted(_):
    """What is known of some: a cast of f32 to 16 bits, or back; dx of batch norm from dy and x."""
    if not os.path.exists(os.path.join(BUILD, "tests/cuda/standin/traced/liblather-cuda.so")):
        raise rows.Skip("built with a sanitizer of its own")
    found = nodes.recorded(BUILD, "tests/cuda/standin/traced", nodes.flags_of("f16", "on", "adamw", "off"), 4, 8)
    casts = [w for w in found if w.name == "convert" and max(w.read, w.written) > 1024]
    bad = [w for w in casts if abs(max(w.read, w.written) - 2 * min(w.read, w.written)) > 32]
    gradients = [w for w in found if w.name == "grad_x_kernel"]
    bad += [w for w in gradients if min(abs(w.read - k * w.written) for k in (2, 3)) > 6 * 4 * 256]  # dy has one or two addends
    assert casts and gradients and not bad, bad[:3]


def traced_roots(folder, alike="0"):
    """Works of the roots of two matrices of side 512."""
    if not os.path.exists(os.path.join(BUILD, "tests/cuda/standin/traced/liblather-cuda.so")):
        raise rows.Skip("built with a sanitizer of its own")
    return nodes.works_of(BUILD, "tests/cuda/standin/traced", folder, [
        "tools/bench", "roots", "--device", "cuda", "--sizes", "512", "--conditions", "1e4", "--batch", "2", "--repeats", "1", "--solvers",
        "rational", "--lapack-threads", "1", "--threads", "1"], 1, NORM="1000", EAGER="1", ALIKE=alike)


def terms_of_roots_move_triangles(folder):
    """Of two matrices of side 512: a term in double each, the sums' first, then some by TF32 in two parts. What begins reads half of a
    matrix once; writes its rows <= columns and zeros, x but for one block in four, zeros in that quarter of x's low part. What adds
    reads and writes halves, and no sum before there is one."""
    found = traced_roots(folder)
    square, matrices = 512 * 512, 2
    wide, begin = [w for w in found if w.name == "term_begin"][:2]
    first, second = [w for w in found if w.name == "terms_add"][:2]
    terms = round(begin.written / (8 * square))
    assert terms >= matrices and terms % matrices == 0, begin
    sums = matrices * 8 * square / 2
    for got, want in [(wide.read, matrices * 4 * square / 2), (wide.written, matrices * 8 * 1.75 * square), (begin.read, wide.read),
                      (begin.written, terms * 4 * 2 * square), (first.read, matrices * 8 * square / 2), (first.written, sums),
                      (second.read, terms * 4 * square / 2 + sums), (second.written, sums)]:
        assert abs(got - want) <= 0.02 * want, (got, want, wide, begin, first, second)


def alike_matrices_move_the_same_bytes(folder):
    """When one of them runs, as when all do: each work, but for a product's first vectors, which matrices share."""
    every, one = traced_roots(folder), traced_roots(folder, "1")
    assert [w.name for w in every] == [w.name for w in one]
    bad = [(a, b) for a, b in zip(every, one) if max(abs(a.read - b.read), abs(a.written - b.written)) > 0.01 * (a.read + a.written)]
    assert not bad and every != one, bad[:3]


sys.exit(rows.run_rows([a_recorded_step_has_at_most_so_many_nodes, shampoo_asks_for_at_most_so_much,
                        staggered_steps_have_all_roots_or_none, directions_are_not_written_back, bytes_of_kernels_are_counted,
                        terms_of_roots_move_triangles, alike_matrices_move_the_same_bytes],
                       "lather-nodes-", sys.argv[2] if len(sys.argv) > 2 else None))
