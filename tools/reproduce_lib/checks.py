"""Checks before the first run: settings that the trainer rejects, duplicate cells, a global batch that the ranks cannot divide,
finished cells of a program with other defaults, missing devices."""
import subprocess
import tempfile

from . import plugins
from .cells import role_of, settings_of, sweep_points, trial_values
from .launch import ENVIRONMENT, UNCOMPARED, LaunchError, accumulation, message_of
from .names import identity
from .plan import PlanError


def check_all(work, launcher):
    """Errors: PlanError, LaunchError."""
    check_arms(work.plan, launcher)
    check_sweeps(work, launcher)
    for cell in work.cells().by_id.values():
        accumulation(cell.settings, launcher.ranks)
    check_finished(work, launcher)


def resolve(launcher, settings, where):
    try:
        return launcher.resolve(settings)
    except LaunchError as error:
        raise PlanError(f"{where}: {error}") from None


def check_arms(plan, launcher):
    seen = {}
    for arm in plan.arms.values():
        settings = settings_of(plan, arm, plan.tune_at, 0, trial_values(arm, 0))
        resolved = identity(resolve(launcher, settings, arm.where), settings)
        accumulation(settings, launcher.ranks)
        fixed = tuple(sorted((k, v) for k, v in resolved.items() if k not in arm.tuned))
        kind = (fixed, tuple(sorted(arm.tuned.items())))
        if kind in seen:
            raise PlanError(f"{arm.where}: has the settings of [arm {seen[kind]}]: each of its cells would be there twice")
        seen[kind] = arm.name


def check_sweeps(work, launcher):
    """Their cells are known only when an arm is tuned: until then with a trial's values."""
    plan, best = work.plan, work.cells().best
    for sweep in plan.sweeps:
        seen = {}
        for point, values in sweep_points(sweep, best[sweep.arm.name] or trial_values(sweep.arm, 0)):
            settings, role = settings_of(plan, sweep.arm, sweep.budget, 1, values), role_of(sweep, point)
            accumulation(settings, launcher.ranks)
            config = tuple(sorted(resolve(launcher, settings, sweep.where).items()))
            if config in seen:
                raise PlanError(f"{sweep.where}: '{role}' has the settings of '{seen[config]}': a cell would be there twice")
            seen[config] = role


def check_finished(work, launcher):
    """Cells of one kind differ only in tuned numbers, budget and seed: one finished cell of each against what the trainer makes
    of its settings now."""
    plan, kinds = work.plan, {}
    free = {"seed", "epochs", "warmup-epochs"}.union(*(arm.tuned for arm in plan.arms.values()))
    for cell in work.cells().by_id.values():
        metrics = work.store.metrics(cell.id)
        if metrics:
            kinds.setdefault(tuple((k, v) for k, v in sorted(cell.settings.items()) if k not in free), (cell, metrics))
    for cell, metrics in kinds.values():
        where = f"{plan.path}: {cell.roles[0]}"
        now = identity(resolve(launcher, cell.settings, where), cell.settings)
        then = identity(metrics.get("config") or now, cell.settings)
        for key, value in now.items():
            was = then[key] if key in then else missing(launcher, cell, key, now, where)
            if key not in UNCOMPARED and was != value:
                raise PlanError(f"{where}: cell {cell.id} was run with {key} {was}, this program takes {value}: write the one "
                                "that is meant into the plan, or use another --out")


def missing(launcher, cell, key, now, where):
    """The value of a setting in a finished cell whose config lacks it: the optimizer's default if the trainer got the flag later.
    An empty list is not in a config, so a preset that has an entry now differs from the preset at that time."""
    return now[key] if key in cell.settings else resolve(launcher, {"optim": now["optim"], **plugins.of_settings(cell.settings)}, where).get(key, "none")


def check_devices(plan, launcher):
    """Each does one step. Errors: LaunchError: a device that is not there would fail every cell it is given."""
    arm = plan.arms[plan.baseline]
    line = launcher.start_of_line(settings_of(plan, arm, plan.tune_at, 0, trial_values(arm, 0)))
    for device in dict.fromkeys(launcher.devices):
        with tempfile.TemporaryDirectory(prefix="device-", dir=launcher.scratch) as folder:
            done = subprocess.run(line + ["--max-steps", "1", "--limit-eval-batches", "1", "--progress", "off", "--no-tensorboard",
                                          "--device", device, "--output", folder],
                                  capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False, env=ENVIRONMENT)
        if done.returncode:
            raise LaunchError(f"--devices: {device}: {message_of(done.stderr, done.returncode)}")
