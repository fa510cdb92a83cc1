#!/usr/bin/env python3
"""optim_replay against the model in tests/oracle, configuration by configuration.

    replay_matrix.py OPTIM_REPLAY [--long]      exit 0: all agree; 77: no numpy here; 1: a difference

In float64 every parameter after every step agrees to 1e-9 of the tensor's largest value, or to 10 times what
rounding alone does to the configuration (`optim_model.py sensitivity`), if that is more; configurations in which it does
1e-8 or more are counted apart, as they show little, and are compared all the same. In float32 the result is within 1e-4 of
float64, or 10 times what rounding to float32 alone does, if that is more: where a factor is rank-deficient, or nearly, and
epsilon small.

Controls must be rejected: for each option the program runs with it and the model without it, besides some where the two
differ by little. --long: all of tests/oracle/matrix.py on more and longer tensors, at least 120 configurations.
"""
import argparse, json, math, os, subprocess, sys, tempfile

try:
    import numpy as np
except ImportError:
    print("SKIP: numpy is not installed")
    sys.exit(77)
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracle"))
import matrix
import optim_model as model

BOUND, ROUNDING, TELLING, ENOUGH = 1e-9, 10, 1e-8, 120
BOUND_F32, COARSER = 1e-4, 2.0**29      # float32 has 29 bits less than float64
# Pairs: what the program runs, what the model runs.
CLOSE = {
    "another frequency": (matrix.shampoo(precondition_frequency=2), matrix.shampoo(precondition_frequency=3)),
    "decay off by 1/1000": (matrix.shampoo(weight_decay=1e-4, momentum=0.9), matrix.shampoo(weight_decay=1.001e-4, momentum=0.9)),
    "Adam's epsilon off by 1e-6": ({"optim": "adam", "lr": 0.01}, {"optim": "adam", "lr": 0.01, "epsilon": 1.01e-6}),
}


def run(program, folder, config, dtype):
    paths = [os.path.join(folder, n) for n in ("c.json", "t.safetensors", "r.safetensors")]
    with open(paths[0], "w") as f:
        json.dump(dict(config, dtype=dtype), f)
    subprocess.run([program, "--config", paths[0], "--in", paths[1], "--out", paths[2]], check=True)
    return model.load(paths[2])


def difference(want, got):
    if set(want) != set(got) or any(want[k].shape != got[k].shape for k in want):
        return math.inf
    if not all(np.isfinite(a).all() for a in got.values()):
        return math.inf
    return model.difference(want, {k: a.astype(np.float64) for k, a in got.items()})


def difference_f32(want, got):
    """Relative to a parameter's largest value in all steps: a single weight may pass through 0."""
    if difference(want, got) == math.inf:
        return math.inf
    largest = {}
    for k, a in want.items():
        name = k.split(".", 2)[2]
        largest[name] = max(largest.get(name, 0.0), np.abs(a).max())
    return max(np.abs(want[k] - got[k]).max() / largest[k.split(".", 2)[2]] for k in want)


class Comparison:
    def __init__(self, program, folder, shapes, steps):
        self.program, self.folder, self.steps = program, folder, steps
        self.tensors, self.file = matrix.trace(0, shapes, steps), None
        self.failed, self.telling, self.exact, self.count = [], 0, 0, 0

    def choose(self, config):
        """The tensors of a configuration: thousands of blocks, or a huge one, show no more than dozens."""
        limit = config.get("max_preconditioner_dim", 1024)
        most = math.inf if 32 <= limit <= 64 else 400
        tensors = {k: a for k, a in self.tensors.items() if self.tensors["param." + k.split(".")[-1]].size < most}
        if self.file != len(tensors):
            model.save(os.path.join(self.folder, "t.safetensors"), tensors)
            self.file = len(tensors)
        return tensors

    def row(self, name, ours, theirs, control=False):
        ours, theirs = matrix.resolved(ours, self.steps), matrix.resolved(theirs, self.steps)
        tensors = self.choose(theirs)
        want, rounding = model.replay(theirs, tensors), model.sensitivity(theirs, tensors)
        d64 = difference(want, run(self.program, self.folder, ours, "float64"))
        d32 = difference_f32(want, run(self.program, self.folder, ours, "float32"))
        ok = d64 <= max(BOUND, ROUNDING * rounding) and d32 <= max(BOUND_F32, ROUNDING * COARSER * rounding)
        passed = ok != control
        self.count += 1
        self.telling += not control and rounding < TELLING
        self.exact += not control and d32 <= BOUND_F32
        self.failed += [] if passed else [name]
        print(f"{'ok' if passed else 'FAILED':6} {'control: ' if control else ''}{name}: float64 {d64:.1e}, float32 {d32:.1e}, "
              f"rounding alone {rounding:.1e}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--long", action="store_true", help="the whole matrix")
    args = parser.parse_args()
    shapes, steps = (matrix.LONG_SHAPES, matrix.LONG_STEPS) if args.long else (matrix.SHORT_SHAPES, matrix.SHORT_STEPS)
    rows = {**matrix.FIRST_ORDER, **{n: c for n, (c, _) in matrix.SINGLE.items()}}
    controls = dict(CLOSE)
    if args.long:
        rows.update({**matrix.grid(), **matrix.pairs()})
        controls.update({f"without '{n}'": pair for n, pair in matrix.SINGLE.items()})
    with tempfile.TemporaryDirectory() as folder:
        c = Comparison(args.program, folder, shapes, steps)
        for name, config in rows.items():
            c.row(name, config, config)
        for name, (ours, theirs) in controls.items():
            c.row(name, ours, theirs, control=True)
    if args.long and c.telling < ENOUGH:
        c.failed.append(f"only {c.telling} configurations in which rounding does less than {TELLING}")
    print(f"{c.count} comparisons, {c.telling} of them telling, {c.exact} within 1e-4 in float32, {len(c.failed)} failed {c.failed or ''}")
    sys.exit(bool(c.failed))


if __name__ == "__main__":
    main()
