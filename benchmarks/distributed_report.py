"""What distributed.py has measured, as a Markdown table and as a plot. Needs no TensorFlow."""

from __future__ import absolute_import, division, print_function

ONCE, OFTEN = "once per cycle", "per micro-batch"


def median(numbers):
    ordered = sorted(numbers)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2.0


def by_count(measured):
    """[(micro-batches, {reductions: cycles})], from few micro-batches to many."""
    found = {}
    for cycles in measured["cycles"]:
        found.setdefault(cycles["micro_batches"], {})[cycles["reductions"]] = cycles
    return sorted(found.items())


def sent(cycles):
    """The least megabytes that were sent in a cycle; whatever else uses the loopback only adds to it."""
    known = [each for each in cycles["sent_bytes"] if each is not None]
    return "{:.0f} MB".format(min(known) / 1e6) if known else "not known"


def row(count, ways):
    once, often = ways[ONCE], ways[OFTEN]
    times = ["{:.3f} s ({:.3f})".format(median(each["seconds"]), min(each["seconds"])) for each in (once, often)]
    ratio = "{:.1f}".format(median(often["seconds"]) / median(once["seconds"]))
    return "| " + " | ".join([str(count)] + times + [ratio, sent(once), sent(often)]) + " |"


def markdown(measured):
    """The table, with what it was measured on above it."""
    head = ("TensorFlow {tensorflow}, Python {python}, {cpus} CPUs, {workers} workers on the loopback, {parameters:,} "
            "float32 parameters, {rounds} rounds.\nThe weights of both ways differ by {largest_difference:.1e} at "
            "most at the end.\nTimes of a cycle: the median, and in brackets the minimum.\n\n")
    return head.format(**measured) + "\n".join([
        "| Micro-batches | One reduction per cycle | One per micro-batch | Ratio of medians | Sent, per cycle "
        "| Sent, per micro-batch |", "|---|---|---|---|---|---|"] + [row(*each) for each in by_count(measured)]) + "\n"


def plot(measured, path):
    """Draws how the time of a cycle grows with its micro-batches; returns False where there is no matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot
    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    for reductions, label, colour in ((OFTEN, "one reduction per micro-batch", "tab:orange"),
                                      (ONCE, "one reduction per cycle (gradaccum_compat)", "tab:blue")):
        lines = [(count, ways[reductions]["seconds"]) for count, ways in by_count(measured)]
        counts = [count for count, _ in lines]
        axes.plot(counts, [median(seconds) for _, seconds in lines], "o-", color=colour, label=label + ", median")
        axes.plot(counts, [min(seconds) for _, seconds in lines], "v:", color=colour, label="minimum")
    axes.set(xlabel="micro-batches in a cycle", ylabel="seconds for a cycle", xticks=counts, ylim=(0, None),
             title="{workers} workers, {parameters:,} parameters, TensorFlow {tensorflow}".format(**measured))
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    return True
