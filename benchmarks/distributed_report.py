"""What distributed.py has measured, as a Markdown table and as a plot. Needs no TensorFlow."""

from __future__ import absolute_import, division, print_function

ONCE, OFTEN = "once per cycle", "per micro-batch"
ROWS, WHOLE = "rows", "whole"


def median(numbers):
    ordered = sorted(numbers)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2.0


def by_count(measured, way):
    """[(micro-batches, {way: cycles})], from few micro-batches to many."""
    found = {}
    for cycles in measured["cycles"]:
        found.setdefault(cycles["micro_batches"], {})[cycles[way]] = cycles
    return sorted(found.items())


def sent(cycles):
    """The least megabytes that were sent in a cycle; whatever else uses the loopback only adds to
    it."""
    known = [each for each in cycles["sent_bytes"] if each is not None]
    megabytes = min(known) / 1e6 if known else None
    return "not known" if not known else "{:.{}f} MB".format(megabytes, int(megabytes < 10))


def row(count, one, other):
    times = [
        "{:.3f} s ({:.3f})".format(median(each["seconds"]), min(each["seconds"]))
        for each in (one, other)
    ]
    ratio = "{:.1f}".format(median(other["seconds"]) / median(one["seconds"]))
    return "| " + " | ".join([str(count)] + times + [ratio, sent(one), sent(other)]) + " |"


def table(measured, way, one, other, titles):
    lines = ["| " + " | ".join(["Micro-batches"] + titles) + " |", "|---|---|---|---|---|---|"]
    lines += [row(count, ways[one], ways[other]) for count, ways in by_count(measured, way)]
    return "\n".join(lines) + "\n"


def markdown(measured):
    """The tables, with what they were measured on above them."""
    head = (
        "TensorFlow {tensorflow}, Python {python}, {cpus} CPUs, {workers} workers on the loopback,"
        " {parameters:,} float32 parameters, {rounds} rounds.\nThe weights of both ways differ by"
        " {largest_difference:.1e} at most at the end.\nTimes of a cycle: the median, and in"
        " brackets the minimum.\n\n"
    )
    of_table = (
        "\nA table of {rows:,} rows of {width} float32, {touched:,} touched per micro-batch on each"
        " worker. The weights of both\nways differ by {largest_difference:.1e} at most at the"
        " end.\n\n"
    )
    return (
        head.format(**measured)
        + table(
            measured,
            "reductions",
            ONCE,
            OFTEN,
            [
                "One reduction per cycle",
                "One per micro-batch",
                "Ratio of medians",
                "Sent, per cycle",
                "Sent, per micro-batch",
            ],
        )
        + of_table.format(**measured["table"])
        + table(
            measured["table"],
            "sent",
            ROWS,
            WHOLE,
            ["Rows", "Whole table", "Ratio of medians", "Sent, rows", "Sent, whole"],
        )
    )


def plot(measured, path):
    """Draws how the time of a cycle grows with its micro-batches; returns False where there is no
    matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    for reductions, label, colour in (
        (OFTEN, "one reduction per micro-batch", "tab:orange"),
        (ONCE, "one reduction per cycle (gradaccum_compat)", "tab:blue"),
    ):
        lines = [
            (count, ways[reductions]["seconds"]) for count, ways in by_count(measured, "reductions")
        ]
        counts = [count for count, _ in lines]
        axes.plot(
            counts,
            [median(seconds) for _, seconds in lines],
            "o-",
            color=colour,
            label=label + ", median",
        )
        axes.plot(
            counts, [min(seconds) for _, seconds in lines], "v:", color=colour, label="minimum"
        )
    axes.set(
        xlabel="micro-batches in a cycle",
        ylabel="seconds for a cycle",
        xticks=counts,
        ylim=(0, None),
        title="{workers} workers, {parameters:,} parameters, TensorFlow {tensorflow}".format(
            **measured
        ),
    )
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    return True
