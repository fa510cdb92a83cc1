"""Plugins of a plan: code that runs as this user, so a plan may name them only with --allow-plugin. Their SHA-256 is part of the
settings, and thus of the names of cells: another plugin makes other cells."""
import os
import shlex

from .plan import PlanError
from .store import sha256_of

FILES, HASHES = "plugin", "plugin-sha256"


def hashes_of(files):
    """Errors: PlanError."""
    try:
        return " ".join(map(sha256_of, files))
    except OSError as error:
        raise PlanError(f"plugin {error.filename}: {error.strerror}") from None


def settle(plan, given, is_allowed, recorded):
    """Adds the hashes of plugins to [common] and arms. given: files of --plugin, which replace the plan's; recorded: text of
    files -> hashes from an earlier call, None unless nothing is run. Returns them. Errors: PlanError."""
    sections = [(plan.at("common"), plan.common)] + [(arm.where, arm.fixed) for arm in plan.arms.values()]
    known = {}
    for where, flags in sections:
        if given:
            flags.pop(FILES, None)
        elif FILES in flags and not is_allowed:
            raise PlanError(f"{where}: plugin {flags[FILES]} is code that this plan would run: --allow-plugin permits it, --plugin FILE.so "
                            "replaces it")
    if given:
        plan.common[FILES] = shlex.join(given)
    for sweep in plan.sweeps:
        if FILES in dict(sweep.axes):
            raise PlanError(f"{sweep.where}: plugin: belongs to an arm, not to a sweep")
    for _, flags in sections:
        text = flags.get(FILES)
        if text:
            known[text] = recorded[text] if recorded and text in recorded else hashes_of(shlex.split(text))
            flags[HASHES] = known[text]
    return known


def listed(plan):
    """(file, SHA-256) of the plan's plugins, each once."""
    found = {}
    for flags in [plan.common] + [arm.fixed for arm in plan.arms.values()]:
        found.update(zip(shlex.split(flags.get(FILES, "")), flags.get(HASHES, "").split()))
    return sorted(found.items())


def of_settings(settings):
    """The setting that names plugins, for a command line that needs no other settings."""
    return {FILES: settings[FILES]} if FILES in settings else {}


def flags_of(text):
    return [word for path in shlex.split(text) for word in ("--plugin", path)]


def is_named_data(data, settings):
    """Data that is no path, but may be the name of a plugin's data set."""
    return any(FILES in s for s in settings) and os.sep not in data and not os.path.exists(data)
