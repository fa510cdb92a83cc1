"""Claims of a plan, each with its measured value and a verdict; and the bands that --check compares with."""
import json
import os

from .stats import deviation, mean
from .store import read_json, write_whole

HOLDS, FAILS, UNTESTED = "holds", "does not hold", "not tested here"
CLOCK = ("seconds-ratio", "overhead", "roots")
WHOLE_STEPS = ("seconds-ratio", "overhead")  # other load on the machine decides them; roots are compared within the same steps
LEAST_BAND = 1.0  # points: scores of another machine differ by rounding alone


class Verdict:
    """Result of a claim; value, low and high may be None, for a claim without measurements."""

    def __init__(self, claim, metric, found, verdict, note=""):
        self.claim, self.metric, self.verdict, self.note = claim, metric, verdict, note
        self.value, self.low, self.high = found if found else (None, None, None)
        self.is_clock = claim["measure"][0] in CLOCK

    def text(self):
        if self.value is None:
            return "–"
        points = f" {self.metric.points}"
        unit = {"gain": points, "sensitivity": points, "range": points, "overhead": " %", "roots": " %"}.get(self.claim["measure"][0], "×")
        sign, digits = "+" if unit != "×" else "", self.metric.digits if unit == points else 2
        if self.low == self.high == self.value:
            return f"{self.value:{sign}.{digits}f}{unit}"
        return f"{self.value:{sign}.{digits}f}{unit} [{self.low:{sign}.{digits}f}, {self.high:{sign}.{digits}f}]"

    def bound_text(self):
        if not self.claim["bound"]:
            return "–"
        word, number = self.claim["bound"]
        return f"{word.replace('-', ' ')} {number:g}" + (", within noise" if self.claim["noise"] else "")


def measure(claim, measured):
    """(value, low, high) or None."""
    kind, *words = claim["measure"]
    arm = measured.plan.challenger
    if kind == "gain":
        return measured.gain(arm, float(words[0]), float(words[1]))
    if kind == "epochs-ratio":
        found = measured.epochs_ratio(arm, float(words[0]))
        return found and found[:3]
    if kind == "seconds-ratio":
        return measured.seconds_ratio(arm, float(words[0]))
    if kind == "overhead":
        return measured.overhead(arm)
    if kind == "roots":
        return measured.roots_ratio(arm)
    if kind == "sensitivity":
        own, base = measured.drop(words[0]), measured.drop(words[1])
        return None if own is None or base is None else (own - base,) * 3
    if kind == "range":
        values = [v for _, v in measured.sweep(words[0])]
        return None if not values or None in values else (max(values) - min(values),) * 3
    return None


def verdict_of(claim, measured):
    """Without `within-noise` the whole interval must be on the right side of the bound, with it a part of it."""
    found, metric = measure(claim, measured), measured.metric
    if found is None:
        return Verdict(claim, metric, None, UNTESTED)
    if claim["measure"][0] not in ("sensitivity", "range") and not measured.has_seeds():
        return Verdict(claim, metric, found, UNTESTED, "one seed says little")
    if claim["measure"][0] in WHOLE_STEPS and measured.plan.clock == "indicative":
        return Verdict(claim, metric, found, UNTESTED, "seconds are indicative")
    word, bound = claim["bound"]
    _, low, high = found
    if word == "at-least":
        good = high >= bound if claim["noise"] else low >= bound
    else:
        good = low <= bound if claim["noise"] else high <= bound
    return Verdict(claim, metric, found, HOLDS if good else FAILS)


def verdicts_of(measured):
    return [verdict_of(claim, measured) for claim in measured.plan.claims]


def bands_of(measured, verdicts):
    """The content that --write-bands stores: verdicts, and for each arm and budget a mean and the tolerance of a rerun."""
    accuracy, metric = {}, measured.metric
    for arm, rows in measured.finals.items():
        for budget, runs in rows.items():
            if runs:
                values = [metric.sign * run.score for run in runs]
                accuracy[f"{arm} {budget:g}"] = [round(mean(values), metric.digits + 1), round(max(LEAST_BAND * metric.point, 3 * deviation(values)), metric.digits + 1)]
    return {"claims": {v.claim["name"]: v.verdict for v in verdicts}, "accuracy": accuracy}


def bands_path(folder):
    return os.path.join(folder, "bands.json")


def write_bands(folder, bands):
    write_whole(bands_path(folder), json.dumps(bands, indent=1) + "\n")


def compare(stored, now):
    """Lines of text about results that are worse than the stored bands."""
    problems = [f"claim {name}: held, now: {now['claims'].get(name, 'not in the plan')}"
                for name, verdict in stored["claims"].items() if verdict == HOLDS and now["claims"].get(name) != HOLDS]
    for key, (centre, width) in stored["accuracy"].items():
        if key not in now["accuracy"]:
            problems.append(f"accuracy of {key}: not measured")
        elif not abs(now["accuracy"][key][0] - centre) <= width:
            problems.append(f"accuracy of {key}: {now['accuracy'][key][0]:.2f} %, stored {centre:.2f} ± {width:.2f}")
    return problems


def find_bands(folders):
    """The stored bands of the first folder that has some, or None."""
    return next((b for b in (read_json(bands_path(f)) for f in folders) if b), None)
