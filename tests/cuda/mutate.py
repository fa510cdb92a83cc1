#!/usr/bin/env python3
"""Checks that rows of tests/conform fail for broken kernels: breaks one place of one kernel at a time.

    mutate.py BUILD [--only TEXT] [--list]        mutate.py --self-test

Each mutant loses one barrier, one bound, the tail of one vector access, one step of one warp's sum or
the first value of a shared one. It is compiled for the host (emulate.py), linked into a separate conform
and run in the three orders; a mutant that no row rejects survived. Some cannot be told from the
kernel and are named in EQUAL with the reason. The last line is 'N passed, N failed'; 77: no C++ compiler.
BUILD has been built. After DeMillo, Lipton & Sayward, "Hints on test data selection", IEEE Computer 11,
1978.
"""
import argparse
import glob
import os
import re
import shlex
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
KERNELS = os.path.join(HERE, "../../src/tensor/backend/cuda")
KINDS = [("barrier", r"__syncthreads\(\);", ""),
         ("bound", r"if \((?:i|first|row|channel|group \* 4|output) >= [^\n]*\)\n\s*return;", ""),
         ("bound", r"if \(!find_thread_pixel<WIDTH>\((?:[^()]|\([^()]*\))*\)\)\n\s*return;",
          "find_thread_pixel<WIDTH>(s.x, s.channels, &at);"),
         ("bound", r"if \(!r\.there\)\n\s*return;", ""),
         ("bound", r" && output < plan\.out\.count| \|\| channel >= channels| \|\| p\.channel \+ k >= channels", ""),
         ("tail", r"i \+ LT_VECTOR_WIDTH <= count", "i < count"),
         ("warp", r"int step = 16; step > 0", "int step = 16; step > 1"),
         ("lane", r"threadIdx\.x % 32 == 0\)", "threadIdx.x % 64 == 0)")]
# Mutants that no rule makes: (file, kind, text, replacement), at each occurrence of the text.
BY_HAND = [
    ("pool.cu", "tap", "i < r.end", "i < r.end - 1"),
    ("pool.cu", "tap", "j = q.first", "j = q.first + 1"),
    ("pool.cu", "tap", "i < p.end", "i < p.end - 1"),
    ("pool.cu", "place", "i * c.kernel_w + j", "i * c.kernel_h + j"),
    ("pool.cu", "place", "(int64_t)i * s.x.width + j", "(int64_t)i * s.y.width + j"),
    ("pool.cu", "value", "first || lt_is_new_window_max", "lt_is_new_window_max"),
    ("pool.cuh", "place", "(top - i * c.stride_h) * c.kernel_w", "(top - i * c.stride_h) * c.kernel_h"),
    ("pool.cuh", "place", "q.first * c.stride_w", "q.first * c.stride_h"),
    ("pool.cuh", "place", "- d * c.stride_w", "- d * c.stride_h"),
    ("pool.cuh", "place", "TOGETHER * c.stride_w", "TOGETHER * c.stride_h"),
    ("pool.cuh", "place", "left = at.w + c.pad_w", "left = at.w + c.pad_h"),
    ("pool.cuh", "tap", "j < q.end; j += TOGETHER", "j + 1 < q.end; j += TOGETHER"),
    ("pool.cuh", "tap", "there ? bytes.x ^ four : ~0U", "bytes.x ^ four"),
    ("pool.cuh", "tap", "there ? bytes.y ^ four : ~0U", "bytes.y ^ four"),
    ("pool.cuh", "value", "g[k] += more[k]", ""),
    ("norm_grad.cu", "place", "tap + (int64_t)lt_divide(tap, s.kernel_w) * step", "tap"),
    ("norm_grad.cu", "place", "stride_w - s.config.pad_w", "stride_w - s.config.pad_h"),
    ("norm_grad.cu", "place", "s.x.width - s.config.kernel_w", "s.x.width - s.config.kernel_h"),
    ("norm_grad.cu", "value", "shift[k]) > 0 ? g[k] : 0", "shift[k]) > 0 ? g[k] : g[k]"),
    ("vec.cu", "held", "s.held & LT_VEC_HELD_A ? held : load_four_of_a(s, at[1])", "load_four_of_a(s, at[1])"),
    ("vec.cu", "held", "s.held & LT_VEC_HELD_B ? held", "false ? held"),
    ("vec.cu", "held", "s.held & LT_VEC_HELD_OLD ? held : *to", "*to"),
    ("vec.cu", "held", "LT_VEC_HELD_Y) {\n        held = y;", "LT_VEC_HELD_Y) {"),
    ("vec.cu", "value", "a.w, b.w, y.w", "a.w, b.w, y.z"),
    ("matrix_grams.cu", "place", "b <= a; b++, k++", "b <= a; b++"),
    ("matrix_grams.cu", "place", "while (column > row)", "while (column >= row)"),
    ("matrix_grams.cu", "place", "f[row * n + column] = f[column * n + row] =", "f[row * n + column] ="),
    ("matrix_grams.cu", "place", "v.transpose ? at * n + row : row * n + at", "row * n + at"),
    ("matrix_grams.cu", "place", "= square[right][i]", "= square[i][right]"),
    ("matrix_grams.cu", "skipped", "column = (int)threadIdx.x;\n    if (finite && !*finite)\n        return;", "column = (int)threadIdx.x;"),
    ("matrix_grams.cu", "skipped", "threadIdx.x % LT_SHORT;\n    if (finite && !*finite)\n        return;", "threadIdx.x % LT_SHORT;"),
    ("matrix_grams.cu", "value", "v.beta == 0 ? 0 : v.beta", "v.beta"),
    ("matrix_grams.cu", "bound", "r < v.from.n ? from[r * v.from_step] : (T)0", "from[r * v.from_step]"),
    ("matrix_grams.cu", "bound", "if (a < n)\n", ""),
    ("matrix_grams.cu", "bound", "if (right < s.columns)", ""),
    ("matrix_grams.cu", "bound", "if (right < s.rows)", ""),
    ("matrices.cu", "bound", "c.column < l.rows ? from[c.row * l.n + c.column] : unit", "from[c.row * l.n + c.column]"),
    ("matrices.cu", "value", "column < row && (column ^ row) > column", "column < row"),
    ("matrices.cu", "value", "term[first].begins ? 0 : sum[i]", "sum[i]"),
    ("matrices.cu", "value", "k < l.split", "false"),
    ("matrix_ritz.cu", "value", "round < RITZ_ROUNDS", "round < RITZ_ROUNDS - 1"),
    ("matrix_ritz.cu", "value", "(low + width)", "low"),
    ("matrix_ritz.cu", "value", "low + threadIdx.x * width", "low + (threadIdx.x + 1) * width"),
    ("matrix_ritz.cu", "value", "k < p.parts", "k < 1"),
    ("matrix_ritz.cu", "value", "(p.bound ? *p.bound : 1)", "1"),
]
# Operations whose conform rows test a file that sets no entry, or serves more than it sets.
SERVES = {"attention.cu": ["attention"], "norm_stats.cu": ["conv2d_stats"],
          "space_to_depth.cu": ["conv2d"], "matrix_grams.cu": ["gram", "mode_product"], "matrices.cu": ["rational", "eigh", "qr", "gram", "frobenius"]}
# (file, kind, what its line says): the reason that it makes no difference.
EQUAL = [("loss.cu", "barrier", "a largest before this one was read", "a kernel takes one largest"),
         ("matrix_grams.cu", "bound", "if (right < s.columns)", "values read outside the tile are never stored")]


def sources():
    """The text of each file of kernels."""
    texts = {}
    for path in glob.glob(os.path.join(KERNELS, "*/*.cu")) + glob.glob(os.path.join(KERNELS, "*/*.cuh")):
        with open(path, encoding="utf-8") as f:
            texts[os.path.basename(path)] = f.read()
    return texts


def mutants():
    for name, text in sorted(sources().items()):
        by_hand = [(kind, re.escape(part), to) for file, kind, part, to in BY_HAND if file == name]
        for kind, pattern, replacement in KINDS + by_hand:
            for found in re.finditer(pattern, text):
                yield (name, kind, text.count("\n", 0, found.start()) + 1,
                       text[:found.start()] + replacement + text[found.end():],
                       text[text.rfind("\n", 0, found.start()) + 1:text.find("\n", found.end())])


def reason(name, kind, line):
    return next((why for f, k, part, why in EQUAL if (f, k) == (name, kind) and part in line), None)


def output_of(command, where):
    return subprocess.run(command, cwd=where, stdout=subprocess.PIPE, check=True, text=True).stdout


class Conform:
    """How the build makes conform from the translated kernels."""

    def __init__(self, build):
        self.build = build
        lines = output_of(["ninja", "-t", "commands", "tests/conform/conform"], build).strip().split("\n")
        self.link = shlex.split(lines[-1])
        self.compile = {}  # command of each translated kernel
        for words in map(shlex.split, lines):
            if words[-1].endswith(".cu.cpp") and "-c" in words:
                self.compile[os.path.basename(words[-1])] = words
                self.place = os.path.join(build, os.path.dirname(words[-1]))

    def run(self, folder, name, text):
        """Compiles all that the changed file is a part of; returns the first row that fails, or None."""
        for file in os.listdir(os.path.join(self.build, "tests/cuda/emulated")):
            if file.endswith((".cuh", ".cpp")):
                with open(os.path.join(self.build, "tests/cuda/emulated", file), encoding="utf-8") as f:
                    put(folder, file, f.read())
        put(folder, "changed.in", text)
        target = name if name.endswith(".cuh") else name + ".cpp"
        subprocess.run([sys.executable, os.path.join(HERE, "emulate.py"), os.path.join(folder, "changed.in"),
                        os.path.join(folder, target)], check=True)
        link, entries = list(self.link), []
        for cpp, words in self.compile.items():
            with open(os.path.join(folder, cpp), encoding="utf-8") as f:
                source = f.read()
            if cpp != target and not uses(source, name):
                continue
            output = os.path.join(folder, cpp + ".o")
            old = words[words.index("-o") + 1]
            words = [output if w == old else w for w in words[:words.index("-MD")]]
            words += ["-O1", "-w", "-o", output, "-c", os.path.join(folder, cpp)]
            subprocess.run(words, cwd=self.build, check=True)
            link[link.index(old)] = output
            entries += re.findall(r"be->(\w+) = ", source) + SERVES.get(cpp[:-4], [])
        link[link.index("-o") + 1] = os.path.join(folder, "conform")
        subprocess.run(link, cwd=self.build, check=True)
        if not entries:
            raise SystemExit(f"{name}: whose rows are its? SERVES does not say")
        return first_failure(os.path.join(folder, "conform"), entries)


def uses(source, header):
    """Returns True if a translated kernel uses code of that header that a mutant removes."""
    if header in ("norm.cuh", "pool.cuh", "warp.cuh"):
        return f'#include "{header}"' in source
    return header == "launch.cuh" and "block_sum(" in source


def put(folder, name, text):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
        f.write(text)


def first_failure(conform, entries):
    for order in ["forward", "backward", "shuffled"]:
        env = dict(os.environ, LATHER_EMULATE=order, OMP_WAIT_POLICY="passive")
        for entry in entries:
            try:
                got = subprocess.run([conform, "--backend", "emulated", "--filter", entry], env=env,
                                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
            except subprocess.TimeoutExpired:
                return f"{order}: {entry} does not end"
            if got.returncode not in (0, 1):
                return f"{order}: {entry} ends with {got.returncode}"
            failed = re.search(r"^FAIL .*", got.stdout.decode(errors="replace"), re.M)
            if failed:
                return f"{order}: {failed[0][:100]}"
    return None


def self_test():
    found = [(name, kind) for name, kind, *_ in mutants()]
    wanted = [("sum.cu", "barrier"), ("cast.cu", "bound"), ("pool.cu", "bound"), ("cast.cu", "tail"),
              ("launch.cuh", "warp"), ("launch.cuh", "lane")]
    bad = [w for w in wanted if w not in found]
    for name, kind, part, _ in BY_HAND:
        if part not in sources()[name]:
            bad.append((name, kind, part))
    lines = [line for name, kind, _, _, line in mutants() if reason(name, kind, line)]
    if len(lines) != len(EQUAL):
        bad.append(f"{len(EQUAL)} mutants said to be equal, found {lines}")
    print(f"{len(wanted) + len(BY_HAND) + 1 - len(bad)} passed, {len(bad)} failed {bad or ''}")
    return len(bad)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build", nargs="?")
    p.add_argument("--only", default="")
    p.add_argument("--list", action="store_true")
    p.add_argument("--self-test", action="store_true")
    a = p.parse_args()
    if a.self_test:
        return self_test()
    todo = [m for m in mutants() if a.only in f"{m[0]}:{m[2]} {m[1]}"]
    if a.list:
        for name, kind, line, _, _ in todo:
            print(f"{name}:{line} {kind}")
        return 0
    conform = Conform(os.path.abspath(a.build))
    if not conform.compile:
        print("the build has no emulated kernels: no C++ compiler")
        return 77
    failed = 0
    for name, kind, line, text, words in todo:
        with tempfile.TemporaryDirectory() as folder:
            how = conform.run(folder, name, text)
        equal = reason(name, kind, words)
        wrong = (how is None) != (equal is not None)  # survived without a reason, or killed with one
        failed += wrong
        print(f"{'FAIL ' if wrong else ''}{name}:{line} {kind}: "
              f"{how or 'survived' + (': ' + equal if equal else '')}", flush=True)
    print(f"{len(todo) - failed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
