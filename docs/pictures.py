"""The two pictures on top of the README, from two real evaluations: `python docs/pictures.py`.

A policy near the logged one, which is trusted, and one that does what nobody logged, which is not. Needs
Debian's chromium and playwright; about a minute.
"""

from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import sync_playwright

import bcrl

HERE = Path(__file__).parent
POLICIES = {"trusted": lambda x: -0.5 * x, "struck_out": lambda x: 1.5 * x + 3.0}
TITLES = {"trusted": "A firmer controller", "struck_out": "A policy nobody has tried"}


def log() -> bcrl.Dataset:
    """A noisy controller that pushes a point to the origin."""
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(200):
        x = rng.uniform(1, 2)
        for _ in range(50):
            u = -0.3 * x + 0.3 * rng.normal()
            following = x + u + 0.05 * rng.normal()
            rows.append((x, u, -(x * x) - 0.1 * u * u, following))
            x = following
    x, u, reward, following = np.array(rows).T
    end = np.arange(len(x)) % 50 == 49
    return bcrl.Dataset.from_arrays(
        x[:, None], u[:, None], reward, np.zeros(len(x), bool), end, following[:, None]
    )


def main() -> None:
    dataset = log()
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        for name, policy in POLICIES.items():
            found = bcrl.compare(
                dataset,
                {"new": policy},
                discount=0.9,
                horizon=40,
                methods={"consensus": "consensus"},
                title=TITLES[name],
            )
            print(name, found)
            page = bcrl.write_report(found, HERE / f"{name}.html")
            tab = browser.new_page(viewport={"width": 1000, "height": 560}, color_scheme="light")
            tab.goto(page.as_uri())
            tab.screenshot(path=HERE / f"{name}.png")
            Image.open(HERE / f"{name}.png").quantize(48).save(HERE / f"{name}.png", optimize=True)
            page.unlink()
        browser.close()


if __name__ == "__main__":
    main()
