"""The comparison as a page: one file without scripts, for a screen and for paper.

Everything that comes from a record goes through `_text`, which makes it text.
"""

from __future__ import absolute_import, division, print_function, unicode_literals

import numpy as np

from gradaccum_compat.upgrade import _causes

#: Classes of difference over rounding: up to 1 is rounding's, then each power of ten.
_CLASSES = (1.0, 10.0, 100.0, 1e3, 1e4)
_LABELS = ("rounding", "to 10\u00d7", "to 100\u00d7", "to 1,000\u00d7", "to 10,000\u00d7", "more")
#: Rows of a map; of more variables, each row stands for several.
_ROWS = 64
#: Points of a curve: those updates whose gradients' lengths were read.
_POINTS = 240
_ROW_HEIGHT = 15

_HEADLINES = {
    "same": "Both train the same.",
    "different": "They train differently.",
    "inconclusive": "The records do not say.",
    "not comparable": "The records cannot be compared.",
}

_STYLE = """
:root {
  color-scheme: light dark;
  --page: #fbfaf8; --card: #ffffff; --ink: #23262b; --quiet: #6d727b; --line: #e4e2dd; --accent:
  #2c6fbb;
  --old: #9a8f80; --new: #2c6fbb; --same: #2e8b57; --different: #c2452d; --inconclusive: #b07d12;
  --c0: #e9eef0; --c1: #f7dfa6; --c2: #f3b76b; --c3: #e58a4b; --c4: #cc5837; --c5: #96281f; --none:
  #f6f5f2;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #16181b; --card: #1e2125; --ink: #e4e3df; --quiet: #989ca4; --line: #32363c; --accent:
    #77aee8;
    --old: #b5a78f; --new: #77aee8; --same: #63c08d; --different: #ee8067; --inconclusive: #dfb14f;
    --c0: #2a3136; --c1: #5a4a22; --c2: #8d6220; --c3: #bd6c2c; --c4: #dd7350; --c5: #ff9d8a;
    --none: #1a1d20;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
main { max-width: 60rem; margin: 0 auto; padding: 3rem 1.5rem 4rem; }
header { margin-bottom: 2.2rem; }
.verdict { margin: 0; font-size: .95rem; font-weight: 600; letter-spacing: .02em; }
.verdict::before {
  content: ""; display: inline-block; width: .65em; height: .65em; margin-right: .55em;
  border-radius: 50%;
  background: currentColor;
}
.same { color: var(--same); } .different { color: var(--different); }
.inconclusive, .not-comparable { color: var(--inconclusive); }
h1 { margin: .35rem 0 .5rem; font-size: 2rem; line-height: 1.2; font-weight: 650; letter-spacing:
-.015em; }
h2 { margin: 2.6rem 0 .8rem; font-size: 1.1rem; font-weight: 650; }
h3 { margin: 1.6rem 0 .5rem; font-size: .95rem; font-weight: 600; }
p { margin: .5rem 0; overflow-wrap: anywhere; }
.quiet, figcaption, .axis, th { color: var(--quiet); font-size: .875rem; font-weight: 400; }
.cause { margin: .8rem 0; padding: 1rem 1.2rem; background: var(--card); border: 1px solid
var(--line);
  border-left: 3px solid var(--different); border-radius: 6px; }
.cause h3 { margin: 0 0 .3rem; font-size: 1rem; }
code { font: .85em/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; overflow-wrap:
anywhere; }
.cause code { display: block; margin-top: .5rem; color: var(--quiet); }
figure { margin: 0 0 1.4rem; }
figcaption { margin-bottom: .5rem; }
.map { display: grid; grid-template-columns: fit-content(15rem) 1fr; column-gap: .8rem; }
.map ol { margin: 0; padding: 0; list-style: none; font-size: 11.5px; line-height: 15px;
text-align: right; }
.map li { height: 15px; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; color:
var(--quiet); }
svg { display: block; width: 100%; }
.map svg { border-radius: 3px; background: var(--none); }
.c0 { fill: var(--c0); } .c1 { fill: var(--c1); } .c2 { fill: var(--c2); } .c3 { fill: var(--c3); }
.c4 { fill: var(--c4); } .c5 { fill: var(--c5); } .lock { fill: var(--accent); }
.free { fill: var(--page); opacity: .55; }
.axis { display: flex; justify-content: space-between; font-size: 11.5px; font-variant-numeric:
tabular-nums; }
.map .axis { grid-column: 2; margin-top: .2rem; }
.legend { display: flex; flex-wrap: wrap; gap: .3rem 1rem; margin: .7rem 0 1.1rem; padding: 0;
list-style: none;
  font-size: .8rem; color: var(--quiet); }
.legend svg { display: inline-block; width: .8rem; height: .8rem; margin-right: .35rem;
vertical-align: -.08rem;
  border-radius: 2px; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(17rem, 1fr)); gap: 1.6rem
2rem; }
.plots svg { height: 9rem; border-bottom: 1px solid var(--line); }
.plots figure { min-width: 0; margin: 0; }
.curve { fill: none; stroke-width: 1.4; vector-effect: non-scaling-stroke; stroke-linejoin: round; }
.old-run { stroke: var(--old); stroke-width: 5; opacity: .5; } .new-run { stroke: var(--new); }
.dot-old { fill: var(--old); } .dot-new { fill: var(--new); }
.values { display: flex; justify-content: space-between; font-size: 11.5px; color: var(--quiet);
  font-variant-numeric: tabular-nums; }
table { width: 100%; border-collapse: collapse; font-size: .9rem; table-layout: fixed; }
th { width: 9rem; text-align: left; } thead th { color: var(--ink); font-weight: 600; }
th, td { padding: .35rem .6rem .35rem 0; border-bottom: 1px solid var(--line); vertical-align: top;
  overflow-wrap: anywhere; }
footer { margin-top: 3rem; }
@media (max-width: 36rem) {
  main { padding: 1.6rem 1rem 3rem; } h1 { font-size: 1.55rem; }
  .map { grid-template-columns: fit-content(6.5rem) 1fr; column-gap: .5rem; } .map ol { font-size:
  10px; direction: rtl; }
  th { width: 5.5rem; } table { font-size: .82rem; }
}
@media print {
  :root {
    --page: #fff; --card: #fff; --ink: #000; --quiet: #444; --line: #bbb; --accent: #1d4f8a; --old:
    #8a7c66;
    --new: #1d4f8a; --same: #1f6b41; --different: #a5301b; --inconclusive: #8a5f06; --c0: #e9eef0;
    --c1: #f7dfa6;
    --c2: #f3b76b; --c3: #e58a4b; --c4: #cc5837; --c5: #96281f; --none: #f6f5f2;
  }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  body { font-size: 10.5pt; } main { max-width: none; padding: 0; } h1 { font-size: 18pt; }
  figure, .cause, tr { break-inside: avoid; } h2, h3 { break-after: avoid; }
}
@page { margin: 18mm 16mm; }
"""


def page(comparison):
    """The page of a Comparison, as text."""
    verdict = comparison.verdict
    body = [
        "<header>",
        '<p class="verdict {}">{}</p>'.format(verdict.replace(" ", "-"), _text(verdict)),
        "<h1>{}</h1>".format(_HEADLINES[verdict]),
    ]
    if comparison.parts:
        body.append('<p class="quiet">{}</p>'.format(_which(comparison.parts[0].manifests)))
    if comparison.first is not None:
        body.append("<p>{}</p>".format(_text(comparison.where())))
    body += ['<p class="quiet">{}</p>'.format(_text(each)) for each in comparison.notes if each]
    body.append("</header>")
    if comparison.causes:
        body.append("<h2>{}</h2>".format("Cause" if len(comparison.causes) == 1 else "Causes"))
        body += [_cause(each) for each in comparison.causes]
    for part in comparison.parts:
        title = part.old.name if len(comparison.parts) > 1 else ""
        body += _part(part, title)
    body.append(
        '<footer class="quiet">gradaccum-compat compare. Old: {} \u00b7 new: {}</footer>'.format(
            *[_text(str(each)) for each in comparison.paths]
        )
    )
    return _document("gradaccum-compat: {}".format(_text(verdict)), "\n".join(body))


def _which(manifests):
    sides = [
        "TensorFlow {} on Python {}".format(
            *[_text(each.get(key) or "unknown", 60) for key in ("tensorflow", "python")]
        )
        for each in manifests
    ]
    return " \u2192 ".join(sides)


def _document(title, body):
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; style-src '
        "'unsafe-inline'; "
        'img-src data:">\n'
        '<link rel="icon" href="data:,">\n'
        "<title>{}</title>\n<style>{}</style>\n</head>\n"
        "<body>\n<main>\n{}\n</main>\n</body>\n</html>\n"
    ).format(title, _STYLE, body)


def _text(value, most=2000):
    """Text from a record, escaped for the page."""
    from gradaccum_compat.upgrade import comparing

    value = comparing.clean(value, most)
    value = value.decode("ascii", "replace") if isinstance(value, bytes) else value
    for character, name in (
        ("&", "&amp;"),
        ("<", "&lt;"),
        (">", "&gt;"),
        ('"', "&quot;"),
        ("'", "&#39;"),
    ):
        value = value.replace(character, name)
    return value


def _cause(cause):
    return '<section class="cause"><h3>{}</h3><p>{}</p><code>{}</code></section>'.format(
        _text(cause.id), _text(cause.text), _text(cause.evidence)
    )


def _part(part, title):
    """The section on one accumulator's records."""
    body = []
    if title:
        body.append("<h2>{}</h2>".format(_text(title)))
    if len(part.numbers):
        body.append("<h2>Where they differ</h2>")
        body.append(_legend())
        body += [_map(part, quantity) for quantity in ("gradient", "update")]
        body.append("<h2>The two runs</h2>")
        body.append(_plots(part))
    body.append("<h2>What was recorded</h2>")
    body.append(_table(part))
    return body


# The map


def _legend():
    items = [
        '<li><svg viewBox="0 0 1 1"><path class="c{}" d="M0 0h1v1h-1z"/></svg>{}</li>'.format(
            number, label
        )
        for number, label in enumerate(_LABELS)
    ]
    return (
        '<p class="quiet">Difference over what rounding explains. Each row is a variable, each '
        "column an update; "
        "columns in lockstep are marked above the map and count, the others are free and paler.</p>"
        '<ul class="legend">{}</ul>'
    ).format("".join(items))


def _map(part, quantity):
    columns = part.map["columns"]
    values = np.array(part.map[quantity], dtype=np.float64).T.reshape(len(part.names), len(columns))
    values, names = _grouped(values, part.names)
    classes = np.digitize(values, _CLASSES, right=True)
    classes[np.isnan(values)] = -1
    locked = part.lockstep[columns]
    height = _ROW_HEIGHT * len(names) + 8
    paths = []
    for number in range(len(_LABELS)):
        runs = [
            "M{} {}h{}v{}h-{}z".format(begin, 8 + row * _ROW_HEIGHT, width, _ROW_HEIGHT - 1, width)
            for row in range(len(names))
            for begin, width in _runs(classes[row] == number)
        ]
        if runs:
            paths.append('<path class="c{}" d="{}"/>'.format(number, "".join(runs)))
    for class_, mask, top, tall in (("lock", locked, 0, 5), ("free", ~locked, 8, height - 8)):
        runs = [
            "M{} {}h{}v{}h-{}z".format(begin, top, width, tall, width)
            for begin, width in _runs(mask)
        ]
        if runs:
            paths.append('<path class="{}" d="{}"/>'.format(class_, "".join(runs)))
    labels = "".join(
        '<li title="{0}"><bdi>{0}</bdi></li>'.format(_text(name, 120)) for name in names
    )
    ticks = sorted(set(np.linspace(0, len(columns) - 1, min(len(columns), 6)).astype(int)))
    axis = "".join("<span>{}</span>".format(part.numbers[columns[tick]]) for tick in ticks)
    return (
        '<figure><figcaption>{}</figcaption><div class="map"><ol style="padding-top:8px">{}</ol>'
        '<svg viewBox="0 0 {} {}" style="height:{}px" preserveAspectRatio="none" '
        'shape-rendering="crispEdges" '
        'role="img" aria-label="{}">{}</svg><div class="axis">{}</div></div></figure>'
    ).format(
        quantity.capitalize() + "s",
        labels,
        len(columns),
        height,
        height,
        "Map of {}s".format(quantity),
        "".join(paths),
        axis,
    )


def _grouped(values, names):
    """At most _ROWS rows: of several variables the largest value."""
    if len(names) <= _ROWS:
        return values, list(names)
    groups = np.array_split(np.arange(len(names)), _ROWS)
    rows, labels = [], []
    for group in groups:
        shown = np.where(np.isnan(values[group]), -1.0, values[group]).max(axis=0)
        rows.append(np.where(shown < 0, np.nan, shown))
        more = " and {} more".format(len(group) - 1) if len(group) > 1 else ""
        labels.append(names[group[0]] + more)
    return np.array(rows), labels


def _runs(mask):
    """(begin, length) of each run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], np.asarray(mask, int), [0]])))
    return [(int(begin), int(end - begin)) for begin, end in zip(edges[::2], edges[1::2])]


# Curves


def _plots(part):
    course = part.course
    plots = [
        _plot(part, "Loss", course["old_loss"], course["new_loss"]),
        _plot(part, "Length of the gradient", course["old_norm"], course["new_norm"]),
        _plot(part, "Learning rate", course["old_rate"], course["new_rate"]),
    ]
    legend = (
        '<ul class="legend">'
        '<li><svg viewBox="0 0 1 1"><path class="dot-old" d="M0 0h1v1h-1z"/></svg>old</li>'
        '<li><svg viewBox="0 0 1 1"><path class="dot-new" d="M0 0h1v1h-1z"/></svg>new</li></ul>'
    )
    return '<div class="plots">{}</div>{}'.format("".join(plots), legend)


def _plot(part, title, old, new):
    count = len(part.numbers)
    chosen = np.unique(np.linspace(0, count - 1, min(count, _POINTS)).astype(int))
    both = [np.where(np.isfinite(each[chosen]), each[chosen], np.nan) for each in (old, new)]
    every = np.concatenate(both)
    every = every[np.isfinite(every)]
    if not len(every):
        return "<figure><figcaption>{}: not recorded</figcaption></figure>".format(title)
    low, high = float(every.min()), float(every.max())
    logarithmic = low > 0 and high > 30 * low
    if logarithmic:
        both, edges = [np.log10(each) for each in both], (np.log10(low), np.log10(high))
    else:
        edges = (min(low, 0.0) if low > 0 and low < 0.5 * high else low, high)
    span = (edges[1] - edges[0]) or abs(edges[1]) or 1.0
    if edges[1] == edges[0]:
        edges = (edges[0] - span / 2, edges[1] + span / 2)
    paths = [
        '<path class="curve {}" d="{}"/>'.format(name, _curve(values, edges[0], span))
        for name, values in zip(("old-run", "new-run"), both)
    ]
    bottom = 10 ** edges[0] if logarithmic else edges[0]
    top = 10 ** edges[1] if logarithmic else edges[1]
    return (
        '<figure><figcaption>{}{}</figcaption><div class="values"><span>{}</span></div>'
        '<svg viewBox="0 0 1000 100" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>'
        '<div class="axis"><span>{}</span><span>updates {} to {}</span></div></figure>'
    ).format(
        title,
        ", logarithmic" if logarithmic else "",
        _causes.number(top, 3),
        title,
        "".join(paths),
        _causes.number(bottom, 3),
        part.numbers[0],
        part.numbers[-1],
    )


def _curve(values, low, span):
    """A path's data; a gap where there is no value."""
    points, pen = [], "M"
    last = max(len(values) - 1, 1)
    for place, value in enumerate(values):
        if not np.isfinite(value):
            pen = "M"
            continue
        points.append(
            "{}{:.1f} {:.2f}".format(pen, 1000.0 * place / last, 97 - 94 * (value - low) / span)
        )
        pen = "L"
    if len(points) == 1:
        points.append("h1")
    return "".join(points)


# The table


def _table(part):
    rows = []
    manifests = part.manifests
    for key in ("tensorflow", "python", "numpy", "platform", "strategy", "replicas", "context"):
        rows.append((key, [each.get(key) for each in manifests]))
    optimizers = [each.get("optimizer") or {} for each in manifests]
    rows.append(("optimizer", [each.get("class") for each in optimizers]))
    rows.append(("settings", [_settings(each.get("settings")) for each in optimizers]))
    rows.append(("options", [_settings(each.get("options")) for each in manifests]))
    rows.append(("updates", [len(each.updates) for each in (part.old, part.new)]))
    rows.append(("variables", [len(each.variables) for each in (part.old, part.new)]))
    body = "".join(
        "<tr><th>{}</th>{}</tr>".format(
            key, "".join("<td>{}</td>".format(_shown(value)) for value in values)
        )
        for key, values in rows
    )
    head = "<thead><tr><th></th><th>old</th><th>new</th></tr></thead>"
    return "<table>{}<tbody>{}</tbody></table>".format(head, body)


def _settings(given):
    if not isinstance(given, dict):
        return None
    shown = [(str(key), given[key]) for key in given if not isinstance(given[key], (dict, list))]
    return ", ".join(
        "{} {}".format(key, value) for key, value in sorted(shown)[:40] if value is not None
    )


def _shown(value):
    if value is None or value == "":
        return "\u2013"
    return _text(value if isinstance(value, type("")) else str(value), 600)
