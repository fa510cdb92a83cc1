#!/usr/bin/env python3
"""Ten steps of the first-order optimizers on three parameters, in 50-digit decimal arithmetic.

    first_order.py > first_order.txt

Hyperparameters and gradients are doubles taken exactly. Lines: "optimizer STEP w0 w1 w2", doubles as %a.
"""
import datetime
from decimal import Decimal, getcontext

getcontext().prec = 50
D = Decimal
START = [D("0.5"), D("-1.25"), D("2")]
STEPS = 10


def gradient(t, i):
    return D((7 * t + 3 * i) % 11 - 5) / 4


def sgd(w, g, s, t, lr=D(0.1), mu=D(0.9), d=D(0.25), wd=D(0.01)):
    for i in range(3):
        h = g[i] + wd * w[i]
        s[i] = h if t == 1 else mu * s[i] + (1 - d) * h
        w[i] -= lr * s[i]


def nesterov(w, g, s, t, lr=D(0.1), mu=D(0.9)):
    for i in range(3):
        s[i] = g[i] if t == 1 else mu * s[i] + g[i]
        w[i] -= lr * (g[i] + mu * s[i])


def adagrad(w, g, s, t, lr=D(0.1), eps=D(1e-10), wd=D(0.01)):
    for i in range(3):
        h = g[i] + wd * w[i]
        s[i] += h * h
        w[i] -= lr * h / (s[i].sqrt() + eps)


def adam(w, g, s, t, lr=D(0.1), b1=D(0.9), b2=D(0.999), eps=D(1e-8), wd=D(0.01), decoupled=False):
    for i in range(3):
        h = g[i]
        if decoupled:
            w[i] *= 1 - lr * wd
        else:
            h += wd * w[i]
        s[i] = b1 * s[i] + (1 - b1) * h
        s[i + 3] = b2 * s[i + 3] + (1 - b2) * h * h
        w[i] -= lr * (s[i] / (1 - b1 ** t)) / ((s[i + 3] / (1 - b2 ** t)).sqrt() + eps)


def adamw(w, g, s, t):
    adam(w, g, s, t, decoupled=True)


print("# Ten steps on three parameters in 50-digit decimal arithmetic.")
print(f"# Maker: tests/golden/first_order.py, {datetime.date.today()}")
for name, update in (("sgd", sgd), ("nesterov", nesterov), ("adagrad", adagrad), ("adam", adam), ("adamw", adamw)):
    w, s = list(START), [D(0)] * 6
    for t in range(1, STEPS + 1):
        update(w, [gradient(t, i) for i in range(3)], s, t)
        print(name, t, *(float(x).hex() for x in w))
