"""The page of a comparison: its texts, its colours, its safety; in a browser where there is one."""

from __future__ import absolute_import, division, print_function

import io
import re
import shutil
import subprocess

import pytest

np = pytest.importorskip("numpy")

from gradaccum_compat.upgrade import comparing  # noqa: E402
from support import synthetic  # noqa: E402

HOSTILE = "<img src=x onerror=alert(1)>\"'&</title><script>alert(2)</script>"
#: The browser, or None; always None on Python 2.
CHROMIUM = getattr(shutil, "which", lambda name: None)("chromium")


def compared(tmpdir, new, **old):
    old = synthetic.Program(("AdamOptimizer", "v1", {"epsilon": 1e-8}), **old).record(
        tmpdir.mkdir("old")
    )
    return comparing.compare(old, synthetic.Program(**new).record(tmpdir.mkdir("new"), follow=old))


@pytest.fixture
def different(tmpdir):
    return compared(tmpdir, dict(optimizer=("Adam", "keras_3", {"epsilon": 1e-3})))


def test_the_page_says_verdict_cause_and_evidence(different):
    page = different.to_html()
    for text in (
        "different",
        "epsilon",
        different.causes[0].evidence,
        "TensorFlow 1.14.0",
        "dense/kernel:0",
    ):
        assert text in page


def test_the_page_is_one_file_without_scripts(different):
    page = different.to_html()
    assert "<script" not in page
    assert (
        not re.findall(r"(?:src|href)=\"(?!data:,)", page)
        and "url(" not in page
        and "@import" not in page
    )


def test_the_map_has_a_colour_for_each_size_of_difference(different):
    page = different.to_html()
    assert 'class="c0" d="M' in page and 'class="c5" d="M' in page and 'class="lock" d="M' in page


def test_light_dark_narrow_and_paper_have_styles(different):
    page = different.to_html()
    for rule in ("prefers-color-scheme: dark", "max-width: 36rem", "@media print"):
        assert rule in page


def test_names_with_html_stay_text(tmpdir):
    names = [HOSTILE, HOSTILE + "2", HOSTILE + "3"]
    page = compared(
        tmpdir, dict(optimizer=("Adam", "keras_3", {"epsilon": 1e-3})), names=names
    ).to_html()
    assert "<script" not in page and "<img" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page


def test_settings_and_versions_with_html_stay_text(tmpdir):
    different = compared(
        tmpdir, dict(optimizer=("Adam", "keras_3", {"epsilon": 1e-3, HOSTILE: HOSTILE}))
    )
    for part in different.parts:
        part.manifests[0].update(
            tensorflow=HOSTILE, platform=HOSTILE, strategy={"a": HOSTILE}, replicas=[HOSTILE]
        )
    page = different.to_html()
    assert "<script" not in page and "<img" not in page


def test_all_variables_of_a_large_model_fit_on_the_map(different):
    part = different.parts[0]
    part.names = ["layer_{}/kernel".format(index) for index in range(1000)]
    columns = len(part.map["columns"])
    for quantity in ("gradient", "update"):
        part.map[quantity] = [np.random.rand(1000) * 3 for _ in range(columns)]
    page = different.to_html()
    assert "layer_0/kernel and 15 more" in page and len(page) < 2000000


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
class TestInTheBrowser(object):
    """Its document after loading, and what it complains of."""

    def opened(self, tmpdir, page, *flags):
        with io.open(str(tmpdir.join("page.html")), "w", encoding="utf-8") as stream:
            stream.write(page)
        command = [
            CHROMIUM,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
        ]
        command += [
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ]
        command += [
            "--user-data-dir=" + str(tmpdir.join("profile")),
            "--enable-logging=stderr",
            "--v=0",
        ]
        command += list(flags) + ["file://" + str(tmpdir.join("page.html"))]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            printed, said = [
                each.decode("utf-8", "replace") for each in process.communicate(timeout=120)
            ]
        finally:
            if process.poll() is None:
                process.kill()
                process.communicate()
        assert "CONSOLE" not in said, said
        return printed

    def test_it_opens_without_an_error_and_shows_its_texts(self, tmpdir, different):
        shown = self.opened(tmpdir, different.to_html(), "--dump-dom")
        assert "They train differently." in shown and "the replay fits with epsilon 0.001" in shown

    def test_names_with_html_make_no_elements(self, tmpdir, different):
        different.parts[0].names[0] = HOSTILE
        shown = self.opened(tmpdir, different.to_html(), "--dump-dom")
        assert "<img" not in shown and "<script" not in shown and "&lt;img" in shown

    @pytest.mark.parametrize("dark", [False, True])
    def test_its_colours_are_those_of_light_and_dark(self, tmpdir, different, dark):
        flags = ["--blink-settings=preferredColorScheme={}".format(0 if dark else 1)]
        picture = tmpdir.join("page.png")
        flags += ["--screenshot=" + str(picture), "--window-size=600,400", "--hide-scrollbars"]
        self.opened(tmpdir, different.to_html(), *flags)
        assert corner(picture) == ((22, 24, 27) if dark else (251, 250, 248))


def corner(picture):
    """The first pixel of a PNG of 8 bits a channel."""
    import struct
    import zlib

    data, at, packed, depth = picture.read_binary(), 8, b"", None
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at : at + 8])
        if kind == b"IHDR":
            depth = data[at + 16]
        if kind == b"IDAT":
            packed += data[at + 8 : at + 8 + size]
        at += 12 + size
    assert depth == 8
    return tuple(zlib.decompress(packed)[1:4])
