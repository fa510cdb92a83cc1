#!/usr/bin/env python3
"""Measures steps on several nodes beside what `plan` says of them; prints a Markdown table.

    tools/bench_plan.py --build BUILD [--grid 1x1,2x1,4x1,4x2,4x4] [--rate 200mbit] [--only 'two-level;tensor'] [--rounds 3]

A step's parts are measured on this machine by `train_resnet50 plan --step-profile` and `train_gpt plan`, of one rank among as
many as there are (--profile-ranks), anew in each round in front of its steps, as a machine that others share is not the same for long; links by
`bench links` on the nodes of tools/netbed (so root), and each set-up is predicted by `plan --simulate` from nothing else. The rate
between nodes is what a card keeps to under the traffic of the set-up (one mean of `bench exchange`: in two levels, as top-k and owners
exchange gradients too, where ranks talk to those with their place in other nodes, else flat, where all talk to all), at most what TCP leaves of
--rate (1448 of 1514 bytes of a frame); that of owners' gathers, which wait for no sums, what `bench links` finds; all nodes share this machine's processors (--slots). Then it is run on the nodes, short steps for ten seconds, and a row is the round whose predicted / measured is the median: a round's profile is of the same
minutes as its steps. Set-ups take turns, as a minute in which the machine has other work hits all alike. A row of predicted / measured is good between 0.9 and 1.1, if the rows of one rank (1x1), where
nothing is exchanged, are near 1: else the machine was busier in the steps than in the profile. Exit status 77: no nodes can be
had here."""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
NETBED = [os.path.join(HERE, "netbed"), "--name", "plan"]
TRAFFIC = {"two-level": "two-level", "topk": "two-level", "owners": "two-level"}  # between ranks with their place in other nodes; else all to all
ROOTS = 3  # steps between Shampoo's roots
WARM = 2  # steps in which buckets and residuals come to be
LEVELS = {"flat": ["--allreduce", "flat"], "two-level": ["--allreduce", "two-level"], "topk": ["--compress", "topk:0.01"]}
SHARE = 1448 / 1514  # payload of a frame
LEAST_SECONDS = 10  # of measured steps
NO_LINK = {"latency_us": 1, "gbit": 100, "core_us": 0}  # of a grid that has none of its kind


def run(words, timeout, **more):
    done = subprocess.run(words, capture_output=True, text=True, timeout=timeout, check=False, **more)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith(("train_", "bench", "lather", "netbed"))]
        raise RuntimeError(f"{' '.join(words)}: {(said or done.stderr.splitlines() or ['said nothing'])[0]}")
    return done.stdout


class Model:
    """A program with its model and data. A measured step is one of whole periods of new roots."""

    def __init__(self, a, folder, program, words, optim=("sgd",), period=1):
        self.path = os.path.join(a.build, "models", program)
        self.a, self.folder, self.period = a, folder, period
        self.words = [*words, "--optim", *optim, "--threads", "1", "--workers", "1"]
        self.goal = ["--goal", "deadline=1d"]
        self.name = f"{os.path.basename(self.path)} {optim[0]}"
        self.profile = os.path.join(folder, f"{self.name}.json")

    def length(self, step_seconds):
        """Flags of a run that measures --steps, of short ones as many as LEAST_SECONDS take."""
        steps = max(self.a.steps, math.ceil(LEAST_SECONDS / step_seconds))
        return ["--max-steps", str(-(-steps // self.period) * self.period + WARM)]

    def measure_profile(self, ranks):
        """Of one rank among all, which share memory, caches and cores."""
        if os.path.exists(self.profile):
            os.remove(self.profile)
        run([self.path, "plan", *self.words, *self.goal, *self.length(1), "--step-profile", self.profile, "--profile-seconds", str(self.a.profile_seconds), "--profile-ranks", str(ranks)],
            self.a.patience, env=dict(os.environ, OMP_WAIT_POLICY="passive"))
        with open(self.profile, encoding="utf-8") as f:
            said = json.load(f)
        print(f"{self.name}, {ranks} at work: {1e3 * said['batch_seconds'][1]:.1f} ms", file=sys.stderr, flush=True)

    def predict(self, nodes, ranks, links, flags):
        file = os.path.join(self.folder, f"links-{nodes}x{ranks}.json")
        with open(file, "w", encoding="utf-8") as f:
            json.dump({kind: links.get(kind) or NO_LINK for kind in ("within", "between")}, f)
        slots = os.cpu_count() / nodes
        out = run([self.path, "plan", *self.words, *self.length(1), *self.goal, *beside_plain(flags), "--step-profile", self.profile, "--simulate", "--ranks", str(nodes * ranks),
                   "--ranks-per-node", str(ranks), "--link", file, "--slots", f"{slots:g}", "--json", "-"], self.a.patience)
        said = json.loads(out)
        return next(c["modelled"] for c in [*said["candidates"], *said["dropped"]] if ("tensor" in c["setting"]) == ("--tensor-parallel" in flags))

    def steps(self, flags, launcher, about):
        """Seconds of each, which are predicted to be about so many."""
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "run")
            run([*launcher, self.path, *self.words, *flags, *self.length(about), "--limit-eval-batches", "1", "--progress",
                 "off", "--no-tensorboard", "--output", out], self.a.patience)
            with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as f:
                records = [r for r in map(json.loads, f) if r["event"] == "step"]
        seconds = [r["seconds"] for r in records[WARM:]]
        return [statistics.mean(seconds[i:i + self.period]) for i in range(0, len(seconds), self.period)]


def rate(text):
    unit = {"kbit": 1e-6, "mbit": 1e-3, "gbit": 1}
    return float(text[:-4]) * unit[text[-4:]]


def is_wanted(a, name):
    return not a.only or any(w in name for w in a.only.split(";"))


def rows_of(a, models, nodes, ranks):
    """(name, model, flags) of a grid."""
    images, words, shampoo = models
    if nodes * ranks == 1:
        return [r for r in [("one rank", images, []), ("one rank of GPT", words, []), ("one rank, owner", shampoo, [])] if is_wanted(a, r[0])]
    rows = [(name, images, flags) for name, flags in LEVELS.items() if name == "flat" or (ranks > 1 and nodes > 1) or (name == "topk" and nodes > 1)]
    for tensor in ([2] if nodes * ranks == 2 else [4] if nodes * ranks == 4 else []):
        rows.append((f"tensor {tensor}", words, ["--tensor-parallel", str(tensor)]))
    rows.append(("owners", shampoo, ["--shard-optimizer"]))
    return [r for r in rows if is_wanted(a, r[0])]


def beside_plain(flags):
    """A divided model that does not pay is dropped beside the undivided one, with what it is predicted to take; alone plan would end in an error."""
    return ["--vary", f"tensor-parallel=1,{flags[1]}"] if flags[:1] == ["--tensor-parallel"] else flags


def print_row(nodes, ranks, name, cost, seconds):
    measured = statistics.median(seconds)
    parts = " | ".join(f"{1e3 * cost[k]:.0f}" for k in ("compute", "update", "exposed", "waiting", "seconds"))
    print(f"| {nodes}x{ranks} | {name} | {parts} | {1e3 * measured:.0f} | {1e3 * min(seconds):.0f} | {cost['seconds'] / measured:.2f} |", flush=True)


def measure_links(a, nodes, ranks):
    """The best of three: what else runs on the machine only makes a link slower, so do ranks that wait."""
    best = {}
    for kind, count in (("within", 2), ("between", ranks + 1)):
        words = [*NETBED, "run", "-n", str(count), "--", os.path.join(a.build, "tools", "bench"), "links", "--json", "--threads", "1"]
        tries = [json.loads(run(words, a.patience)) for _ in range(3)]
        found = [t[kind] for t in tries if t.get(kind)]
        if found:
            best[kind] = {"gbit": max(f["gbit"] for f in found), **{key: min(f[key] for f in found) for key in ("latency_us", "core_us", "core_us_mib")}}
            print(f"{kind}: {best[kind]}", file=sys.stderr, flush=True)
    found = {}
    for traffic in ("flat", "two-level") if ranks > 1 and nodes > 1 else ("flat",):
        gbit = min(rate(a.rate) * SHARE, busy_rate(a, nodes, traffic))
        found[traffic] = {**best, "between": {**best["between"], "gbit": gbit, "gather_gbit": max(gbit, best["between"]["gbit"])}}
        print(f"between, all nodes at once, {traffic}: {gbit:.4f} Gbit/s", file=sys.stderr, flush=True)
    return found


def busy_rate(a, nodes, traffic):
    """Gbit/s of a node's card when all nodes take a mean: where several senders meet at a card it is less than between two."""
    out = run([*NETBED, "run", "--", os.path.join(a.build, "tools", "bench"), "exchange", "--json", "--threads", "1", "--elements", "3200000", "--steps", "3",
               "--reducer", traffic], a.patience)
    said = json.loads(out)["reducers"][0]
    return 8e-6 * said["bytes_between"] / nodes / said["milliseconds"]


def play(a, rows, nodes, ranks, links, launcher):
    rounds = [[] for _ in rows]  # of each row (ratio, cost, seconds of steps)
    for _ in range(a.rounds):
        for model in dict.fromkeys(model for _, model, _ in rows):
            model.measure_profile(nodes * ranks)
        for (name, model, flags), found in zip(rows, rounds):
            cost = model.predict(nodes, ranks, links.get(TRAFFIC.get(name), links.get("flat", {})), flags)
            taken = model.steps(flags, launcher, cost["seconds"])
            found.append((cost["seconds"] / statistics.median(taken), cost, taken))
            print(f"{nodes}x{ranks} {name}: {1e3 * cost['seconds']:.0f} ms predicted, {1e3 * statistics.median(taken):.0f} ms", file=sys.stderr, flush=True)
    for (name, _, _), found in zip(rows, rounds):
        _, cost, taken = sorted(found, key=lambda f: f[0])[(len(found) - 1) // 2]
        print_row(nodes, ranks, name, cost, taken)


def grid(a, models, nodes, ranks):
    rows = rows_of(a, models, nodes, ranks)
    if nodes * ranks == 1:
        play(a, rows, 1, 1, {}, [])
        return
    up = subprocess.run([*NETBED, "up", str(nodes), "--ranks", str(ranks), "--rate", a.rate, "--burst", str(a.burst)], capture_output=True,
                        text=True, check=False)
    if up.returncode:
        print(up.stderr.strip(), file=sys.stderr)
        sys.exit(up.returncode)
    try:
        links = measure_links(a, nodes, ranks)
        play(a, rows, nodes, ranks, links, [*NETBED, "run", "--"])
    finally:
        subprocess.run([*NETBED, "down"], capture_output=True, check=False)


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", required=True)
    p.add_argument("--grid", default="1x1,2x1,4x1,4x2,4x4", help="nodes x ranks of each")
    p.add_argument("--rate", default="200mbit", help="of a node's card")
    p.add_argument("--burst", type=int, default=131072, help="bytes that a card lets pass at once")
    p.add_argument("--arch", default="resnet18")
    p.add_argument("--image-size", type=int, default=32)
    p.add_argument("--batch-size", type=int, default=4, help="per rank")
    p.add_argument("--tokens", type=int, default=128, help="of a sequence")
    p.add_argument("--width", type=int, default=256)
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--steps", type=int, default=6, help="measured, of a round")
    p.add_argument("--rounds", type=int, default=3, help="of an even number a row is the lower one in the middle")
    p.add_argument("--profile-seconds", type=float, default=10)
    p.add_argument("--only", default="", metavar="'WORD;...'", help="rows with one of these in their name")
    p.add_argument("--patience", type=float, default=400, help="seconds for one run")
    a = p.parse_args()
    a.build = os.path.abspath(a.build)
    return a


def main():
    a = parse()
    with tempfile.TemporaryDirectory() as folder:
        text = os.path.join(folder, "text.txt")
        with open(text, "w", encoding="utf-8") as f:
            f.write("the quick brown fox jumps over the lazy dog. " * (a.tokens * a.batch_size * 16 * (max(a.steps, 100) + WARM) // 40 + 100))
        data = ["--data", f"synthetic:20000:{a.image_size}:100", "--arch", a.arch, "--batch-size", str(a.batch_size)]
        images = Model(a, folder, "resnet50/train_resnet50", data)
        shampoo = Model(a, folder, "resnet50/train_resnet50", data, ["shampoo", "--max-preconditioner-dim", "256", "--precondition-frequency", str(ROOTS)], ROOTS)
        words = Model(a, folder, "gpt/train_gpt", ["--data", text, "--seq-len", str(a.tokens), "--positions", str(a.tokens), "--layers", str(a.layers),
                                                   "--width", str(a.width), "--heads", "4", "--batch-size", str(2 * a.batch_size)])
        print(f"{os.cpu_count()} processors for all ranks, {a.rate} between nodes, {a.arch} on {a.image_size} x {a.image_size}, {a.batch_size} images a rank; "
              f"a GPT of {a.layers} layers of width {a.width}, {2 * a.batch_size} x {a.tokens} tokens a copy; ms; {a.rounds} rounds of {a.steps} steps\n")
        print("| grid | set-up | computing | update | exposed | waiting | predicted | measured | fastest | predicted / measured |")
        print("| --- | --- | --: | --: | --: | --: | --: | --: | --: | --: |")
        for text_of in a.grid.split(","):
            nodes, ranks = (int(n) for n in text_of.split("x"))
            grid(a, (images, words, shampoo), nodes, ranks)
    return 0


if __name__ == "__main__":
    sys.exit(main())
