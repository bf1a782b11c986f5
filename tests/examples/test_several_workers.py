"""The program for several workers in legacy_examples/ runs, on every TensorFlow, alone and
launched, and says that its numbers are right: it exits with 0 and prints one line that begins with
OK. tests/examples/ runs the other programs.
"""

from __future__ import absolute_import, division, print_function

import os
import stat
import subprocess
import sys
import time

import pytest

from support import processes

FOLDER = os.path.join(processes.ROOT, "legacy_examples")
EXAMPLES = ["launch_workers.py", "several_workers.py"]
#: How a program is called that asks for arguments.
ARGUMENTS = {"launch_workers.py": ["--local", "2", "--limit", "200", "several_workers.py"]}
LIMIT = 240  # seconds, for what hangs


def run(tmpdir, arguments, limit=LIMIT):
    """Runs Python in the examples' folder; returns its exit code and the lines that it printed."""
    environment = processes.environment()
    environment.pop("TF_CONFIG", None)
    with open(str(tmpdir.join("out")), "wb") as out, open(str(tmpdir.join("err")), "wb") as err:
        process = subprocess.Popen(
            [sys.executable] + arguments, cwd=FOLDER, env=environment, stdout=out, stderr=err
        )
        deadline = time.time() + limit
        while process.poll() is None and time.time() < deadline:
            time.sleep(0.1)
        if process.poll() is None:
            process.terminate()  # not kill: a launcher ends its workers
            process.wait()
    return process.returncode, tmpdir.join("out").read().splitlines()


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_says_that_its_numbers_are_right(tmpdir, name):
    code, lines = run(tmpdir, [name] + ARGUMENTS.get(name, []))
    assert code == 0, "\n".join(lines) + tmpdir.join("err").read()[-3000:]
    assert len([line for line in lines if line.startswith("OK")]) == 1, lines


# The launcher, with programs that need no TensorFlow


def launch(tmpdir, program, *arguments):
    path = tmpdir.join("program.py")
    path.write(
        "import json, os, sys, time\nconfig = json.loads(os.environ['TF_CONFIG'])\n"
        "task, workers = config['task'], config['cluster']['worker']\n"
        "open(__file__ + '.%d' % os.getpid(), 'w').close()\n" + program
    )
    begun = time.time()
    code, lines = run(
        tmpdir, ["launch_workers.py"] + list(arguments) + [str(path), "--word", "two words"]
    )
    return code, sorted(lines), time.time() - begun


def left(tmpdir):
    """The processes of the program that still run."""
    started = [int(path.ext[1:]) for path in tmpdir.listdir("program.py.*")]
    assert started
    return [each for each in started if _runs(each)]


def _runs(process):
    try:
        os.kill(process, 0)
    except OSError:
        return False
    return True


#: In one write: print() makes two, and the other worker may write between them.
SAYS_WHO = (
    "sys.stdout.write('%d of %d, %s\\n' % (task['index'], len(set(workers)), sys.argv[1:]))\n"
)
WHO = ["0 of 2, ['--word', 'two words']", "1 of 2, ['--word', 'two words']"]


def test_each_local_worker_has_its_place(tmpdir):
    assert launch(tmpdir, SAYS_WHO, "--local", "2")[:2] == (0, WHO)


def test_hosts_are_told_what_to_start(tmpdir):
    code, lines, _ = launch(tmpdir, SAYS_WHO, "--hosts", "one:2222,two:2222", "--folder", "/a b")
    assert code == 0
    assert [
        line.startswith("ssh -tt %s '" % host) for line, host in zip(lines, ["one", "two"])
    ] == [True, True]
    assert "one:2222" in lines[1] and "/a b" in lines[1]


@pytest.mark.skipif(os.name == "nt", reason="it runs a shell script in the place of ssh")
def test_hosts_are_told_so_by_ssh(tmpdir):
    ssh = tmpdir.join("ssh")
    ssh.write('#!/bin/sh\n[ "$1" = -tt ] && exec sh -c "$3"\n')
    ssh.chmod(stat.S_IRWXU)
    arguments = [
        "--hosts",
        "one:2222,two:2222",
        "--folder",
        "/",
        "--python",
        sys.executable,
        "--ssh",
        str(ssh),
        "--run",
    ]
    assert launch(tmpdir, SAYS_WHO, *arguments)[:2] == (0, WHO)


def test_where_one_worker_fails_all_are_ended(tmpdir):
    code, _, seconds = launch(
        tmpdir, "if task['index']:\n    sys.exit(7)\ntime.sleep(100)\n", "--local", "2"
    )
    assert code == 7 and seconds < 50
    assert left(tmpdir) == []


def test_where_the_time_is_over_all_are_ended(tmpdir):
    code, _, seconds = launch(tmpdir, "time.sleep(100)\n", "--local", "2", "--limit", "2")
    assert code == 124 and seconds < 50
    assert left(tmpdir) == []
    assert "2.0 seconds" in tmpdir.join("err").read()
