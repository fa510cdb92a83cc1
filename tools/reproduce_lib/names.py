"""Names of cells: a hash of the configuration that the trainer resolves their settings to, and of the data's fingerprint.

Two cells of which one only spells out a default have one name, and are run once. A finished cell may have another name than
that hash: it is also found by its settings (names once were hashes of these), and by the values of its resolved config that
differ from the defaults, so that finished cells are still found after the trainer got a new flag whose default changes nothing.
Without a trainer, as when a report is redrawn, names are those stored in plan.json."""
import hashlib
import json

from . import plugins
from .launch import UNCOMPARED, LaunchError
from .plan import OWN_FLAGS

# Keys of a resolved config that affect where and how a run is made, but not its results.
NOT_COMPARED = (set(OWN_FLAGS) - {"seed", "epochs"}) | (set(UNCOMPARED) - {"eval-every"}) | {"comm-timeout", "allow-plugin", plugins.FILES}


def hash_of(**parts):
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


def key_of(settings, fingerprint):
    return hash_of(data=fingerprint, settings=settings)


def identity(config, settings):
    """The settings that determine a run's numbers: those of its resolved config, and the global batch, which is not a flag of the
    trainer. With a global batch the length of an epoch is the plan's: on the command line it depends on the ranks."""
    found = {key: value for key, value in config.items() if key not in NOT_COMPARED}
    if "global-batch" in settings:
        found["global-batch"] = settings["global-batch"]
        found["limit-train-batches"] = settings.get("limit-train-batches", "0")
    if plugins.HASHES in settings:
        found[plugins.HASHES] = settings[plugins.HASHES]
    return found


class Names:
    """A function from settings to names. known: key of settings -> name, from earlier calls; resolve(settings) gives the
    trainer's config or raises LaunchError, None where there is no trainer."""

    def __init__(self, store, fingerprint, known, resolve=None):
        self.store, self.fingerprint, self.known, self.resolve = store, fingerprint, known, resolve
        self.given, self.defaults = {}, {}
        self.by_settings, self.by_config = {}, None
        for name, metrics in store.all_metrics():
            self.by_settings.setdefault(key_of(metrics["settings"], metrics["data"]), name)

    def __call__(self, settings):
        """Errors: LaunchError."""
        key = key_of(settings, self.fingerprint)
        if key not in self.given:
            self.given[key] = self.find(key, settings)
        return self.given[key]

    def find(self, key, settings):
        for name in (self.known.get(key), self.by_settings.get(key)):
            if name and self.store.metrics(name):
                return name
        if not self.resolve:
            return self.known.get(key, key)
        config = self.resolve(settings)
        if self.by_config is None:
            self.by_config = {}
            for difference, name in self.finished_configs():
                self.by_config.setdefault(difference, name)
        return self.by_config.get(self.difference(config, settings)) or hash_of(data=self.fingerprint,
                                                                               config=identity(config, settings))

    def difference(self, config, settings):
        """The values of a config that differ from its optimizer's defaults. A flag that no longer exists counts only if it was
        given."""
        optim = config.get("optim")
        key = (optim, settings.get(plugins.FILES))
        if key not in self.defaults:
            self.defaults[key] = self.resolve({"optim": optim, **plugins.of_settings(settings)})
        defaults = self.defaults[key]
        return tuple(sorted((key, value) for key, value in identity(config, settings).items()
                            if key == "optim" or (key in settings if key not in defaults else value != defaults[key])))

    def finished_configs(self):
        for name, metrics in self.store.all_metrics():
            if metrics["data"] == self.fingerprint and metrics.get("config"):
                try:
                    yield self.difference(metrics["config"], metrics["settings"]), name
                except LaunchError:
                    pass  # its optimizer no longer exists
