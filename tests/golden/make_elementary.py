#!/usr/bin/env python3
"""Tables of src/base/elementary/elementary.c, and arguments with results of its functions, in decimal arithmetic of 90 digits.

    make_elementary.py tables > ../../src/base/elementary/tables.h
    make_elementary.py golden [COUNT [SEED]] > elementary.txt
    make_elementary.py powers [MOST]
    make_elementary.py check

The last fails if the two files differ from what is made. A line of the second and the third: function, arguments, and the result as the sum of two doubles (the
first is the correctly rounded one). The third: powers of an optimizer's coefficients with all integer exponents up to MOST.
"""
import contextlib
import io
import math
import pathlib
import random
import re
import sys
from decimal import Decimal, getcontext

getcontext().prec = 90
getcontext().Emin, getcontext().Emax = -10**9, 10**9
D = Decimal


def atan_of_inverse(n):
    """atan(1 / n), n an integer > 1."""
    total, power, k = D(0), 1 / D(n), 0
    while power > D(10) ** -460:
        total += (-power if k % 2 else power) / (2 * k + 1)
        power, k = power / (n * n), k + 1
    return total


def pi(digits):
    previous, getcontext().prec = getcontext().prec, digits
    value = 4 * (4 * atan_of_inverse(5) - atan_of_inverse(239))  # Machin
    getcontext().prec = previous
    return value


PI = pi(460)  # as long as reducing 2^1024 needs


def sin(x):
    getcontext().prec = 450
    x = x % (2 * PI)
    getcontext().prec = 90
    total, term, k = D(0), +x, 1
    while abs(term) > D(10) ** -95:
        total, term, k = total + term, -term * x * x / ((k + 1) * (k + 2)), k + 2
    return total


def cos(x):
    getcontext().prec = 450
    shifted = x + PI / 2
    getcontext().prec = 90
    return sin(shifted)


def erfc(x):
    """Series of positive terms below 12, from there the continued fraction."""
    if x < 0:
        return 2 - erfc(-x)
    getcontext().prec = 200
    if x < 12:
        total, term, k = D(0), +x, 0
        while term > D(10) ** -200:
            total, term, k = total + term, term * 2 * x * x / (2 * k + 3), k + 1
        value = 1 - 2 * total * (-x * x).exp() / PI.sqrt()
    else:
        value = D(0)
        for k in range(1200, 0, -1):
            value = D(k) / 2 / (x + value)
        value = (-x * x).exp() / PI.sqrt() / (x + value)
    getcontext().prec = 90
    return +value


def expm1(x):
    return x + x * x / 2 + x**3 / 6 if abs(x) < D(10) ** -25 else x.exp() - 1


def tanh(x):
    return expm1(2 * x) / (expm1(2 * x) + 2)


def log1p(x):
    return x - x * x / 2 + x**3 / 3 if abs(x) < D(10) ** -25 else (1 + x).ln()


def power(x, y):
    return (y * abs(x).ln()).exp() * (-1 if x < 0 and y % 2 else 1)


def two(value):
    """The nearest double, and the nearest to what remains."""
    first = float(value)
    return first, float(value - D(first))


def lines(cells, per_line):
    return "".join("    " + ", ".join(cells[i:i + per_line]) + ",\n" for i in range(0, len(cells), per_line))


def short(x):
    """As %a prints it."""
    return re.sub(r"\.?0*p", "p", x.hex())


def log_row(i):
    """c near 1 / (1 + i/32) with ten bits, and -log(c) in two parts."""
    c = D(round(1024 / (1 + i / 32))) / 1024
    value = -c.ln()
    first = (value * 2**42).to_integral_value() / 2**42
    return short(float(c)), [short(float(first)), short(float(value - first))]


def erfc_coefficients(count=26, middle=D("3.75")):
    """Polynomial in t through (1 + 2x) exp(x^2) erfc(x) at Chebyshev's nodes, x = middle (1 + t) / (1 - t)."""
    angle = [PI * (2 * k + 1) / (2 * count) for k in range(count)]
    node = [cos(a) for a in angle]
    xs = [middle * (1 + t) / (1 - t) for t in node]
    value = [(1 + 2 * x) * (x * x).exp() * erfc(x) for x in xs]
    total = [D(0)] * count
    before, now = [D(0)] * count, [D(1)] + [D(0)] * (count - 1)  # T(-1) is not used
    for n in range(count):
        c = sum(v * cos(n * a) for v, a in zip(value, angle)) * (2 if n else 1) / count
        total = [s + c * p for s, p in zip(total, now)]
        following = [2 * (now[i - 1] if i else 0) - before[i] for i in range(count)]
        before, now = now, [D(0), D(1)] + [D(0)] * (count - 2) if n == 0 else following
    return [float(c) for c in total]


def tables():
    print("/* Made by tests/golden/make_elementary.py. */\n"
          "#ifndef LT_BASE_ELEMENTARY_TABLES_H\n#define LT_BASE_ELEMENTARY_TABLES_H\n\n#include <stdint.h>\n\n/* clang-format off */")
    print("/* 2^(i/32), each as the sum of two doubles. */\nstatic const double powers_of_2[64] = {")
    print(lines([short(v) for i in range(32) for v in two((D(i) / 32 * D(2).ln()).exp())], 4) + "};\n")
    inverse, log = zip(*(log_row(i) for i in range(33)))
    print("/* c with ten bits, near 1 / (1 + i/32). */\nstatic const double inverses[33] = {")
    print(lines(inverse, 8) + "};\n")
    print("/* -log(c), each as the sum of two doubles, the first a multiple of 2^-42. */\n"
          "static const double logs[66] = {")
    print(lines(sum(log, []), 4) + "};\n")
    print("/* 64 zeros, then the bits of 2/pi after the point. */\nstatic const uint64_t two_over_pi[20] = {")
    getcontext().prec = 450
    bits = int(2 / PI * 2**(19 * 64))
    getcontext().prec = 90
    print(lines([f"0x{bits >> 64 * (19 - i) & 2**64 - 1:016x}" for i in range(20)], 4) + "};\n")
    print("/* (1 + 2x) exp(x^2) erfc(x) as a polynomial in t = (x - 3.75) / (x + 3.75), ascending. */\n"
          "static const double erfc_coef[26] = {")
    print(lines([short(c) for c in erfc_coefficients()], 4) + "};\n/* clang-format on */\n\n#endif")


def near_multiple(n):
    """The double nearest to a multiple of pi/2."""
    return float(n * PI / 2)


def arguments(count, rng):
    """Pairs of a function's name and its arguments: random ones and those at the seams of its intervals."""
    signed = lambda low, high: rng.choice((-1, 1)) * 2 ** rng.uniform(low, high)
    seam = lambda x: [x, math.nextafter(x, math.inf), math.nextafter(x, -math.inf)]
    draw = {"exp": lambda: rng.uniform(-744, 709), "log": lambda: 2 ** rng.uniform(-1074, 1024), "tanh": lambda: signed(-40, 4.5),
            "log1p": lambda: abs(signed(-60, 1023)) if rng.random() < 0.7 else -rng.random(), "erfc": lambda: rng.uniform(-6, 27),
            "sin": lambda: signed(-30, rng.choice((4, 20, 1023))), "cos": lambda: signed(-30, rng.choice((4, 20, 1023)))}
    fixed = {"exp": seam(709.5) + seam(-708.4) + [k * math.log(2) / 64 for k in range(-9, 10, 2)],
             "log": seam(1.0) + seam(1.5) + seam(1 + 1 / 64) + [2.0**-1074, 1 - 1 / 128],
             "log1p": seam(-0.5) + seam(2.0**-54) + [-1 + 2.0**-53, 1e300], "tanh": seam(1.0) + seam(2.0**-28) + seam(22.0),
             "erfc": seam(0.0) + seam(3.75) + [26.5, -5.9],
             "sin": seam(math.pi / 4) + [near_multiple(n) for n in (1, 2, 3, 11, 12345)] + [6381956970095103 * 2.0**797],
             "cos": seam(math.pi / 4) + [near_multiple(n) for n in (1, 2, 3, 11, 12345)] + [6381956970095103 * 2.0**797]}
    for name in draw:
        for x in fixed[name] + [draw[name]() for _ in range(count)]:
            yield name, (x,)
    for _ in range(count):
        x = 2 ** rng.uniform(-1074, 1024) if rng.random() < 0.5 else rng.uniform(0.5, 1.5)
        yield "pow", (x, rng.uniform(-700, 700) / (abs(math.log(x)) + 1e-3))
    for x, y in ((10.0, 22.0), (3.0, 2.0), (0.999, 1e5), (1 - 2.0**-53, 2.0**60), (-3.0, 5.0), (-3.0, 4.0), (2.0, -1074.0)):
        yield "pow", (x, y)
    # Large errors near 1: of the function, and of one whose log() has a square in one double instead of two.
    for x, y in ("0x1.041ebd306897cp+0", "0x1.2e1fa28929e02p+15"), ("0x1.02ed480a1c764p+0", "-0x1.d2d2b3ca6c7ddp+15"):
        yield "pow", (float.fromhex(x), float.fromhex(y))


def golden(count=100, seed=44):
    exact = {"exp": D.exp, "log": D.ln, "log1p": log1p, "tanh": tanh, "erfc": erfc, "sin": sin, "cos": cos, "pow": power}
    print(f"# make_elementary.py golden {count} {seed}: function, arguments, result (two doubles)")
    for name, given in arguments(count, random.Random(seed)):
        print(name, *(v.hex() for v in given), *(v.hex() for v in two(exact[name](*map(D, given)))))


def powers(most=20000):
    for x in (0.9, 0.95, 0.99, 0.999, 0.9999):
        value = D(1)
        for n in range(1, most + 1):
            value *= D(x)
            print("pow", x.hex(), float(n).hex(), *(v.hex() for v in two(value)))


def check():
    """Whether both files are as made."""
    here = pathlib.Path(__file__).parent
    for make, path in (tables, here / "../../src/base/elementary/tables.h"), (golden, here / "elementary.txt"):
        with contextlib.redirect_stdout(io.StringIO()) as made:
            make()
        if made.getvalue() != path.read_text():
            sys.exit(f"{path}: differs from what make_elementary.py {make.__name__} prints")


if __name__ == "__main__":
    {"tables": tables, "golden": golden, "powers": powers, "check": check}[sys.argv[1]](*map(int, sys.argv[2:]))
