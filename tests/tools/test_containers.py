#!/usr/bin/env python3
"""The Containerfile and the MPIJob of examples/launch: syntax, names that must agree, and the job's command lines. The image is built only in the full
tier, where a builder is there and has its base.

    test_containers.py LATHER TRAIN_RESNET50 [ROW]
"""
import configparser
import os
import re
import shlex
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from rows import Skip, full, run_rows  # noqa: E402

LATHER, TRAIN = (os.path.abspath(path) for path in sys.argv[1:3])
SOURCE = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
INSTRUCTIONS = {"ARG", "FROM", "COPY", "RUN", "CMD", "ENV", "WORKDIR", "USER", "EXPOSE", "LABEL", "ENTRYPOINT", "SHELL", "VOLUME"}


def read(path):
    with open(os.path.join(SOURCE, path), encoding="utf-8") as f:
        return f.read()


def instructions():
    lines = [line for line in read("Containerfile").splitlines() if line.strip() and not line.startswith("#")]
    return [line.split(maxsplit=1) for line in "\n".join(lines).replace("\\\n", " ").splitlines()]


def the_containerfile_is_well_formed(_):
    arguments, stages = {}, []
    for word, rest in instructions():
        assert word in INSTRUCTIONS, word
        if word == "ARG":
            arguments.update([rest.split("=", 1)])
        assert stages or word in ("ARG", "FROM"), f"{word} before FROM"
        if word == "FROM":
            image, *name = re.split(r"\s+AS\s+", rest)
            assert image.strip("${}") in arguments, image
            stages.append(name[0] if name else None)
        if word == "COPY":
            source = re.match(r"--from=(\S+) /\S+ /\S*$", rest)
            assert source is None or source[1] in stages[:-1], rest
            assert source or os.path.exists(os.path.join(SOURCE, rest.split()[0])), rest
        if word == "RUN":
            subprocess.run(["sh", "-n", "-c", rest], check=True)
    assert len(stages) == 2 and stages[-1] is None, stages


def manifest():
    try:
        import yaml
    except ImportError:
        raise Skip("no yaml for Python") from None
    return list(yaml.safe_load_all(read("examples/launch/mpijob.yaml")))


def the_names_of_the_job_agree(_):
    config, job = manifest()
    spec = job["spec"]
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v2beta1", "MPIJob"), job
    assert set(spec) == {"slotsPerWorker", "runPolicy", "mpiReplicaSpecs"} and set(spec["mpiReplicaSpecs"]) == {"Launcher", "Worker"}, spec
    for kind, replica in spec["mpiReplicaSpecs"].items():
        pod = replica["template"]["spec"]
        assert replica["restartPolicy"] in ("Never", "OnFailure") and len(pod["containers"]) == 1, kind
        assert [m["name"] for m in pod["containers"][0]["volumeMounts"]] == [v["name"] for v in pod["volumes"]], kind
    launcher = spec["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]
    assert launcher["volumes"][1]["configMap"]["name"] == config["metadata"]["name"]
    assert "openssh-server" in read("Containerfile")


def the_job_is_a_program_that_starts(cwd):
    """With a hostfile as the operator writes it."""
    config, job = manifest()
    with open(os.path.join(cwd, "trainer.ini"), "w", encoding="utf-8") as f:
        f.write(config["data"]["trainer.ini"])
    workers, slots = job["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"], job["spec"]["slotsPerWorker"]
    with open(os.path.join(cwd, "hostfile"), "w", encoding="utf-8") as f:
        f.writelines(f"127.0.0.{i + 2} slots={slots}\n" for i in range(workers))
    command = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]["command"]
    assert command[:3] == ["lather", "launch", "/job/trainer.ini"], command
    out = subprocess.run([LATHER, "launch", "trainer.ini", *command[3:], "--dry-run"], cwd=cwd, check=True, text=True, capture_output=True,
                         env={**os.environ, "OMPI_MCA_orte_default_hostfile": "hostfile"}).stdout
    assert f"--host 127.0.0.2:{slots},127.0.0.3:{slots} " in out, out  # a worker is left for the place of another
    ini = configparser.ConfigParser(interpolation=None)
    ini.read(os.path.join(cwd, "trainer.ini"))
    words = shlex.split(ini["trainer"]["command"].replace("${grad-accum}", "1"))
    assert words[0] == "train_resnet50", words
    subprocess.run([TRAIN, *words[1:], "--print-config"], cwd=cwd, check=True, capture_output=True)


@full
def the_image_builds(_):
    builder = next((name for name in ("podman", "buildah", "docker") if shutil.which(name)), None)
    base = dict(rest.split("=", 1) for word, rest in instructions() if word == "ARG")["debian"]
    if not builder or subprocess.run([builder, "pull", base], capture_output=True).returncode:
        raise Skip("no builder, or its base image cannot be had")
    subprocess.run([builder, "build", "-t", "lather-test", SOURCE], check=True, timeout=3600)


ROWS = (the_containerfile_is_well_formed, the_names_of_the_job_agree, the_job_is_a_program_that_starts, the_image_builds)
sys.exit(run_rows(ROWS, "containers-", sys.argv[3] if sys.argv[3:] else None))
