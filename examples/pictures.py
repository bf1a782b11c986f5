"""What the scripts share: the option --picture, and how a picture looks.

Only `_drawn` needs matplotlib.
"""

from __future__ import absolute_import, division, print_function

import argparse

STYLE = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 9,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    # The same file for the same numbers, with words as words.
    "svg.fonttype": "none",
    "svg.hashsalt": "gradaccum_compat",
}


def run(text, train, draw):
    """Runs a script: trains, prints, and draws where --picture asks for it.

    Args:
        text: what the script does, for its help.
        train: a function that trains, and returns what is drawn, the lines to print, and whether
            all is as it should be.
        draw: a function of what is drawn and of two axes of matplotlib.

    Returns:
        The exit code: 0 if all is as it should be, 1 if not.
    """
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument(
        "--picture", metavar="FILE", help="draw into this .svg or .png; needs matplotlib"
    )
    arguments = parser.parse_args()
    if arguments.picture and not _has_matplotlib():
        parser.error("--picture needs matplotlib: pip install matplotlib")
    drawn, lines, fine = train()
    print("\n".join(lines))
    if arguments.picture:
        _drawn(arguments.picture, lambda axes: draw(drawn, axes))
    return 0 if fine else 1


def _has_matplotlib():
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


def _drawn(path, draw):
    import matplotlib

    matplotlib.use("Agg")  # draws without a screen
    from matplotlib import pyplot

    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.6))
        draw(axes)
        figure.tight_layout()
        figure.savefig(path, dpi=120, metadata={"Date": None} if path.endswith(".svg") else None)
        pyplot.close(figure)
