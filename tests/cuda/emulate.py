#!/usr/bin/env python3
"""Turns kernel launches into calls, so that the host's compiler can read a file of CUDA C++.

    emulate.py IN.cu OUT.cpp        emulate.py IN.cuh OUT.cuh        emulate.py --self-test
    emulate.py --kernels IN.cu...   the kernels that the files define, as FILE:NAME

`name<types><<<grid, block, bytes, stream>>>(arguments)` becomes
`lt_emulate(grid, block, bytes, stream, "name", [](const auto &...a) { name<types>(a...); }, arguments)`,
and a parameter that no thread copies (`__grid_constant__`) a reference. `__shared__ T x[N];`
becomes a reference to a variable of the block's team, NaN for every block: on a device it has no value either.
`--unit OUT.cpp IN.cu...` translates several files into one, in which each kernel first calls `lt_emulate_ran("FILE:NAME")`, so that
every launch is attributed to it. All other text is copied unchanged.
"""
import os
import re
import sys

LAUNCH = re.compile(r"([A-Za-z_]\w*)((?:<[^<>;(){}]*>)?)[\s\\]*<<<")
SHARED = re.compile(r"__shared__\s+([^;=]*?)\s*\b([A-Za-z_]\w*)((?:\[[^\];]*\])*);")
KERNEL = re.compile(r"__global__\s+(?:__launch_bounds__\([^)]*\)\s+)?void\s+(?:__launch_bounds__\([^)]*\)\s+)?(\w+)\(")
TRANSLATED = re.compile(r'(#include ")[\w/]+/(\w+\.cuh")')  # translated headers share one folder
PARAMETER = re.compile(r"const __grid_constant__ (\w+) (\w+)")


def closing(text, start):
    """The place of the parenthesis that closes the one at start."""
    depth = 0
    for i in range(start, len(text)):
        depth += (text[i] == "(") - (text[i] == ")")
        if depth == 0:
            return i
    raise SystemExit("a launch is not closed")


def launches(text):
    out, at = [], 0
    while True:
        found = LAUNCH.search(text, at)
        if not found:
            return "".join(out) + text[at:]
        name, types = found.groups()
        end = text.index(">>>", found.end())
        opening = text.index("(", end)
        last = closing(text, opening)
        arguments = launches(text[opening + 1:last])
        out += [text[at:found.start()], f"lt_emulate({text[found.end():end]}, \"{name}\", ",
                f"[](const auto &...a) {{ {name}{types}(a...); }}", ", " if arguments else "",
                arguments, ")"]
        at = last + 1


def kernels(text):
    """Returns the names of the kernels, each with the offset of the first character of its body."""
    for found in KERNEL.finditer(text):
        yield found[1], text.index("{", closing(text, found.end() - 1)) + 1


def name_kernels(text, file):
    for name, body in reversed(list(kernels(text))):
        text = f'{text[:body]} lt_emulate_ran("{file}:{name}");{text[body:]}'
    return text


def translate(text):
    text = TRANSLATED.sub(r"\1\2", text)
    text = SHARED.sub(r"static lt_emulate_variable<\1\3> \2_of; auto &\2 = \2_of.mine();", text)
    return launches(PARAMETER.sub(r"const \1 &\2", text))


def self_test():
    call = "[](const auto &...a) { %s(a...); }"
    rows = [("plain", "f<<<1, 2, 0, s>>>(a);", f'lt_emulate(1, 2, 0, s, "f", {call % "f"}, a);'),
            ("types", "f<T, 8><<<g(n, 4), 2, 0, m(c)>>>(a, (T *)b);",
             f'lt_emulate(g(n, 4), 2, 0, m(c), "f", {call % "f<T, 8>"}, a, (T *)b);'),
            ("two lines of a macro", "f<T, 8> \\\n    <<<1, 2, 0, s>>>(a);", f'lt_emulate(1, 2, 0, s, "f", {call % "f<T, 8>"}, a);'),
            ("two", "f<<<1, 1, 0, s>>>(); g<<<2, 1, 0, s>>>(f(x));",
             f'lt_emulate(1, 1, 0, s, "f", {call % "f"}); '
             f'lt_emulate(2, 1, 0, s, "g", {call % "g"}, f(x));'),
            ("a large parameter", "void f(const __grid_constant__ list x, int y)",
             "void f(const list &x, int y)"),
            ("shared", "__shared__ double x[A][B / 2];\n__shared__ lt_step s;",
             "static lt_emulate_variable<double[A][B / 2]> x_of; auto &x = x_of.mine();\n"
             "static lt_emulate_variable<lt_step> s_of; auto &s = s_of.mine();"),
            ("a translated header", '#include "a/b/c.cuh"\n#include "a/b/c.h"', '#include "c.cuh"\n#include "a/b/c.h"'),
            ("none", "x << 3 >> 1; a<b> c;", "x << 3 >> 1; a<b> c;")]
    failed = [title for title, text, want in rows if translate(text) != want]
    kernel = "template <class T>\n__global__ void __launch_bounds__(N, 2)\n    f(g<T> x)\n{%s\n    x();\n}"
    rows.append("a kernel's name")
    if name_kernels(kernel % "", "test.cu") != kernel % ' lt_emulate_ran("test.cu:f");':
        failed.append(rows[-1])
    print(f"{len(rows) - len(failed)} passed, {len(failed)} failed {failed or ''}")
    return len(failed)


if sys.argv[1:] == ["--self-test"]:
    sys.exit(1 if self_test() else 0)
if sys.argv[1] == "--kernels":
    for name in sys.argv[2:]:
        with open(name, encoding="utf-8") as source:
            print("".join(f"{os.path.basename(name)}:{kernel}\n" for kernel, _ in kernels(source.read())), end="")
    sys.exit(0)
unit = sys.argv[1] == "--unit"
with open(sys.argv[2], "w", encoding="utf-8") as target:
    target.write("void lt_emulate_ran(const char *kernel);\n" if unit else "")
    for name in sys.argv[3:] if unit else sys.argv[1:2]:
        with open(name, encoding="utf-8") as source:
            text = source.read()
        target.write(f'#line 1 "{name}"\n' + translate(name_kernels(text, os.path.basename(name)) if unit else text))
