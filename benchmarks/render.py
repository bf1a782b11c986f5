"""Results to Markdown tables in README.md, and to plots where matplotlib is installed. Needs no
TensorFlow."""

from __future__ import absolute_import, division, print_function

import collections
import glob
import io
import json
import os

from benchmarks import titles, workloads

BEGIN, END = "<!-- tables: made by benchmarks/run.py -->\n", "<!-- end of tables -->\n"


def everything(folder, readme):
    """Renews the tables of a page and the plots beside the results; returns the paths that were
    written."""
    results = load(folder)
    plots = _plots(results, folder)
    page = BEGIN + END
    if os.path.exists(readme):
        with io.open(readme, encoding="ascii") as stream:
            page = stream.read()
    head, rest = page.split(BEGIN)
    here = os.path.dirname(os.path.abspath(readme))
    tables = markdown(
        results, dict((name, os.path.relpath(path, here)) for name, path in plots.items())
    )
    with io.open(readme, "w", encoding="ascii") as stream:
        stream.write("" + head + BEGIN + tables + END + rest.split(END)[1])
    return [readme] + sorted(plots.values())


def load(folder):
    """A dictionary from TensorFlow version to that of its workloads, newest first."""
    results = {}
    for path in glob.glob(os.path.join(folder, "tf-*.json")):
        with open(path) as stream:
            results[os.path.basename(path)[len("tf-") : -len(".json")]] = json.load(stream)
    newest_first = sorted(
        results, key=lambda version: [int(part) for part in version.split(".")[:2]], reverse=True
    )
    return collections.OrderedDict((version, results[version]) for version in newest_first)


# Tables


def markdown(results, plots):
    lines = []
    for name in workloads.NAMES:
        found = [(version, result[name]) for version, result in results.items() if name in result]
        if found:
            title, about = titles.WORKLOADS[name]
            lines += ["## " + title, "", about, ""]
            lines += ["![{}]({})".format(title, plots[name]), ""] if name in plots else []
            lines += _sections(found)
            lines += _processes(found)
    return "\n".join(lines + _not_there(results) + [""] + _measured_on(results)) + "\n"


def _processes(found):
    """How many processes the figures come from, where from more than one."""
    versions = collections.OrderedDict()
    for version, result in found:
        versions.setdefault(result.get("processes", 1), []).append(version)
    return [
        "TensorFlow {}: each figure is the median of {} processes.\n".format(
            ", ".join(alike), count
        )
        for count, alike in versions.items()
        if count > 1
    ]


def _sections(found):
    lines = []
    kinds = collections.OrderedDict()
    for version, result in found:
        for section in result["sections"]:
            kinds.setdefault(section["title"], []).append((version, section))
    for title, sections in kinds.items():
        lines += ["**{}**".format(title), ""] + _TABLES[sections[0][1]["kind"]](sections) + [""]
    return lines


def _times(sections):
    """Ratios to the baseline, of minima, of medians and of processor seconds; the baseline's own
    time in its row."""
    return _grid(
        ["TensorFlow " + version for version, _ in sections],
        _names(sections),
        lambda column, name: [
            (
                "{:.1f} ms".format(1e3 * row["min_seconds"])
                if row["baseline"] == name
                else "{:.2f} ({:.2f}) {}".format(
                    row["min_ratio"], row["median_ratio"], _processor(row)
                )
            )
            for row in sections[column][1]["rows"]
            if row["contender"] == name
        ],
    )


def _processor(row):
    return "-" if row["processor_ratio"] is None else "{:.2f}".format(row["processor_ratio"])


def _by_x(cell):
    def table(sections):
        columns = [
            (version, section, x)
            for version, section in sections
            for x in sorted(set(row["x"] for row in section["rows"]))
        ]
        heads = ["TF {}, {:,}".format(version, x) for version, _, x in columns]
        return ["By {}:".format(sections[0][1]["x"]), ""] + _grid(
            heads,
            _names(sections),
            lambda column, name: [
                cell(row)
                for row in columns[column][1]["rows"]
                if row["contender"] == name and row["x"] == columns[column][2]
            ],
        )

    return table


_TABLES = {
    "times": _times,
    "seconds_by_x": _by_x(lambda row: "{:.1f} ms".format(1e3 * row["min_seconds"])),
    "bytes_by_x": _by_x(lambda row: "{:.2f} B".format(row["bytes_per_parameter"])),
    "traces_by_x": _by_x(lambda row: "{:.2f} s, {}".format(row["seconds"], row["nodes"])),
}


def _names(sections):
    present = set(row["contender"] for _, section in sections for row in section["rows"])
    return [name for name in titles.CONTENDERS if name in present]


def _grid(heads, names, cells_of):
    lines = ["| | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    for name in names:
        cells = [(cells_of(column, name) or ["-"])[0] for column in range(len(heads))]
        lines.append("| {} | {} |".format(titles.CONTENDERS[name], " | ".join(cells)))
    return lines


def _not_there(results):
    """Says once which contender is missing on which TensorFlow, and why."""
    missing = collections.OrderedDict()
    for version, result in results.items():
        for workload in result.values():
            for section in workload["sections"]:
                for name, reason in sorted(section.get("skipped", {}).items()):
                    versions = missing.setdefault((titles.CONTENDERS.get(name, name), reason), [])
                    versions += [] if version in versions else [version]
    return ["## Not there", ""] + [
        "- {}, TensorFlow {}: {}.".format(name, ", ".join(versions), reason)
        for (name, reason), versions in sorted(missing.items())
    ]


def _measured_on(results):
    lines = ["## Measured on", ""]
    for version, result in results.items():
        any_ = sorted(result.items())[0][1]
        machine = any_["machine"]
        packages = "".join(", {} {}".format(*each) for each in sorted(machine["packages"].items()))
        lines.append(
            "- TensorFlow {}, Keras {}, Python {}{}: {} with {} logical CPUs, {} rounds{}.".format(
                version,
                machine["keras"],
                machine["python"],
                packages,
                machine["cpu"],
                machine["cpus"],
                any_["rounds"],
                ", small shapes" if any_["quick"] else "",
            )
        )
    return lines + [""]


# Plots


def _plots(results, folder):
    try:
        import matplotlib
    except ImportError:
        return {}
    matplotlib.use("Agg")
    from benchmarks import plots

    return plots.everything(results, folder)
