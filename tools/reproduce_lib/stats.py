"""Means, deviations and bootstrap intervals; seeds are resampled, with a fixed random seed."""
import random
import statistics

SAMPLES = 1000
LEVEL = 0.95


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
