"""Means, deviations and bootstrap intervals; seeds are resampled, with a fixed random seed."""
import itertools
import random
import statistics

SAMPLES = 1000
LEVEL = 0.95
MOST_PAIRS = 12  # up to here all signs are tried


def mean(values):
    return sum(values) / len(values)


def deviation(values):
    """Sample standard deviation; 0 for a single value."""
    return statistics.stdev(values) if len(values) > 1 else 0.0


def quantile(ordered, q):
    at = q * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def bootstrap(measure, *groups):
    """(low, high) of measure(resampled group, ...): percentiles over groups drawn with replacement; (value, value) if
    no group has two members. Efron & Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13."""
    if all(len(group) < 2 for group in groups):
        value = measure(*groups)
        return value, value
    rng = random.Random(1)
    found = sorted(measure(*([g[int(rng.random() * len(g))] for _ in g] for g in groups)) for _ in range(SAMPLES))
    return quantile(found, (1 - LEVEL) / 2), quantile(found, (1 + LEVEL) / 2)


def sign_flip(differences):
    """p of the two-sided permutation test of paired differences: the share of assignments of signs whose sum is at least as far
    from 0; of all assignments, or of SAMPLES random ones with a fixed seed. Fisher, The Design of Experiments, 1935."""
    if len(differences) <= MOST_PAIRS:
        signs = list(itertools.product((1, -1), repeat=len(differences)))
    else:
        rng = random.Random(1)
        signs = [[1] * len(differences)] + [[rng.choice((1, -1)) for _ in differences] for _ in range(SAMPLES)]
    far = abs(sum(differences)) * (1 - 1e-12)
    return mean([abs(sum(s * d for s, d in zip(row, differences))) >= far for row in signs])
