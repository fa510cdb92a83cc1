"""Means, deviations and bootstrap intervals; resampling is of seeds, with a fixed seed of its own."""
import random
import statistics

SAMPLES = 1000
LEVEL = 0.95


def mean(values):
    return sum(values) / len(values)


def deviation(values):
    """Of a sample; 0 of a single value."""
    return statistics.stdev(values) if len(values) > 1 else 0.0


def quantile(ordered, q):
    at = q * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def bootstrap(measure, *groups):
    """(low, high) of measure(resampled group, ...): percentiles over groups drawn with replacement; (value, value) where
    there is nothing to draw from. Efron & Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13."""
    if all(len(group) < 2 for group in groups):
        value = measure(*groups)
        return value, value
    rng = random.Random(1)
    found = sorted(measure(*([g[int(rng.random() * len(g))] for _ in g] for g in groups)) for _ in range(SAMPLES))
    return quantile(found, (1 - LEVEL) / 2), quantile(found, (1 + LEVEL) / 2)
