"""Shared code of the check_* scripts: the list of files, blanking of comments, reporting."""
import json
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Public headers: those below include/, and those that a model installs.
MODEL_HEADERS = {"models/gpt/gpt.h", "models/resnet50/resnet.h", "models/vit/vit.h"}
CODE = ("src", "include", "models", "tools", "examples", "tests", "python")


def files(*suffixes, under=CODE):
    """Tracked files (all files, where there is no git) below the folders, relative to the root."""
    try:
        names = subprocess.run(
            ["git", "-C", ROOT, "-c", "safe.directory=*", "ls-files", "--cached", "--others",
             "--exclude-standard", *under],
            check=True, capture_output=True, text=True).stdout.split("\n")
    except (OSError, subprocess.CalledProcessError):
        names = [os.path.relpath(os.path.join(folder, name), ROOT)
                 for top in under for folder, _, inside in os.walk(os.path.join(ROOT, top))
                 for name in inside]
    return sorted(n for n in set(names)
                  if n.endswith(suffixes) and os.path.exists(os.path.join(ROOT, n)))


def compiled(build):
    """The first entry in compile_commands.json for each .c file in src, models and tools, by name; build is a meson build folder."""
    first = {}
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        for entry in json.load(file):
            name = os.path.relpath(os.path.join(entry["directory"], entry["file"]), ROOT)
            if re.match(r"(src|models|tools)/.*\.c$", name):
                first.setdefault(name, entry)
    return first


def is_public(name):
    return name.startswith("include/") or name in MODEL_HEADERS


def read(name):
    with open(os.path.join(ROOT, name), encoding="utf-8") as file:
        return file.read()


def version():
    return re.search(r"project\('lather', 'c', version: '([^']+)'", read("meson.build"))[1]


def blank(text, strings=True):
    """The text with comments (and strings) replaced by blanks; line numbers are unchanged."""
    pattern = r"/\*.*?\*/|//[^\n]*"
    if strings:
        pattern += r'|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\''
    else:
        pattern = r'("(?:\\.|[^"\\\n])*")|' + pattern

    def cover(match):
        if not strings and match.group(1):
            return match.group(0)
        return re.sub(r"[^\n]", " ", match.group(0))

    return re.sub(pattern, cover, text, flags=re.S)


def finish(problems):
    """Prints the problems and ends the program."""
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


def self_test(rows):
    """rows: (name, problems found, whether there must be some)."""
    for name, problems, wanted in rows:
        if bool(problems) != wanted:
            print(f"self-test: {name}: " + ("not rejected" if wanted else f"rejected: {problems}"))
            sys.exit(1)
    sys.exit(0)
