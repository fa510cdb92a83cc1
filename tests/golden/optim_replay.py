#!/usr/bin/env python3
"""Reference results for tests/optim/test_replay.c, computed by the model in tests/oracle; needs numpy.

    optim_replay.py > optim_replay.txt

Parameters and gradients are hashes of (step, tensor, element), see value(). For each configuration of
tests/oracle/matrix.py that varies one option: "config ROUNDING JSON", then per tensor "tensor NUMBER sum sum_of_squares first last" of the
parameter after the last step, doubles as %a. ROUNDING is the relative difference caused by rounding alone.
"""
import datetime, json, math, os, sys
import numpy as np

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "oracle"))
import matrix
import optim_model as model

SHAPES = [(7,), (5, 6), (4, 3, 3, 2), (2, 3, 2, 1, 3), ()]
STEPS = 12


def value(t, k, i):
    x = (t * 1000003 + k * 10007 + i * 101 + 1) * 2654435761 % 2**32
    x = (x ^ x >> 15) * 2246822519 % 2**32
    x = (x ^ x >> 13) * 3266489917 % 2**32
    return (x ^ x >> 16) / 2**31 - 1


def tensor(t, k):
    return np.array([value(t, k, i) for i in range(math.prod(SHAPES[k]))]).reshape(SHAPES[k])


def main():
    trace = {f"param.{k}": tensor(0, k) for k in range(len(SHAPES))}
    for t in range(1, STEPS + 1):       # tensor t % 5 has no gradient in steps 4 and 9
        trace.update({f"grad.{t}.{k}": tensor(t, k) for k in range(len(SHAPES)) if not (t % 5 == 4 and k == t // 5)})
    print("# The model's parameters after the last step, by configuration.")
    print(f"# Maker: tests/golden/optim_replay.py, {datetime.date.today()}")
    for config in (*matrix.FIRST_ORDER.values(), *(c for c, _ in matrix.SINGLE.values())):
        config = matrix.resolved(config, STEPS)
        end = model.replay(config, trace)
        print(f"config {model.sensitivity(config, trace):.1e} {json.dumps(config)}")
        for k in range(len(SHAPES)):
            w = end[f"param.{STEPS}.{k}"].ravel()
            print("tensor", k, *(float(x).hex() for x in (math.fsum(w), math.fsum(w * w), w[0], w[-1])))


main()
