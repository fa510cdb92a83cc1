"""A plan: an INI file with [plan], [common], [arm NAME], [sweep NAME] and [claim NAME]. docs/guides/reproduce.md describes it.

Keys of [common] and [arm] are flags of the trainer without dashes, values those of its command line: the trainer
itself rejects unknown ones. `A .. B` is tuned; `5%` of warmup-epochs is of the budget."""
import configparser
import difflib
import os
import re

from .metric import METRICS

# Flags that the tool itself gives: a plan may not.
OWN_FLAGS = ("data", "output", "resume", "seed", "epochs", "max-steps", "progress", "keep", "threads", "workers", "device",
             "log-every", "tensorboard", "config", "recipe", "eval", "weights", "grad-accum", "profile", "target-top1")
PLAN_KEYS = ("title", "about", "program", "metric", "data", "budgets", "tune-at", "trials", "seeds", "baseline", "challenger", "clock", "global-batch",
             "checkpoint-every")
CLAIM_KEYS = ("text", "source", "measure", "at-least", "at-most", "within-noise", "known")
MEASURES = {"gain": 2, "epochs-ratio": 1, "seconds-ratio": 1, "overhead": 0, "roots": 0, "sensitivity": 2, "range": 1, "none": 0}
RANGE = re.compile(r"^\s*(\S+)\s*\.\.\s*(\S+)\s*$")
NAME = re.compile(r"^[a-z0-9][a-z0-9-]*$")


class PlanError(Exception):
    """An error in a plan, with its place."""


def number(text, where, low=None, high=None, whole=False):
    try:
        value = int(text) if whole else float(text)
    except ValueError:
        raise PlanError(f"{where}: '{text}' is no {'whole ' if whole else ''}number") from None
    if not abs(value) < float("inf") or (low is not None and value < low) or (high is not None and value > high):
        raise PlanError(f"{where}: {text} is not within {low:g} to {high:g}")
    return value


def tuned_range(text, where):
    """(low, high) of 'A .. B', None of anything else."""
    match = RANGE.match(text)
    if not match:
        return None
    low, high = (number(part, where, 1e-300, 1e300) for part in match.groups())
    if not low < high:
        raise PlanError(f"{where}: {text}: the first number is not below the second")
    return low, high


class Arm:
    """An optimizer with its settings; tuned: flag -> (low, high)."""

    def __init__(self, name, section, where):
        self.name, self.where = name, where
        self.flags = dict(section)
        self.label = self.flags.pop("label", name)
        check_flags(self.flags, where)
        ranges = {key: tuned_range(value, f"{where}: {key}") for key, value in self.flags.items()}
        self.tuned = {key: r for key, r in ranges.items() if r}
        self.fixed = {key: value for key, value in self.flags.items() if key not in self.tuned}


class Sweep:
    """One or two settings of a tuned arm, varied: axes is [(flag, [values as written])]."""

    def __init__(self, name, section, where, plan):
        flags = dict(section)
        self.name, self.where = name, where
        self.label = flags.pop("label", name)
        arm = take(flags, "arm", where)
        if arm not in plan.arms:
            raise PlanError(f"{where}: no arm '{arm}'{nearest(arm, plan.arms)}")
        self.arm = plan.arms[arm]
        self.budget = number(take(flags, "budget", where), f"{where}: budget", 1e-6, 1e6)
        if self.budget not in plan.budgets:
            raise PlanError(f"{where}: budget: {self.budget:g} is not in budgets")
        check_flags(flags, where)
        self.axes = [(key, value.split()) for key, value in flags.items()]
        if not 1 <= len(self.axes) <= 2:
            raise PlanError(f"{where}: one or two settings can be varied, here are {len(self.axes)}")
        for key, values in self.axes:
            for value in values:
                if values.count(value) > 1:
                    raise PlanError(f"{where}: {key}: {value} twice: a cell would be there twice")
                if value.startswith("x"):
                    number(value[1:], f"{where}: {key}", 1e-12, 1e12)
                    if key not in self.arm.tuned and key not in self.arm.fixed:
                        raise PlanError(f"{where}: {key}: {value} is a multiple of nothing: arm '{arm}' does not set it")


def take(flags, key, where):
    if key not in flags:
        raise PlanError(f"{where}: '{key}' is missing")
    return flags.pop(key)


def nearest(word, known):
    close = difflib.get_close_matches(word, list(known), 1)
    return f"; did you mean '{close[0]}'?" if close else ""


def check_flags(flags, where, may_be_set=(), given="by the tool, not by a plan"):
    for key in flags:
        if key in OWN_FLAGS and key not in may_be_set:
            raise PlanError(f"{where}: {key}: given {given}")
        if not NAME.match(key):
            raise PlanError(f"{where}: '{key}' is no flag")


def check_keys(section, known, where):
    for key in section:
        if key not in known:
            raise PlanError(f"{where}: unknown key '{key}'{nearest(key, known)}")


class Plan:
    """title, program, metric, data, budgets, tune_at, trials, seeds, baseline, challenger, common, arms, sweeps, claims."""

    def __init__(self, path):
        self.path, self.name = path, os.path.splitext(os.path.basename(path))[0]
        parser = read(path)
        for section in parser.sections():
            kind = section.split(" ")[0]
            if section not in ("plan", "common") and (kind not in ("arm", "sweep", "claim") or not NAME.match(section[len(kind) + 1:])):
                raise PlanError(f"{path}: [{section}]: not [plan], [common], [arm NAME], [sweep NAME] or [claim NAME]")
        if "plan" not in parser:
            raise PlanError(f"{path}: no section [plan]")
        self.read_head(dict(parser["plan"]))
        self.common = dict(parser["common"]) if "common" in parser else {}
        check_flags(self.common, self.at("common"))
        self.check_warmup()

        def each(kind):
            return [(s[len(kind) + 1:], parser[s], self.at(s)) for s in parser.sections() if s.startswith(kind + " ")]
        self.arms = {name: Arm(name, section, where) for name, section, where in each("arm")}
        self.check_arms()
        self.sweeps = [Sweep(name, section, where, self) for name, section, where in each("sweep")]
        self.claims = [self.read_claim(name, dict(section), where) for name, section, where in each("claim")]

    def at(self, section):
        return f"{self.path}: [{section}]"

    def read_head(self, head):
        where = self.at("plan")
        check_keys(head, PLAN_KEYS, where)
        self.title = head.get("title", self.name)
        self.about = head.get("about", "")
        self.data = head.get("data")
        self.program = head.get("program", "train_resnet50")
        metric = head.get("metric", "top1")
        if metric not in METRICS:
            raise PlanError(f"{where}: metric: got '{metric}', want one of {', '.join(METRICS)}")
        self.metric = METRICS[metric]
        self.budgets = [number(b, f"{where}: budgets", 1e-6, 1e6) for b in take(head, "budgets", where).split()]
        if not self.budgets or sorted(set(self.budgets)) != self.budgets:
            raise PlanError(f"{where}: budgets: numbers of epochs, rising, none twice; here is '{self.budgets}'")
        self.tune_at = number(head.get("tune-at", str(self.budgets[-1])), f"{where}: tune-at", 1e-6, 1e6)
        if self.tune_at not in self.budgets:
            raise PlanError(f"{where}: tune-at: {self.tune_at:g} is not in budgets")
        self.trials = number(head.get("trials", "1"), f"{where}: trials", 1, 10000, True)
        self.seeds = number(head.get("seeds", "3"), f"{where}: seeds", 1, 1000, True)
        self.baseline, self.challenger = take(head, "baseline", where), take(head, "challenger", where)
        self.clock = head.get("clock", "measured")
        if self.clock not in ("measured", "indicative"):
            raise PlanError(f"{where}: clock: '{self.clock}' is neither measured nor indicative")
        self.global_batch = number(head.get("global-batch", "0"), f"{where}: global-batch", 0, 1e9, True)
        self.checkpoint_every = number(head.get("checkpoint-every", "0"), f"{where}: checkpoint-every", 0, 1e12, True)

    def check_warmup(self):
        text = self.common.get("warmup-epochs", "0")
        if not text.endswith("%") and number(text, f"{self.at('common')}: warmup-epochs", 0, 1e6) > self.budgets[0]:
            raise PlanError(f"{self.at('plan')}: budgets: {self.budgets[0]:g} epochs are fewer than the {text} of the warm-up")
        if text.endswith("%"):
            number(text[:-1], f"{self.at('common')}: warmup-epochs", 0, 100)

    def check_arms(self):
        for role, name in (("baseline", self.baseline), ("challenger", self.challenger)):
            if name not in self.arms:
                raise PlanError(f"{self.at('plan')}: {role}: no arm '{name}'{nearest(name, self.arms)}")
        seen = {}
        for arm in self.arms.values():
            key = tuple(sorted({**self.common, **arm.flags}.items()))
            if key in seen:
                raise PlanError(f"{arm.where}: has the settings of [arm {seen[key]}]: each of its cells would be there twice")
            seen[key] = arm.name
        counts = {len(arm.tuned) for arm in self.arms.values()}
        if self.trials > 1 and len(counts) > 1:
            raise PlanError(f"{self.path}: arms tune different numbers of settings ({', '.join(map(str, sorted(counts)))}): "
                            "equal trials would not be equal tuning")

    def read_claim(self, name, section, where):
        check_keys(section, CLAIM_KEYS, where)
        claim = {"name": name, "text": take(section, "text", where), "source": section.get("source", ""),
                 "known": section.get("known", ""), "noise": section.get("within-noise", "no") == "yes"}
        words = section.get("measure", "none").split()
        if words[0] not in MEASURES:
            raise PlanError(f"{where}: measure: unknown '{words[0]}'{nearest(words[0], MEASURES)}")
        if len(words) - 1 != MEASURES[words[0]]:
            raise PlanError(f"{where}: measure: {words[0]} takes {MEASURES[words[0]]} arguments")
        self.check_measure(words, where)
        claim["measure"] = words
        bounds = [k for k in ("at-least", "at-most") if k in section]
        if words[0] != "none" and len(bounds) != 1:
            raise PlanError(f"{where}: one of at-least and at-most is needed")
        claim["bound"] = (bounds[0], number(section[bounds[0]], f"{where}: {bounds[0]}", -1e12, 1e12)) if bounds else None
        return claim

    def check_measure(self, words, where):
        if words[0] in ("gain", "epochs-ratio", "seconds-ratio"):
            for text in words[1:]:
                if number(text, f"{where}: measure", 1e-6, 1e6) not in self.budgets:
                    raise PlanError(f"{where}: measure: {text} is not in budgets")
        if words[0] in ("sensitivity", "range"):
            names = [s.name for s in self.sweeps]
            for text in words[1:]:
                if text not in names:
                    raise PlanError(f"{where}: measure: no sweep '{text}'{nearest(text, names)}")


def read(path):
    parser = configparser.ConfigParser(delimiters=("=",), comment_prefixes=("#",), inline_comment_prefixes=None,
                                       interpolation=None, strict=True, default_section=" ")
    parser.optionxform = str
    try:
        with open(path, encoding="utf-8") as file:
            parser.read_file(file, path)
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror}") from None
    except (configparser.Error, UnicodeDecodeError) as error:
        raise PlanError(" ".join(str(error).split())) from None
    return parser
