#!/usr/bin/env python3
"""tools/release on a small repository: the same bytes twice, and its refusals."""
import hashlib
import json
import os
import subprocess
import sys
import tarfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from rows import run_rows  # noqa: E402

RELEASE = os.path.abspath(sys.argv[1])
FILES = {"meson.build": "project('lather', 'c', version: '0.1.0', license: 'MIT')\n",
         "include/lather/plugin.h": '#define LT_VERSION "0.1.0"\n',
         "CITATION.cff": "cff-version: 1.2.0\nversion: 0.1.0\n",
         "CHANGELOG.md": "# Changelog\n\n## Unreleased\n\n- something new\n",
         "THIRD_PARTY.md": "| package | licence | used for | where |\n| --- | --- | --- | --- |\n| zlib | Zlib | idx files | src |\n"}
GIT = ["git", "-c", "user.name=A", "-c", "user.email=a@b.c"]


def git(*arguments, cwd):
    return subprocess.run([*GIT, *arguments], cwd=cwd, check=True, capture_output=True, text=True).stdout


def project(cwd, **other):
    """A repository with these files, and others by name."""
    root = os.path.join(cwd, "project")
    with open(RELEASE, encoding="utf-8") as f:
        files = {**FILES, "tools/release": f.read(), **{name.replace("_", "."): text for name, text in other.items()}}
    for name, text in files.items():
        os.makedirs(os.path.dirname(os.path.join(root, name)), exist_ok=True)
        with open(os.path.join(root, name), "w", encoding="utf-8") as f:
            f.write(text)
    git("init", "-q", cwd=root)
    git("add", "-A", cwd=root)
    git("commit", "-qm", "all", cwd=root)
    return root


def release(root, version, *flags, output="out"):
    command = [sys.executable, "tools/release", version, "--without-check", "--without-trial", "--output", os.path.join(root, "..", output), *flags]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60)


def fails(root, version, says):
    p = release(root, version)
    assert p.returncode == 2 and says in p.stderr, (p.returncode, p.stderr)
    assert not os.path.exists(os.path.join(root, "..", "out"))


def the_same_bytes_twice(cwd):
    root = project(cwd)
    sums = []
    for output in "ab":
        p = release(root, "1.0.0-rc1", output=output)
        assert p.returncode == 0, p.stderr
        with open(os.path.join(cwd, output, "SHA256SUMS"), encoding="utf-8") as f:
            sums.append(f.read())
    assert sums[0] == sums[1]
    for line in sums[0].splitlines():
        digest, name = line.split()
        with open(os.path.join(cwd, "a", name), "rb") as f:
            assert hashlib.sha256(f.read()).hexdigest() == digest, name
    assert len(sums[0].splitlines()) == 3 and not git("status", "--porcelain", cwd=root)


def the_archive_has_the_version(cwd):
    root = project(cwd)
    p = release(root, "0.2.0", "--tag")
    assert p.returncode == 0, p.stderr
    with tarfile.open(os.path.join(cwd, "out", "lather-0.2.0.tar.gz")) as tar:
        def text(name):
            return tar.extractfile("lather-0.2.0/" + name).read().decode()
        assert "version: '0.2.0'" in text("meson.build") and '"0.2.0"' in text("include/lather/plugin.h")
        assert "\nversion: 0.2.0" in text("CITATION.cff")
        assert "## Unreleased\n\n## 0.2.0 (20" in text("CHANGELOG.md")
    with open(os.path.join(cwd, "out", "lather-0.2.0.spdx.json"), encoding="utf-8") as f:
        packages = json.load(f)["packages"]
    assert [p["name"] for p in packages] == ["lather", "zlib"] and packages[0]["versionInfo"] == "0.2.0"
    assert git("show", "v0.2.0:meson.build", cwd=root) == FILES["meson.build"].replace("0.1.0", "0.2.0")
    assert git("show", "HEAD:meson.build", cwd=root) == FILES["meson.build"], "the branch at hand has changed"
    fails_again = release(root, "0.2.0", output="again")
    assert fails_again.returncode == 2 and "there is a tag v0.2.0 already" in fails_again.stderr, fails_again.stderr


def the_debian_packages_follow(cwd):
    root = project(cwd, **{"debian/changelog": "lather (0.1.0) UNRELEASED; urgency=medium\n\n  * New.\n",
                           "debian/control": "Source: lather\n\nPackage: liblather0\n\nPackage: liblather-dev\nDepends: liblather0 (= 1)\n",
                           "debian/liblather0.install": "usr/lib\n"})
    p = release(root, "1.0.0-rc1")
    assert p.returncode == 0, p.stderr
    with tarfile.open(os.path.join(cwd, "out", "lather-1.0.0-rc1.tar.gz")) as tar:
        names = [name.split("/", 1)[1] for name in tar.getnames() if "debian/" in name]
        text = {name: tar.extractfile("lather-1.0.0-rc1/" + name).read().decode() for name in names if not name.endswith("debian/")}
    assert sorted(text) == ["debian/changelog", "debian/control", "debian/liblather1.install"], names
    assert text["debian/changelog"].startswith("lather (1.0.0~rc1) unstable; ")
    assert "Package: liblather1\n" in text["debian/control"] and "liblather0" not in text["debian/control"]


def what_is_refused(cwd):
    root = project(cwd)
    fails(root, "1.0", "'1.0' is no version such as 1.2.3 or 1.2.3-rc1")
    with open(os.path.join(root, "new.c"), "w", encoding="utf-8"):
        fails(root, "1.0.0", "uncommitted changes:\n?? new.c")


def a_change_log_without_entries_is_refused(cwd):
    fails(project(cwd, CHANGELOG_md="# Changelog\n\n## Unreleased\n\n## 0.1.0 (2026-01-01)\n\n- old\n"), "1.0.0", "no entry under '## Unreleased'")


def a_version_that_is_missing_is_named(cwd):
    fails(project(cwd, CITATION_cff="cff-version: 1.2.0\n"), "1.0.0", "CITATION.cff: the version stands there 0 times, not once")


sys.exit(run_rows([the_same_bytes_twice, the_archive_has_the_version, the_debian_packages_follow, what_is_refused, a_change_log_without_entries_is_refused,
                   a_version_that_is_missing_is_named], "lather-release-"))
