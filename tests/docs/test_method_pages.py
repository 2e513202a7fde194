"""Pages of LSPE and BellmanComplete name every option and every number of the code, the table of methods
every method.
"""

import dataclasses
import re
from pathlib import Path

import pytest

import bcrl
from bcrl.methods import SHORT
from bcrl.networks import Head
from bcrl.representations.bellman_complete import Design
from bcrl_bench.worlds import lqr

DOCS = Path(__file__).parents[2] / "docs"


def named(page: str) -> set[str]:
    """Everything in `code` on a page."""
    text = re.sub(r"```.*?```", "", (DOCS / page).read_text(), flags=re.DOTALL)
    return set(re.findall(r"`([^`]+)`", text))


@pytest.fixture(scope="module")
def estimates():
    world = lqr()
    dataset = world.dataset(40, 10, seed=0)
    tiny = dict(dim=8, head=Head(hidden=8), batch_size=64, steps=4, evaluations=2)
    methods = {
        "plain": bcrl.LSPE(bcrl.BellmanComplete(**tiny)),
        "design": bcrl.LSPE(bcrl.BellmanComplete(**tiny, design=Design("E", constraint=0.1))),
        "random": bcrl.LSPE(bcrl.RandomFeatures(dim=20)),
    }
    return bcrl.compare(dataset, {"p": world.target}, discount=0.9, methods=methods).estimates["p"]


@pytest.mark.parametrize(
    ("page", "kind"),
    [("lspe", bcrl.LSPE), ("bellman_complete", bcrl.BellmanComplete), ("anchored", bcrl.Anchored)],
)
def test_every_option_is_named_with_the_default_it_has(page, kind):
    assert {field.name for field in dataclasses.fields(kind)} <= named(f"methods/{page}.md")
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", (DOCS / f"methods/{page}.md").read_text(), re.MULTILINE)
    defaults = {field.name: field.default for field in dataclasses.fields(kind)}
    for name, said in rows:
        default = defaults.get(name, dataclasses.MISSING)
        if default is not dataclasses.MISSING:
            assert said.strip('` "') == ("none" if default is None else str(default)), name
    assert sum(name in defaults for name, _ in rows) >= 3


def test_every_logged_number_is_explained(estimates):
    lspe, learned = named("methods/lspe.md"), named("methods/bellman_complete.md")
    budget = named("verdict.md")
    for estimate in estimates.values():
        evidence = {name for name in estimate.stats if name.startswith("evidence/")}
        assert set(estimate.stats) - evidence <= lspe
        # The budget's numbers are any method's; those of a view have its name behind theirs.
        assert {name.removeprefix("evidence/").partition(" ")[0] for name in evidence} <= budget
        assert len(evidence) > 10
    for name in ("plain", "design"):
        for curve in estimates[name].curves:
            assert curve in lspe or curve.removeprefix("train/") in learned, curve
    assert set(estimates["random"].curves) <= lspe


def test_every_number_of_anchored_is_explained():
    world = lqr()
    method = bcrl.Anchored(bcrl.RandomFeatures(dim=20))
    estimate = bcrl.evaluate(world.dataset(20, 10, seed=0), world.target, discount=0.9, method=method)
    own = {name for name in estimate.stats if not name.startswith("evidence/")}  # the rest: docs/verdict.md
    assert own <= named("methods/anchored.md")


def test_every_method_is_in_the_table():
    rows = [line for line in (DOCS / "choosing.md").read_text().splitlines() if line.startswith("| `")]
    told = " ".join(rows)
    assert all(f"`{name}`" in told for name in SHORT)
    assert all(f"{name}(" in told for name in bcrl.ESTIMATORS | bcrl.REPRESENTATIONS)


@pytest.mark.parametrize(
    "page", ["best_dice", "flow_dice", "curl", "spr", "fqe", "doubly_robust", "importance", "model_based"]
)
def test_every_rival_says_where_it_differs_from_its_paper(page):
    """F24: our defaults stood in tables under the names of published methods."""
    lines = (DOCS / f"methods/{page}.md").read_text().splitlines()
    assert any(line.startswith("Differs from its paper in") for line in lines)


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda p: str(p.relative_to(DOCS)))
def test_rows_of_a_table_have_the_columns_of_its_head(page):
    tables = re.findall(r"(?:^\|.*\n)+", page.read_text(), flags=re.MULTILINE)
    for table in tables:
        assert len({row.count("|") - row.count("\\|") for row in table.splitlines()}) == 1, table


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda p: str(p.relative_to(DOCS)))
def test_links_between_pages_lead_somewhere(page):
    for place in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / place).exists(), place
