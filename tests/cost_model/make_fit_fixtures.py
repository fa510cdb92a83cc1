#!/usr/bin/env python3
"""Answers of SciPy and scikit-learn to small least-squares problems.

    make_fit_fixtures.py > fit.txt        (scipy and scikit-learn from PyPI)

The problems are not in the file: cell k of problem p is a hash of (p, k), computed here and in least_squares.c. Lines:
"nnls P norm x...", "lasso P intercept x...", "choose P penalty error"; doubles in hexadecimal. tol = 0 runs coordinate
descent until nothing changes.
"""
import datetime
import warnings

import numpy as np
import scipy
import sklearn
from scipy.optimize import nnls
from sklearn.linear_model import Lasso
from sklearn.linear_model import lasso_path

PROBLEMS, CHOICES, FOLDS = 1000, 40, 4
MASK = (1 << 64) - 1


def number(p, k):
    """Uniform in [-1,1): splitmix64's output function."""
    z = (p * 0x9E3779B97F4A7C15 + k * 0xD1B54A32D192ED03 + 0x632BE59BD9B4E019) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    z ^= z >> 31
    return (z >> 11) * 2.0 ** -52 - 1


def problem(p, longer=0):
    """a, b: columns share a part; b is a sum of some columns, and noise."""
    columns, rows = 1 + p % 12, 14 + p * 7 % 31 + longer
    a = [[number(p, i * columns + j) + 0.5 * number(p, 100000 + i) for j in range(columns)] for i in range(rows)]
    b = []
    for i in range(rows):
        total = 0.25 + number(p, 200000 + i)
        for j in range(columns):
            total += a[i][j] * number(p, 300000 + j)
        b.append(total)
    return np.array(a), np.array(b)


def text(values):
    return " ".join("0" if v == 0 else float(v).hex() for v in values)


def choose(a, b):
    """The largest penalty of those with the smallest mean of the folds' mean squares, and its root."""
    fold = np.arange(len(b)) % FOLDS
    centred = a - a.mean(0)
    largest = np.abs(centred.T @ (b - b.mean())).max() / len(b)
    penalties = [largest * 10 ** (-i / 5) for i in range(31)]
    squares = np.zeros(32)
    for f in range(FOLDS):
        inside, outside = fold != f, fold == f
        shift, middle = a[inside].mean(0), b[inside].mean()
        _, x, _ = lasso_path(a[inside] - shift, b[inside] - middle, alphas=penalties, tol=0, max_iter=3000)
        plain = np.linalg.lstsq(a[inside] - shift, b[inside] - middle, rcond=None)[0]
        x = np.column_stack([x, plain])
        apart = (a[outside] - shift) @ x + middle - b[outside][:, None]
        squares += (apart ** 2).mean(0) / FOLDS
    best = int(squares.argmin())
    return (penalties + [0.0])[best], np.sqrt(squares[best])


warnings.simplefilter("ignore")
print(f"# Least squares with conditions. SciPy {scipy.__version__}, scikit-learn {sklearn.__version__}.")
print(f"# Maker: tests/cost_model/make_fit_fixtures.py, {datetime.date.today()}")
for p in range(PROBLEMS):
    a, b = problem(p)
    x, norm = nnls(a, b)
    print(f"nnls {p} {text([norm, *x])}")
for p in range(PROBLEMS):
    a, b = problem(p)
    model = Lasso(alpha=0.02 * (1 + p % 5), tol=0, max_iter=20000).fit(a, b)
    print(f"lasso {p} {text([model.intercept_, *model.coef_])}")
for p in range(CHOICES):
    a, b = problem(p, 20)
    print(f"choose {p} {text(choose(a, b))}")
