"""The pages of the built site, without the programs' sources, in headless Chromium, as wide as a
telephone: no picture is missing, and nothing but tables and code is wider than the screen.

tox's row `docs` runs this after it has built the site.
"""

from __future__ import absolute_import, division, print_function

import json
import os
import shutil
import subprocess

import pytest

from support import processes

SITE = os.path.join(processes.ROOT, "build", "site")
CHROMIUM = shutil.which("chromium")
WIDTH = 400
#: Opens all pages, and ends with what it found as JSON.
OPENER = """<meta charset=utf8><body><script>
(async () => {
  const found = {};
  await Promise.all(%s.map(async page => {
    const frame = document.createElement("iframe");
    frame.style.width = "%dpx";
    frame.src = page;
    await new Promise(ready => { frame.onload = ready; document.body.appendChild(frame); });
    const opened = frame.contentDocument;
    found[page] = {
      wide: opened.documentElement.scrollWidth,
      pictures: opened.images.length,
      missing: [...opened.images].filter(each => !each.naturalWidth).map(each => each.src),
    };
    frame.remove();
  }));
  document.body.textContent = JSON.stringify(found);
})();
</script>"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What Chromium finds on each page."""
    if CHROMIUM is None:
        pytest.skip("no Chromium")
    pages = [
        os.path.join(SITE, name)
        for name in sorted(os.listdir(SITE))
        if name.endswith(".html") and name != "404.html"
    ]
    opener = tmp_path_factory.mktemp("opener").joinpath("opener.html")
    opener.write_text(OPENER % (json.dumps(["file://" + page for page in pages]), WIDTH))
    said = subprocess.check_output(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"]
        + ["--virtual-time-budget=10000", "--dump-dom", opener.as_uri()],
        stderr=subprocess.DEVNULL,
        timeout=300,
    ).decode("utf-8")
    return json.loads(said[said.index("{") : said.rindex("}") + 1])


def test_no_page_is_wider_than_the_screen(found):
    assert len(found) > 20
    assert {page: each["wide"] for page, each in found.items() if each["wide"] > WIDTH} == {}


def test_no_picture_is_missing(found):
    assert sum(each["pictures"] for each in found.values()) > 10
    assert [each["missing"] for each in found.values() if each["missing"]] == []
