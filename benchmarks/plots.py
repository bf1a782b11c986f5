"""Plots of the results, one PNG a workload. The only module that needs matplotlib."""

from __future__ import absolute_import, division, print_function

import os

import matplotlib.pyplot as plt

from benchmarks import titles, workloads

_VALUES = {
    "times": ("time of a cycle over that without accumulation (minima)", "min_ratio"),
    "seconds_by_x": ("milliseconds a cycle", "min_seconds"),
    "bytes_by_x": (
        "peak over that without\naccumulation, bytes a parameter",
        "bytes_per_parameter",
    ),
    "traces_by_x": ("nodes of all graphs", "nodes"),
}


def everything(results, folder):
    """Returns a dictionary from workload to path."""
    written = {}
    for name in workloads.NAMES:
        panels = [
            (version, section)
            for version, result in results.items()
            if name in result
            for section in result[name]["sections"]
            if section["rows"]
        ]
        if panels:
            written[name] = os.path.join(folder, name + ".png")
            _draw(titles.WORKLOADS[name][0], panels, written[name])
    return written


def _draw(title, panels, path):
    figure, axes = plt.subplots(len(panels), 1, figsize=(9, 3.2 * len(panels)), squeeze=False)
    for (version, section), axis in zip(panels, axes[:, 0]):
        axis.set_title(
            "{}: {}, TensorFlow {}".format(title, section["title"], version), fontsize=10
        )
        (_bars if section["kind"] == "times" else _lines)(axis, section)
    figure.tight_layout()
    figure.savefig(path, dpi=90, bbox_inches="tight", metadata={"Software": None})
    plt.close(figure)


def _bars(axis, section):
    label, key = _VALUES["times"]
    rows = [row for row in section["rows"] if row["baseline"] != row["contender"]][::-1]
    names = [titles.CONTENDERS[row["contender"]] for row in rows]
    colors = ["#2a6f4e" if name.startswith("gradaccum_compat") else "#9aa5b1" for name in names]
    axis.barh(names, [row[key] for row in rows], color=colors)
    axis.axvline(1.0, color="black", linewidth=0.8)
    if max([row[key] for row in rows] or [1]) > 10:
        axis.set_xscale("log")
    axis.set_xlabel(label, fontsize=8)
    axis.tick_params(labelsize=8)


def _lines(axis, section):
    label, key = _VALUES[section["kind"]]
    factor = 1e3 if key == "min_seconds" else 1
    for name in titles.CONTENDERS:
        points = sorted(
            (row["x"], factor * row[key]) for row in section["rows"] if row["contender"] == name
        )
        if points:
            axis.plot(
                [x for x, _ in points],
                [y for _, y in points],
                marker="o",
                markersize=3,
                label=titles.CONTENDERS[name],
            )
    measured = sorted(set(row["x"] for row in section["rows"]))
    axis.set_xscale("log")
    axis.set_xticks(measured)
    axis.set_xticklabels(["{:,}".format(x) for x in measured])
    axis.minorticks_off()
    if section.get("log"):
        axis.set_yscale("log")
    else:
        axis.set_ylim(bottom=0)
    axis.set_xlabel(section["x"], fontsize=8)
    axis.set_ylabel(label, fontsize=8)
    axis.tick_params(labelsize=8)
    axis.legend(fontsize=6, loc="center left", bbox_to_anchor=(1.01, 0.5))
