"""The documentation's site builds without a warning, holds every public name, and fetches nothing."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import bcrl

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow
def test_every_page_is_in_the_site_and_fetches_nothing(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 25
    for page in pages:
        text = page.read_text()
        fetched = re.findall(r"<(?:script|img|iframe)[^>]*\ssrc=[\"']?(https?://[^\s\"'>]+)", text)
        for link in re.findall(r"<link[^>]+>", text):
            if re.search(r"rel=[\"']?(stylesheet|preconnect|preload|icon)", link):
                fetched += re.findall(r"href=[\"']?(https?://[^\s\"'>]+)", link)
        assert fetched == [], page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()[\s\"']*https?://", sheet.read_text()), sheet


@pytest.mark.slow
def test_every_public_name_is_in_the_reference(site):
    page = (site / "api" / "index.html").read_text()
    found = set(re.findall(r'id="bcrl\.[\w.]*?(\w+)"', page))
    assert set(bcrl.__all__) - found == set()
