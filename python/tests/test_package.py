"""Finding the library, its version, the tables of the headers, and run folders."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import lather
from lather import _headers, _library

PACKAGE = os.path.dirname(lather.__file__)


def outcome(package, **environment):
    """Standard error of `import lather` from another folder, or "" if it works."""
    done = subprocess.run([sys.executable, "-c", "import lather"], env={**os.environ, "PYTHONPATH": package, **environment}, text=True,
                          capture_output=True, check=False)
    return done.stderr


class Library(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        shutil.copytree(PACKAGE, os.path.join(self.folder, "lather"), ignore=shutil.ignore_patterns("*.so*", "__pycache__"))

    def tearDown(self):
        shutil.rmtree(self.folder)

    def tables(self, **changes):
        with open(os.path.join(self.folder, "lather", "api.json"), "w", encoding="utf-8") as file:
            json.dump({**_library.api, **changes}, file)

    def test_tables_of_a_wheel_are_enough(self):
        self.tables()
        self.assertEqual(outcome(self.folder, LATHER_LIBRARY=lather.library_path), "")

    def test_another_version_is_an_error_with_both_numbers(self):
        self.tables(version="9.8.7")
        self.assertRegex(outcome(self.folder, LATHER_LIBRARY=lather.library_path),
                         f"ImportError: lather: this package is of version 9.8.7, but the library .* is of version {lather.__version__}")

    def test_a_slow_processor_is_a_warning(self):
        self.tables()
        code = "import lather; lather.tensor([1.0]); print(lather.build_info())"
        for isa, wanted in (("generic", "RuntimeWarning: lather: this processor has no vector instructions"), ("avx2", "^$")):
            if isa == "avx2" and any("CPU kernels: generic" in line for line in lather.build_info()):
                continue
            done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=False,
                                  env={**os.environ, "PYTHONPATH": self.folder, "LATHER_CPU_ISA": isa, "LATHER_LIBRARY": lather.library_path})
            self.assertRegex(done.stderr, wanted)
            self.assertIn(isa, done.stdout)

    def test_a_file_that_is_no_library_is_an_error(self):
        self.tables()
        self.assertRegex(outcome(self.folder, LATHER_LIBRARY=__file__), "ImportError: lather: .*test_package.py cannot be loaded")
        self.assertRegex(outcome(self.folder, LATHER_LIBRARY="/nonexistent.so"), "ImportError: lather: /nonexistent.so cannot be loaded")
        self.assertRegex(outcome(self.folder, LATHER_LIBRARY="", LD_LIBRARY_PATH=""), "or set LATHER_LIBRARY to the path|^$")


class Plugins(unittest.TestCase):
    def test_an_optimizer_of_a_plugin(self):
        compiler, root = shutil.which("cc"), os.path.join(os.path.dirname(PACKAGE), "..")
        if not compiler or not os.path.exists(os.path.join(root, "examples")):
            self.skipTest("no compiler, or not in a source tree")
        with tempfile.TemporaryDirectory() as folder:
            plugin = os.path.join(folder, "signum.so")
            subprocess.run([compiler, "-shared", "-fPIC", "-I" + os.path.join(root, "include"), os.path.join(root, "examples", "plugin_signum.c"),
                            "-o", plugin], check=True)
            lather.optim.load_plugin(plugin)
        w = lather.tensor([1.0, -2.0], requires_grad=True)
        optimizer = lather.optim.Signum([w], lr=0.5, weight_decay=0)
        (w * w).sum().backward()
        optimizer.step()
        self.assertEqual(w.tolist(), [0.5, -1.5])
        with self.assertRaisesRegex(lather.Error, "nonexistent.so"):
            lather.optim.load_plugin("/nonexistent.so")


class Headers(unittest.TestCase):
    def test_declarations_of_all_forms(self):
        api = _headers.parse({"a.h": """
enum { LT_MOST = 3 };
typedef enum lt_kind { LT_KIND_A, LT_KIND_B = 5, LT_KIND_C } lt_kind;
typedef struct lt_config {
    int a, b; /**< two; numbers */
    const char *name;
    double x[LT_MOST];
    lt_status (*call)(void *context, int n);
} lt_config;
/** Does it.
 *  Twice. */
LT_API LT_MUST_CHECK lt_status lt_do(lt_tensor **out, const lt_config *config, lt_tensor *const *x,
                                     lt_tensor *const three[3]);
"""})
        self.assertEqual(api["enums"]["lt_kind"], {"LT_KIND_A": 0, "LT_KIND_B": 5, "LT_KIND_C": 6})
        self.assertEqual(api["structs"]["lt_config"], [["int", "a", []], ["int", "b", []], ["char *", "name", []],
                                                       ["double", "x", ["LT_MOST"]], ["void *", "call", []]])
        self.assertEqual(api["functions"]["lt_do"], {"result": "lt_status", "doc": "Does it.\nTwice.", "parameters": [
            ["lt_tensor **", "out", []], ["lt_config *", "config", []], ["lt_tensor *const *", "x", []], ["lt_tensor *", "three", ["3"]]]})

    def test_structs_have_the_size_that_the_library_uses(self):
        """lt_optim_family and lt_optim_field are read from the library's memory: each text must be one."""
        for name in lather.optim.names():
            for option in lather.optim.options(name).values():
                self.assertRegex(option.name, "^[a-z0-9_]+$")
                self.assertTrue(option.low <= option.high)


class Runs(unittest.TestCase):
    def test_a_run_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            def write(name, text):
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    file.write(text)
            with self.assertRaisesRegex(FileNotFoundError, "no metrics.jsonl there"):
                lather.runs.read(folder)
            write("metrics.jsonl", '{"event":"step","step":1,"loss":2.5,"run":"a"}\n{"event":"step","step":2,"loss":2.25,"run":"a"}\n'
                                   '{"event":"epoch","epoch":0,"val_top1":50,"run":"a"}\n{"event":"st')
            write("metrics-eval.jsonl", '{"event":"evaluation","step":2,"val_loss":1}\n')
            write("config.yaml",
                  "# comment\nlr: 0.1\narch: resnet18\nshuffle: true\nflip: 1e-3\nparam-group:\n  - ^fc:lr=1\n  - '2'\nbatch-size: 64\n")
            write("env.json", '{"cpu": "x"}')
            run = lather.runs.read(folder)
            self.assertEqual(([r["loss"] for r in run.steps], run.epochs[0]["val_top1"], len(run.of("evaluation"))), ([2.5, 2.25], 50, 1))
            self.assertEqual(run.settings, {"lr": 0.1, "arch": "resnet18", "shuffle": True, "flip": 1e-3, "param-group": ["^fc:lr=1", "2"],
                                            "batch-size": 64})
            self.assertEqual(run.environment, {"cpu": "x"})
            try:
                import pandas  # noqa: F401  pylint: disable=unused-import
            except ImportError:
                with self.assertRaisesRegex(ImportError, "frame.. needs pandas"):
                    run.frame()
            else:
                self.assertEqual(list(run.frame().columns), ["step", "loss"])


if __name__ == "__main__":
    unittest.main()
