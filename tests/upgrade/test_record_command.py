"""gradaccum-compat record.

Programs that know nothing of it, as they end well, die, and find no room.
"""

from __future__ import absolute_import, division, print_function

import os
import subprocess
import sys
import tempfile

import numpy as np
import pytest

from gradaccum_compat import cli, errors
from gradaccum_compat.upgrade import _format, recording
from support import modes

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAM = os.path.join(TESTS, "support", "recorded_program.py")


def run(command, **variables):
    """(exit code, what it said on both streams)."""
    environment = dict(
        os.environ, PYTHONPATH=os.path.dirname(TESTS), TF_CPP_MIN_LOG_LEVEL="3", **variables
    )
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore"] + command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
    )
    output = process.communicate()[0].decode("utf-8")
    return process.returncode, output


def record(folder, *program, **options):
    follow = ["--follow", str(options["follow"])] if "follow" in options else []
    program = program or (PROGRAM, "3")
    return run(
        ["-m", "gradaccum_compat", "record", str(folder)]
        + follow
        + ["--", sys.executable, "-W", "ignore"]
        + list(program)
    )


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    folder = tmp_path_factory.mktemp("records") / "old"
    code, output = record(folder)
    assert code == 0 and "3 updates of accumulator" in output, output
    (folder / "output").write_text(output)
    return folder


def test_a_program_is_recorded_and_followed(old, tmp_path):
    code, output = record(tmp_path, follow=old)
    assert code == 0, output
    assert [each.followed for each in _format.read(str(tmp_path))[0]] == [True] * 3


def test_the_exit_code_is_the_program_s(tmp_path):
    assert record(tmp_path, "-c", "raise SystemExit(7)")[0] == 7
    assert record(tmp_path, "-c", "import os; os.abort()")[0] == 128 + 6


def test_a_program_that_records_nothing_is_told(tmp_path):
    code, output = record(tmp_path / "new", "-c", "pass")
    assert code == 0 and "nothing is recorded" in output and "steps=1" in output


def test_a_folder_is_recorded_into_once(old):
    code, output = record(old)
    assert code == 2 and "holds one already" in output and not trained(output)
    assert _format.read(str(old))[0].updates == [0, 1, 2]


def test_what_cannot_be_followed_is_refused_before_the_program_runs(tmp_path):
    code, output = record(tmp_path / "new", follow=tmp_path / "nothing")
    assert code == 2 and "no folder" in output and not trained(output)


def test_a_command_that_is_not_there_is_named(tmp_path):
    code, output = run(["-m", "gradaccum_compat", "record", str(tmp_path), "--", "no-such-program"])
    assert code == 2 and "no-such-program" in output


def test_a_killed_program_leaves_all_but_its_last_update(tmp_path):
    code, _ = record(tmp_path, PROGRAM, "4", "kill")
    written = _format.read(str(tmp_path))[0]
    assert code == 128 + 9 and written.updates in ([0, 1, 2], [0, 1, 2, 3])


def test_on_a_full_disk_training_goes_on_and_that_is_said_once(tmp_path):
    """A file of 20 kB has room for some ten of the lines."""
    code, output = record(tmp_path, PROGRAM, "40", "full")
    assert code == 0 and "trained" in output
    assert output.count("training goes on") == 1, output
    written = _format.read(str(tmp_path))[0]
    assert 0 < len(written) < 40 and [each.update for each in written] == written.updates


def test_off_it_imports_nothing_and_adds_no_op_and_on_it_changes_no_number(old):
    code, output = run([PROGRAM, "3", "modules"])
    assert code == 0 and "[] []" in output, output
    assert trained(output) == trained((old / "output").read_text()) != []


def trained(output):
    return [line for line in output.splitlines() if line.startswith("trained")]


# From the environment, in this process


def train(updates=1):
    for _ in range(updates):
        modes.Eager([np.ones(2, np.float32)], steps=1).step([np.ones(2, np.float32)])


def test_from_the_environment_a_folder_is_recorded_into_once_too(old, monkeypatch):
    monkeypatch.setenv("GRADACCUM_RECORD", str(old))
    with pytest.raises(errors.RecordError) as raised:
        train()
    assert "holds one already" in str(raised.value)


def test_in_a_folder_without_rights_training_goes_on_and_that_is_said_once(
    tmp_path, monkeypatch, capsys
):
    (tmp_path / "file").write_bytes(b"in the way")
    monkeypatch.setenv("GRADACCUM_RECORD", str(tmp_path / "file" / "below"))
    train(3)
    assert capsys.readouterr().err.count("training goes on") == 1


@pytest.fixture
def closed():
    """A folder that this process has no rights in, also where it is root's."""
    if not hasattr(os, "geteuid"):
        pytest.skip("Windows has other rights")
    folder, root = tempfile.mkdtemp(), os.geteuid() == 0  # not below a folder that is root's
    os.chmod(folder, 0)
    if root:
        os.seteuid(65534)
    yield folder
    if root:
        os.seteuid(0)
    os.rmdir(folder)


@pytest.mark.parametrize("below", ["", "below"])
def test_a_folder_without_rights_is_refused_before_the_program_runs(closed, capfd, below):
    folder = os.path.join(closed, below)
    assert cli.main(["record", folder, "--", "echo", "ran"]) == 2
    out, said = capfd.readouterr()
    assert "Name another one, or ask for the rights." in said and "ran" not in out


def test_a_record_without_rights_is_not_comparable(closed, capfd):
    assert cli.main(["compare", closed, closed]) == 2
    assert capfd.readouterr()[0].startswith("not comparable")


def test_a_folder_without_rights_ends_recording_and_no_training(closed, monkeypatch, capfd):
    monkeypatch.setenv("GRADACCUM_RECORD", os.path.join(closed, "record"))
    train(3)
    assert capfd.readouterr()[1].count("training goes on") == 1


def test_the_processes_of_one_run_share_a_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("GRADACCUM_RECORD", str(tmp_path))
    monkeypatch.setenv("GRADACCUM_RECORD_RUN", "this run")
    train()
    recording._from_environment.clear()  # what another process does not have
    train()
    assert [each.name for each in _format.read(str(tmp_path))] == ["accumulator", "accumulator-2"]
    monkeypatch.setenv("GRADACCUM_RECORD_RUN", "another run")
    recording._from_environment.clear()
    with pytest.raises(errors.RecordError):
        train()


@pytest.fixture(autouse=True)
def _as_a_new_process(monkeypatch):
    monkeypatch.setattr(recording, "_from_environment", {})
