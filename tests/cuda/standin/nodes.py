#!/usr/bin/env python3
"""Limits on the nodes of captured steps on the stand-in: their number, the number of tiny ones, the bytes that they move, and
the kernels of Shampoo's update.

    tests/cuda/standin/nodes.py BUILD [ROW]

Prints cmocka's lines. The network is narrow: the number of nodes does not depend on its width."""
import importlib.machinery
import importlib.util
import os
import re
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
# Limits on the nodes of a captured step; lower them with the count. ResNet-50's were 752, 716, 711, GPT-2's 554, ViT-S's 626.
MOST = {("resnet50", "f16"): 339, ("resnet50", "bf16"): 431, ("resnet50", "tf32"): 533, ("gpt", "bf16"): 410, ("vit", "bf16"): 481}
# Limits on the nodes that move less than 1 MiB at full size. The goal of ResNet-50's is 120.
MOST_TINY = {("resnet50", "f16"): 79, ("resnet50", "bf16"): 92, ("resnet50", "tf32"): 118, ("gpt", "bf16"): 6, ("vit", "bf16"): 63}
# Goals for the modelled time: a step relative to its roof; a step of Shampoo relative to AdamW's, by block size and refresh interval.
MOST_TIME = {("resnet50", "f16"): 1.40, ("resnet50", "bf16"): 1.55}
MOST_SHAMPOO = {(2048, 50): 1.05, (1024, 1): 1.3}
# Limits on kernels and read-backs of Shampoo's update between refreshes, and of a refresh of all roots, with blocks of 2048.
SHAMPOO = [(130, 1), (1055, 1)]
TRACED = "tests/cuda/standin/traced"


def need_traces():
    if not os.path.exists(os.path.join(BUILD, TRACED, "liblather-cuda.so")):
        raise rows.Skip("this build has a sanitizer")


def narrow(model, amp, plugin="tests/cuda/standin"):
    return nodes.narrow(BUILD, plugin, nodes.NETWORKS[model], nodes.flags_of(amp, "on", "adamw", "off"))


def a_recorded_step_has_at_most_so_many_nodes(_):
    """Control: the limit minus one is exceeded."""
    for (model, amp), most in MOST.items():
        found = narrow(model, amp)
        assert not nodes.exceeds(found, most), (model, amp)
        assert nodes.exceeds(found, most - 1), f"{model}, {amp}: a ceiling that is too high"


def check_time(found, amp, most):
    """Control: a node that takes the remaining time exceeds the limit."""
    def time(works):
        return sum(nodes.seconds(w, amp) for w in works)
    left = most * nodes.ROOF - time(found)
    more = found[0]._replace(read=left * nodes.BANDWIDTH, written=0, flops=0)
    assert left >= 0 > most * nodes.ROOF - time([*found, more]), f"{amp}: {time(found) / nodes.ROOF:.3f} times the roof"
    if amp == "f16":  # the reference of Shampoo's step
        adamw = time([w for w in found if w.name == "step_list"])
        assert abs(time(found) - nodes.ADAMW_STEP) < 1e-5 and abs(adamw - nodes.ADAMW) < 1e-6, (time(found), adamw)


def check_tiny(model, amp):
    found = nodes.modelled(BUILD, nodes.NETWORKS[model], nodes.flags_of(amp, "on", "adamw", "off"))
    most, tiny = MOST_TINY[model, amp], nodes.tiny_of(found)
    assert len(found) == MOST[model, amp], f"{model}, {amp}: {len(found)} nodes, and a narrow network has {MOST[model, amp]}"
    assert not nodes.exceeds(tiny, most, "tiny nodes"), (model, amp)
    # Controls: the limit minus one is exceeded; a node that moves 1 MiB is not tiny.
    node, large = (found[0]._replace(read=bytes_read, written=0) for bytes_read in (nodes.SMALL - 1, nodes.SMALL))
    assert nodes.exceeds(nodes.tiny_of([*found, node]), most, "tiny nodes"), f"{model}, {amp}: a ceiling that is too high"
    assert len(nodes.tiny_of([*found, large])) == len(tiny)
    if (model, amp) in MOST_TIME:
        check_time(found, amp, MOST_TIME[model, amp])


@rows.full
def a_recorded_step_has_at_most_so_many_tiny_nodes(_):
    """And takes so long by the model. Of batch 256 of 224 x 224 pixels, by bytes, which takes half a minute of a core."""
    need_traces()
    check_tiny("resnet50", "f16")


def every_recorded_step_has_at_most_so_many_tiny_nodes(_):
    """All of them, in minutes: for ./check --full."""
    need_traces()
    for model, amp in MOST_TINY:
        check_tiny(model, amp)


@rows.full
def instructions_take_the_time_that_bytes_do_not(_):
    """Counts of check_kernels by kernel and types: all elementwise kernels of a transformer have one, by their rule. A node takes
    the longest of the three times; less bandwidth or arithmetic takes longer."""
    found = [w for w in narrow("gpt", "bf16") if w.name == "apply_rule_dense"]
    rates = {nodes.instructions(w._replace(read=16, written=0)) for w in found}
    assert len(rates) > 1 and min(rates) > 0, rates
    gelu = next(w for w in found if "gelu_rule" in w.types)._replace(read=1 << 30, written=0, flops=0)
    assert nodes.instructions(gelu) == max(rates) * (1 << 26), gelu
    bound, before = {m.title[:4]: nodes.seconds(gelu, "bf16", m) for m in nodes.MACHINES}, nodes.LIMITS
    nodes.LIMITS = [(name, types, 10 * most) for name, types, most in before]
    slow = nodes.seconds(gelu, "bf16") - nodes.GAP, nodes.instructions(gelu) / nodes.ISSUE
    nodes.LIMITS = before
    assert abs(slow[0] - slow[1]) < 1e-9 and bound["H100"] > bound["H200"], (slow, bound)
    conv = gelu._replace(name="cudnn fwd", types="", read=0, flops=1e12)
    times = [nodes.seconds(conv, "f16", m) for m in nodes.MACHINES]
    assert times[1] > times[0] == times[2] and times[1] == times[3], times


@rows.full
def attention_moves_and_computes_what_it_must(_):
    """Operations and bytes of the narrow GPT-2's graphs: two products forward and five backward, q, k, v in 16 bits and a number for each query;
    backward a matrix of scores in padded rows, written and read, and the sums of dy * y."""
    batch, heads, rows_, width = 4, 12, 32, 8
    product, tensor = 2 * batch * heads * rows_ * rows_ * width, 2 * batch * heads * rows_ * width
    column, scores = 4 * batch * heads * rows_, 2 * batch * heads * 128 * 128
    found = [w for w in narrow("gpt", "bf16") if w.name.startswith("cudnn") and "matmul" in w.name]
    forward, backward = ([w for w in found if (" sub mul mul reshape" in w.name) == grad] for grad in (False, True))
    assert len(forward) == len(backward) == 12, found
    for works, want in ((forward, (3 * tensor, tensor + column, 2 * product)),
                        (backward, (5 * tensor + column + scores, 3 * tensor + column + scores, 5 * product))):
        for w in works:
            assert all(0 <= got - least <= 256 for got, least in zip((w.read, w.written, w.flops), want)), (w, want)


@rows.full
def shampoo_asks_for_at_most_so_much(_):
    """Full width, as batches depend on block sizes. The only read-back comes last. Control: the limit minus one is exceeded."""
    for works, (most, reads) in zip(nodes.shampoo(BUILD, 2048), SHAMPOO):
        found = [i for i, w in enumerate(works) if w.name == nodes.READ_BACK]
        assert not nodes.exceeds(works, most + reads) and found == [len(works) - 1], (len(works), found)
        assert nodes.exceeds(works, len(works) - 1) and sum(w.flops for w in works) > 1e10


def shampoo_takes_as_long_as_the_page_says(_):
    """The modelled times, with --tf32 on and the bytes of all kernels, equal those of docs/results/gpu-model.md and meet the goals. Takes
    minutes: ./check --full runs it. Control: refreshing blocks of 2048 in each step exceeds the goal."""
    need_traces()
    with open(os.path.join(HERE, "../../../docs/results/gpu-model.md"), encoding="utf-8") as file:
        found = re.findall(r"^\| f = (\d+), block (\d+) \|.*\| ([\d.]+) \| [\d.]+ \|$", file.read(), re.M)
    said = {(int(block), int(frequency)): times for frequency, block, times in found}
    assert said.keys() == MOST_SHAMPOO.keys(), said
    for (block, frequency), most in MOST_SHAMPOO.items():
        both = nodes.shampoo(BUILD, block, True, True)
        times = nodes.times_adamw(*both, frequency)
        assert times <= most and f"{times:.3f}" == said[block, frequency], (block, frequency, times, said[block, frequency])
        assert block == 1024 or nodes.times_adamw(*both, 1) > 1.3, nodes.times_adamw(*both, 1)


@rows.full
def staggered_steps_have_all_roots_or_none(_):
    """A step without roots equals the update between refreshes. A step with a batch of roots, here all, also reads back the roots'
    statuses."""
    plain, rooted = nodes.staggered(BUILD, 2048)
    update, refresh = nodes.shampoo(BUILD, 2048)
    assert [w.name for w in plain] == [w.name for w in update]
    assert sum(w.name == nodes.READ_BACK for w in rooted) == 3 and len(rooted) >= len(plain) + len(refresh), (len(rooted), len(plain))


@rows.full
def directions_are_not_written_back(folder):
    """The update's last pass over memory reads direction, parameter and momentum, and writes parameter and momentum. Tolerance 2 %:
    some vectors are no multiple of four long."""
    need_traces()
    works = nodes.works_of(BUILD, TRACED, folder, [
        "tools/bench", "optim", "--device", "cuda", "--optim", "shampoo", "--arch", "resnet10", "--steps", "1", "--warmup", "0", "--threads", "1"],
        1, NORM="1000", EAGER="1", ALIKE="1")
    last = max(i for i, w in enumerate(works) if w.name == "finish_norms")
    passes = [w for w in works[last:] if w.name == "run_batch"]
    read, written = sum(w.read for w in passes), sum(w.written for w in passes)
    assert passes and abs(read / 3 - written / 2) <= 0.02 * written / 2, (read, written)


@rows.full
def bytes_of_kernels_are_counted(_):
    """Kernels of known traffic: casts between f32 and 16 bits; dx of batch norm from dy and x."""
    need_traces()
    found = narrow("resnet50", "f16", TRACED)
    casts = [w for w in found if w.name == "convert" and max(w.read, w.written) > 1024]
    bad = [w for w in casts if abs(max(w.read, w.written) - 2 * min(w.read, w.written)) > 32]
    gradients = [w for w in found if w.name == "grad_x_kernel"]
    bad += [w for w in gradients if min(abs(w.read - k * w.written) for k in (2, 3)) > 6 * 4 * 256]  # dy has one or two addends
    assert casts and gradients and not bad, bad[:3]


def traced_roots(folder, equal="0"):
    """Returns the works of the roots of two 512x512 matrices."""
    need_traces()
    return nodes.works_of(BUILD, TRACED, folder, [
        "tools/bench", "roots", "--device", "cuda", "--sizes", "512", "--conditions", "1e4", "--batch", "2", "--repeats", "1", "--solvers",
        "rational", "--lapack-threads", "1", "--threads", "1"], 1, NORM="1000", EAGER="1", ALIKE=equal)


@rows.full
def terms_of_roots_move_triangles(folder):
    """Two 512x512 matrices: first one term each in double, then several terms in TF32 with high and low parts. term_begin reads one
    triangle per matrix; it writes two triangles, and a quarter for the low part of the block that needs no product. terms_add reads and
    writes triangles; the first one reads no sum."""
    found = traced_roots(folder)
    square, matrices = 512 * 512, 2
    wide, begin = [w for w in found if w.name == "term_begin"][:2]
    first, second = [w for w in found if w.name == "terms_add"][:2]
    terms = round(begin.written / (3 * square))
    assert terms >= matrices and terms % matrices == 0, begin
    sums = matrices * 8 * square / 2
    for got, want in [(wide.read, matrices * 4 * square / 2), (wide.written, matrices * 8 * square / 2), (begin.read, wide.read),
                      (begin.written, terms * 4 * 0.75 * square), (first.read, matrices * 8 * square / 2), (first.written, sums),
                      (second.read, terms * 4 * square / 2 + sums), (second.written, sums)]:
        assert abs(got - want) <= 0.02 * want, (got, want, wide, begin, first, second)


@rows.full
def panels_of_factors_wait_for_one_another(folder):
    """A leaf of 256 rows has four panels of 64 rows: ten launches for the factor, seven for the solve, each at least as long as a tiny
    node. Other works take the time of their bytes or arithmetic."""
    found = traced_roots(folder)
    for name, launches in (("cusolver potrfBatched", 10), ("cublas trsmBatched", 7)):
        works = [w for w in found if w.name == name]
        assert works and all(w.rows == 256 for w in works), works[:3]
        for w in works:
            own = max(w.flops / nodes.RATE_PLAIN, (w.read + w.written) / nodes.BANDWIDTH)
            assert abs(nodes.eager_seconds(w) - launches * nodes.TINY - own) < 1e-9, w
    assert all(w.rows == 0 for w in found if "potrf" not in w.name and "trsm" not in w.name)
    few = found[0]._replace(name="cusolver potrfBatched", read=0, written=0, flops=0)
    assert [nodes.panel_launches(few._replace(rows=n)) for n in (1, 64, 65, 128, 129)] == [1, 1, 4, 4, 7]


@rows.full
def equal_matrices_move_the_same_bytes(folder):
    """Tracing one of several equal matrices counts the same bytes as tracing all. The first vectors of a product are shared by the
    matrices, hence the tolerance."""
    every, one = traced_roots(folder), traced_roots(folder, "1")
    assert [w.name for w in every] == [w.name for w in one]
    bad = [(a, b) for a, b in zip(every, one) if max(abs(a.read - b.read), abs(a.written - b.written)) > 0.01 * (a.read + a.written)]
    assert not bad and every != one, bad[:3]


ROWS = [a_recorded_step_has_at_most_so_many_nodes, a_recorded_step_has_at_most_so_many_tiny_nodes,
        instructions_take_the_time_that_bytes_do_not, attention_moves_and_computes_what_it_must,
        shampoo_asks_for_at_most_so_much, staggered_steps_have_all_roots_or_none, directions_are_not_written_back,
        bytes_of_kernels_are_counted, terms_of_roots_move_triangles, equal_matrices_move_the_same_bytes,
        panels_of_factors_wait_for_one_another]
LONG = [every_recorded_step_has_at_most_so_many_tiny_nodes, shampoo_takes_as_long_as_the_page_says]  # by name alone

ONLY = sys.argv[2] if len(sys.argv) > 2 else None
sys.exit(rows.run_rows(ROWS + [row for row in LONG if row.__name__ == ONLY], "lather-nodes-", ONLY))
