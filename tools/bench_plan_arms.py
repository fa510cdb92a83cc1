#!/usr/bin/env python3
"""Whether `plan --pilots auto` chooses well between algorithms that differ in kind: SGD and Shampoo, each with whole gradients, with top-k of 5 % and with
4 local steps, on 1, 2, 4 and 8 ranks (of one rank the first alone), which all share a batch of 512.

    tools/bench_plan_arms.py --program BUILD/tests/models/train_mlp --output DIR [--problems convex,network] [--hidden N] [--lr RATE] [--length N] [--until long|steps|arms]

Ranks are processes of this machine (mpirun), each a node of its own, a thread each; --comm-model holds their messages back as a link of --link would. The truth: a step's mean seconds of each
set-up, in a run of two whole rounds of roots; steps to the goal, the training loss that SGD has behind --length steps (logistic regression: 8 times as many), of SGD and of Shampoo in a run on one rank, as
all ranks together take the same batches. A set-up with top-k or local steps is run as long as the best of those takes, but where it could not be faster with 0.8 times their
steps. Printed: the table, chosen by best, what pilots and profile took of the chosen run, and what pilots of other lengths would have said of top-k and local steps. A run that is in --output is not made again; --until stops before what is to be measured on an idle machine ("long": before steps are timed)
or before `plan` ("arms")."""
import argparse
import json
import math
import os
import subprocess
import sys

from bench_plan_choice import GLOBAL_BATCH, PILOT_PROBLEMS, QUIET, SIZES, WIDE, add_problem_options, flags_of_problem, mpirun, steps_to

EXCHANGES = {"whole": [], "top-k 5 %": ["--compress", "topk:0.05"], "4 local steps": ["--local-steps", "4"]}
OPTIMIZERS = ("sgd", "shampoo")
TIMED = 102  # two whole rounds of roots and of local steps, behind two steps
LEAST = 0.8  # of the steps that its optimizer takes with whole gradients: fewer are not looked for


def cells():
    return [(optim, name, ranks) for optim in OPTIMIZERS for name in EXCHANGES for ranks in SIZES if ranks > 1 or name == "whole"]


def folder(a, problem, what, cell):
    optim, name, ranks = cell
    suffix = {"whole": "", "top-k 5 %": "-topk", "4 local steps": "-local"}[name]
    return os.path.join(a.output, problem, f"{what}-{optim}{suffix}" + (f"-{ranks}" if ranks > 1 or what == "step" else ""))


def steps_of(out, key):
    with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as f:
        return [r[key] for r in map(json.loads, f) if r["event"] == "step"]


def train(a, problem, what, cell, steps):
    """Runs it, or finds it run: a step's mean seconds, as plan takes it, and the losses."""
    optim, name, ranks = cell
    out = folder(a, problem, what, cell)
    words, env = mpirun(ranks) if ranks > 1 else ([], None)
    if not os.path.exists(os.path.join(out, "metrics.jsonl")) or len(steps_of(out, "loss")) < steps:
        subprocess.run([*words, a.program, *WIDE, *flags_of_problem(a, problem), "--ranks-per-node", "1", "--comm-model", a.link, "--optim", optim, *EXCHANGES[name], "--batch-size", str(GLOBAL_BATCH // ranks),
                        "--max-steps", str(steps), "--output", out, *QUIET], check=True, env=env, timeout=7200, stdout=subprocess.DEVNULL)
    timed = steps_of(out, "seconds")[2:]
    return sum(timed) / len(timed), steps_of(out, "loss")[:steps]


def tail(losses):
    window = len(losses) // 20 + 5
    return sum(losses[-window:]) / window


def whole_gradients(a, problem, length):
    """The goal, and {optimizer: (steps to it, at least)}."""
    _, losses = train(a, problem, "long", ("sgd", "whole", 1), length)
    window, goal = len(losses) // 20 + 5, tail(losses)
    steps = {"sgd": steps_to(losses, goal)}
    _, losses = train(a, problem, "long", ("shampoo", "whole", 1), length // 4)
    steps["shampoo"] = steps_to(losses, goal, window)
    return goal, window, steps, {"sgd": steps["sgd"], "shampoo": min(steps["shampoo"], len(losses))}


def other_arms(a, problem, goal, window, steps, least, step):
    """Adds their steps to the goal, None where they could not be the best. The fastest steps first, as each may shorten those behind it."""
    best = min(step[o, "whole", r] * steps[o] for o in OPTIMIZERS for r in SIZES)
    for cell in sorted((c for c in cells() if c[1] != "whole"), key=lambda c: step[c] * least[c[0]]):
        if LEAST * step[cell] * least[cell[0]] >= best:
            steps[cell] = None
            continue
        _, losses = train(a, problem, "long", cell, math.ceil(best / step[cell] / 100) * 100)
        steps[cell] = steps_to(losses, goal, window)
        best = min(best, step[cell] * steps[cell])


def ask(a, problem, goal, length):
    words = [a.program, "plan", *WIDE, *flags_of_problem(a, problem), "--ranks-per-node", "1", "--one-machine", "--slots", str(a.slots), "--comm-model", a.link, "--link-between", a.link,
             "--vary", "optim=sgd,shampoo", "--vary", "compress=off,topk:0.05", "--vary", "local-steps=0,4", "--vary", "batch-size=" + ",".join(str(GLOBAL_BATCH // r) for r in SIZES),
             "--global-batch", str(GLOBAL_BATCH), "--ranks", ",".join(map(str, SIZES)), "--goal", f"train_loss={goal:.6g}", "--max-steps", str(length), "--profile-seconds", "0.3", "--pilots", "auto",
             "--pilot-budget", "5%", "--json", "-"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise SystemExit(done.stderr.strip().splitlines()[-1])
    return json.loads(done.stdout)


def cell_of(candidate):
    name = {"topk": "top-k 5 %", "local-steps": "4 local steps"}.get(candidate["exchange"], "whole")
    return candidate["optim"], name if candidate["ranks"] > 1 else "whole", candidate["ranks"]


def report(problem, goal, said, step, steps):
    predicted = {}
    for c in said["candidates"]:
        predicted.setdefault(cell_of(c), c)
    print(f"\n{problem}: {len(step)} set-ups. Goal: a training loss of {goal:.4g}\n\n| optimizer | gradients | ranks | ms a step | predicted ms | rests on | steps | predicted steps | log10 | seconds |\n"
          "| --- | --- | --: | --: | --: | --- | --: | --: | --: | --: |")
    seconds = {}
    for cell in cells():
        count, c = steps.get(cell, steps[cell[0]] if cell[1] == "whole" else None), predicted.get(cell)
        seconds[cell] = step[cell] * (math.inf if count is None else count)
        told = c["steps"]["value"] if c else None
        print(f"| {cell[0]} | {cell[1]} | {cell[2]} | {1e3 * step[cell]:.2f} | " + (f"{1e3 * c['step_seconds']['value']:.2f} | {c['step_seconds']['rests_on']}" if c else "- | fell") +
              f" | {'-' if count is None else 'more' if math.isinf(count) else count} | {'-' if told is None else f'{told:.0f}'} | " +
              (f"{math.log10(told / count):+.2f}" if told and count and math.isfinite(count) else "-") + (f" | {seconds[cell]:.1f} |" if math.isfinite(seconds[cell]) else " | - |"))
    chosen, best = cell_of(said["candidates"][0]), min(seconds, key=seconds.get)
    run = chosen[2] * seconds[chosen]
    cost, profiled = said["pilots"]["rank_seconds"], said["pilots"]["profile_rank_seconds"]
    for q in said["pilots"]["made"]:
        print(f"\nPilot of a {q['of']}: {q['setting']} on {q['ranks']} ranks, {q['steps']} steps, {q['rank_seconds']:.2f} rank-seconds" +
              (f", {q['slowdown']:.3f} times the steps" if q["slowdown"] else "") + (f": {q['failed']}" if q["failed"] else ""), end="")
    print(f"\n\nNo more: {said['pilots']['no_more']}\n\nChosen: {said['candidates'][0]['setting']} on {chosen[2]} ranks, {seconds[chosen]:.1f} s; best: {best[0]}, {best[1]}, on {best[2]} ranks, {seconds[best]:.1f} s. "
          f"Ratio {seconds[chosen] / seconds[best]:.2f}. Pilots {cost:.2f} rank-seconds, profile {profiled:.2f}: {100 * cost / run:.1f} % and {100 * profiled / run:.1f} % of the chosen run's {run:.0f}.")


def slowdown(lossy, lossless):
    """Of the first steps of both, as arms.c has it."""
    steps = range((len(lossy) + 1) // 2, len(lossy) + 1)
    x, y = [math.log(i) for i in steps], [math.log(lossless[i - 1]) for i in steps]
    mean = sum(x) / len(x), sum(y) / len(y)
    slope = sum((a - mean[0]) * (b - mean[1]) for a, b in zip(x, y)) / sum((a - mean[0]) ** 2 for a in x)
    return max(1, math.exp(-sum(math.log(lossy[i - 1] / lossless[i - 1]) for i in steps) / len(x) / slope)) if slope < 0 else math.nan


def by_length(a, problem):
    """What a pilot of so many steps would have said of each long run."""
    lengths = (100, 200, 400, 1000, 2000, 4000)
    print("\n| slowdown by the first steps | " + " | ".join(map(str, lengths)) + " |\n| --- |" + " --: |" * len(lengths))
    for cell in cells():
        if cell[1] != "whole" and os.path.exists(os.path.join(folder(a, problem, "long", cell), "metrics.jsonl")):
            lossy, lossless = (steps_of(folder(a, problem, "long", c), "loss") for c in (cell, (cell[0], "whole", 1)))
            print(f"| {', '.join(cell[:2])}, {cell[2]} ranks | " + " | ".join(f"{slowdown(lossy[:n], lossless[:n]):.3f}" if len(lossy) >= n else "-" for n in lengths) + " |")


def work(a, problem):
    os.makedirs(os.path.join(a.output, problem), exist_ok=True)
    length = PILOT_PROBLEMS[problem][1] * a.length
    goal, window, steps, least = whole_gradients(a, problem, length)
    if a.until == "long":
        return
    step = {cell: train(a, problem, "step", cell, TIMED)[0] for cell in cells()}
    if a.until == "steps":
        return
    other_arms(a, problem, goal, window, steps, least, step)
    if a.until != "arms":
        report(problem, goal, ask(a, problem, goal, length), step, steps)
    by_length(a, problem)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--program", required=True)
    p.add_argument("--output", required=True)
    p.add_argument("--problems", default="convex,network")
    add_problem_options(p)
    p.add_argument("--length", type=int, default=30000, help="steps of the run that is planned")
    p.add_argument("--link", default="50,10", metavar="US,GBIT", help="between ranks")
    p.add_argument("--until", choices=("long", "steps", "arms"))
    p.add_argument("--slots", type=int, default=os.cpu_count(), help="ranks that compute at full speed together")
    a = p.parse_args()
    a.program = os.path.abspath(a.program)
    for problem in a.problems.split(","):
        work(a, problem)
    return 0


if __name__ == "__main__":
    sys.exit(main())
