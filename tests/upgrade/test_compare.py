"""compare: verdicts, where two records part, which variable is which, bad records."""

from __future__ import absolute_import, division, print_function

import io
import json
import os
import shutil
import zipfile

import pytest

np = pytest.importorskip("numpy")

from gradaccum_compat import cli, errors  # noqa: E402
from gradaccum_compat.upgrade import comparing  # noqa: E402
from support import synthetic  # noqa: E402

ADAM = ("AdamOptimizer", "v1", {"epsilon": 1e-7})
KERAS_ADAM = ("Adam", "keras_3", {"epsilon": 1e-7})


@pytest.fixture
def old(tmpdir):
    return synthetic.Program(ADAM).record(tmpdir.mkdir("old"))


def follow(tmpdir, old, **options):
    options.setdefault("optimizer", KERAS_ADAM)
    return synthetic.Program(**options).record(tmpdir.mkdir("new"), follow=old)


def free(tmpdir, **options):
    options.setdefault("optimizer", KERAS_ADAM)
    return synthetic.Program(**options).record(tmpdir.mkdir("new"))


def test_a_run_that_follows_and_differs_by_rounding_is_the_same(tmpdir, old):
    found = comparing.compare(old, follow(tmpdir, old))
    assert (found.verdict, found.first, found.causes) == ("same", None, [])


def test_a_record_is_the_same_as_its_copy_without_following(tmpdir, old):
    shutil.copytree(old, str(tmpdir.join("copy")))
    found = comparing.compare(old, str(tmpdir.join("copy")))
    assert found.verdict == "same" and "All 12 updates" in str(found)


def test_free_runs_that_differ_by_rounding_are_inconclusive(tmpdir, old):
    found = comparing.compare(old, free(tmpdir))
    assert found.verdict == "inconclusive" and "--follow" in str(found)


def test_a_free_run_that_differs_in_its_first_update_is_different(tmpdir, old):
    found = comparing.compare(old, free(tmpdir, rate=0.06))
    assert found.verdict == "different" and found.causes[0].id == "learning-rate"


def test_json_has_the_verdict_where_they_part_and_the_causes(tmpdir, old):
    found = comparing.compare(old, follow(tmpdir, old, rate=0.06)).to_json()
    assert found["verdict"] == "different"
    assert sorted(found["first"]) == ["difference", "quantity", "rounding", "update", "variable"]
    assert found["first"]["update"] == 0 and found["first"]["quantity"] == "update"
    # 0.06 for 0.05 is 0.2 more; the recorded update is a difference of float32 weights.
    assert found["first"]["difference"] == pytest.approx(0.2, rel=0.01)
    assert found["first"]["rounding"] < 1e-2
    assert sorted(found["causes"][0]) == ["evidence", "id", "text"]


def test_the_first_line_is_the_verdict(tmpdir, old):
    assert (
        str(comparing.compare(old, follow(tmpdir, old, rate=0.06))).splitlines()[0] == "different"
    )


def run(*arguments):
    return cli.main(["compare"] + [str(each) for each in arguments])


def test_exit_codes_are_0_1_2_and_3(tmpdir, old, capsys):
    new = follow(tmpdir, old)
    assert run(old, new) == 0
    assert run(old, synthetic.Program(KERAS_ADAM, rate=0.06).record(tmpdir.mkdir("b"))) == 1
    assert run(old, tmpdir.join("missing")) == 2
    assert run(old, synthetic.Program(KERAS_ADAM).record(tmpdir.mkdir("c"))) == 3
    assert "Traceback" not in capsys.readouterr().out


def test_the_command_prints_json(tmpdir, old, capsys):
    run(old, follow(tmpdir, old), "--json")
    assert json.loads(capsys.readouterr().out)["verdict"] == "same"


def test_the_command_prints_json_of_what_cannot_be_compared(tmpdir, old, capsys):
    assert run(old, tmpdir.join("missing"), "--json") == 2
    assert json.loads(capsys.readouterr().out)["verdict"] == "not comparable"


def test_the_command_writes_the_page(tmpdir, old):
    run(old, follow(tmpdir, old), "--html", tmpdir.join("report.html"))
    assert "<svg" in io.open(str(tmpdir.join("report.html")), encoding="utf-8").read()


def test_a_page_that_cannot_be_written_is_said(tmpdir, old, capsys):
    assert run(old, old, "--html", tmpdir.join("missing", "report.html")) == 2
    assert "cannot be written" in capsys.readouterr().out


# Which variable is which


def names(*shapes):
    return [comparing._format.Variable(name, shape, "float32") for name, shape in shapes]


def test_variables_match_by_name_in_any_order():
    old, new = names(("a:0", (2,)), ("b:0", (3,))), names(("b", (3,)), ("a", (2,)))
    assert comparing.match(old, new, {}) == ([(0, 1), (1, 0)], None)


def test_variables_of_other_names_match_by_order_and_shape():
    old, new = names(("a:0", (2,)), ("b:0", (3,))), names(("x", (2,)), ("y", (3,)))
    assert comparing.match(old, new, {}) == ([(0, 0), (1, 1)], None)


def test_a_map_says_which_is_which():
    old, new = names(("a:0", (2,)), ("b:0", (2,))), names(("x", (2,)), ("y", (2,)))
    assert comparing.match(old, new, {"a": "y"}) == ([(0, 1), (1, 0)], None)


def test_a_map_of_unknown_names_is_refused():
    pairs, reason = comparing.match(names(("a", (2,))), names(("a", (2,))), {"c": "a"})
    assert not pairs and "c, which the old side does not have" in reason


def test_other_shapes_are_not_comparable():
    pairs, reason = comparing.match(names(("a", (2,))), names(("a", (3,))), {})
    assert not pairs and "[2]" in reason and "[3]" in reason


def test_more_variables_on_one_side_are_not_comparable():
    pairs, reason = comparing.match(names(("a", (2,))), names(("a", (2,)), ("b", (2,))), {})
    assert not pairs and "--map" in reason


# Records from somewhere else


def manifest(record):
    path = os.path.join(record, "accumulator", "manifest.json")
    return path, json.load(io.open(path))


def rewrite(record, **changes):
    path, content = manifest(record)
    content.update(changes)
    with io.open(path, "w") as stream:
        stream.write(json.dumps(content).encode("ascii").decode("ascii"))


def lines_of(record):
    return os.path.join(record, "accumulator", "updates.jsonl")


def test_a_record_that_is_cut_off_is_compared_to_where_it_is_whole(tmpdir, old):
    new = follow(tmpdir, old)
    whole = io.open(lines_of(new), "rb").read()
    with io.open(lines_of(new), "wb") as stream:
        stream.write(whole[: len(whole) - 1000])
    found = comparing.compare(old, new)
    assert found.verdict == "same" and "cut off" in str(found)


def test_another_schema_is_refused(tmpdir, old):
    new = follow(tmpdir, old)
    rewrite(new, schema=2)
    with pytest.raises(errors.RecordError):
        comparing.compare(old, new)


def test_another_program_is_not_comparable(tmpdir, old):
    new = follow(tmpdir, old)
    variables = manifest(new)[1]["variables"]
    variables[0]["shape"] = [9]
    rewrite(new, variables=variables)
    found = comparing.compare(old, new)
    assert (found.verdict, found.first, found.causes) == ("not comparable", None, [])


def test_a_billion_variables_are_refused(tmpdir, old):
    new = follow(tmpdir, old)
    rewrite(
        new,
        variables=[{"name": "a", "shape": [], "dtype": "float32"}] * 200000,
        slots=[[]] * 200000,
    )
    with pytest.raises(errors.RecordError):
        comparing.compare(old, new)


def test_a_pickle_in_a_snapshot_is_refused_unread(tmpdir, old):
    new = follow(tmpdir, old)
    path = os.path.join(new, "accumulator", "state-0.npz")

    class Evil(object):
        def __reduce__(self):
            return os.mkdir, (str(tmpdir.join("evil")),)

    array = np.empty(1, object)
    array[0] = Evil()
    np.savez(path, weight_0=array)
    with pytest.raises(errors.RecordError):
        comparing.compare(old, new)
    assert not os.path.exists(str(tmpdir.join("evil")))


def test_a_snapshot_with_paths_in_its_names_writes_nothing(tmpdir, old):
    new = follow(tmpdir, old)
    with zipfile.ZipFile(os.path.join(new, "accumulator", "state-0.npz"), "a") as archive:
        archive.writestr("../../escaped.npy", b"data")
    comparing.compare(old, new)
    assert not os.path.exists(str(tmpdir.join("escaped.npy")))


def test_missing_snapshots_are_done_without(tmpdir, old):
    new = follow(tmpdir, old, rate=0.06)
    for name in os.listdir(os.path.join(new, "accumulator")):
        if name.endswith(".npz"):
            os.remove(os.path.join(new, "accumulator", name))
    found = comparing.compare(old, new)
    assert found.verdict == "different" and found.causes[0].id == "learning-rate"


def test_nan_everywhere_is_no_crash(tmpdir):
    def spoilt(update, name, gradient, weights):
        return gradient * np.nan

    sides = [
        synthetic.Program(ADAM, change_gradient=spoilt).record(tmpdir.mkdir(name))
        for name in ("old", "new")
    ]
    found = comparing.compare(*sides)
    assert found.verdict in ("same", "inconclusive") and "<svg" in found.to_html()


def test_names_that_are_no_text_for_a_terminal_are_shown_as_question_marks(tmpdir, old):
    new = follow(tmpdir, old, rate=0.06)
    variables = manifest(old)[1]["variables"]
    for index, each in enumerate(variables):
        each["name"] = json.loads('"\\u001b[31m\\u202ea\\ud800%d"' % index)
    rewrite(old, variables=variables)
    shown = str(comparing.compare(old, new))
    assert "\x1b" not in shown and "?[31m?a?" in shown
