"""The paper in small by one command: published methods, mixture, ablations of Algorithm 3, figures marked as
testing no claim (F25, F27).
"""

import dataclasses
import json
from pathlib import Path

import pytest

from bcrl.cli import main
from bcrl.errors import BadInput
from bcrl.methods import parse_method
from bcrl_bench.experiments import profile as profiles
from bcrl_bench.experiments.baseline import method_of, with_updates
from bcrl_bench.experiments.figures import NO_CLAIM, write_figures
from bcrl_bench.experiments.profile import load_profile
from bcrl_bench.experiments.records import Records
from bcrl_bench.experiments.tables import table_page


def fields_that_differ(one, other):
    return {f.name for f in dataclasses.fields(one) if getattr(one, f.name) != getattr(other, f.name)}


def test_the_ablations_are_those_of_algorithm_3_itself():
    """They were of our loss: closed-form M, features of length 1, lambda 0.1."""
    methods = {
        name: parse_method(text) for name, text in load_profile("paper").methods.items() if "bcrl" in name
    }
    whole = methods["bcrl"].representation
    assert whole.published and whole.inner.target_tau == 0.005
    assert fields_that_differ(methods["bcrl-no-design"].representation, whole) == {"design"}
    alone = methods["bcrl-design-only"].representation
    assert fields_that_differ(alone, whole) == {"completeness_weight", "reward_weight"}
    assert (alone.completeness_weight, alone.reward_weight, alone.design) == (0.0, 0.0, whole.design)
    ran = {(cell.dataset, cell.policy, cell.method) for cell in load_profile("paper").experiments()}
    assert {("025", "100", name) for name in ("bcrl-no-design", "bcrl-design-only")} <= ran  # F25
    # On data with the target's own episodes "we omit the design regularization".
    assert ("mixture", "100", "bcrl-mixture") in ran
    assert methods["bcrl-mixture"].representation == methods["bcrl-no-design"].representation


def test_small_has_every_method_as_published_but_for_the_number_of_updates():
    full, small = load_profile("paper"), load_profile("paper", small=True)
    assert {cell.method for cell in full.experiments()} == {cell.method for cell in small.experiments()}
    assert {cell.dataset for cell in small.experiments()} == {"025", "mixture"}
    assert len({cell.policy for cell in small.experiments()}) >= 3  # so that there is a ranking
    assert {cell.seed for cell in small.experiments()} == {0} and small.pixels == full.pixels == 84
    for name in set(full.methods) - {"mean", "model"}:
        published = parse_method(full.methods[name])
        assert method_of(small, name) == with_updates(published, 2)
        assert with_updates(published, 2) != published or name == "random"
    assert not [part for part in full.parts if part.only_small]
    cells = [cell for cell in small.experiments() if cell.method == "bcrl"]
    assert small.settings(cells[0])["updates"] == 2 and "updates" not in full.settings(cells[0])
    with pytest.raises(BadInput, match="has no small form"):
        load_profile("states", small=True)


def test_what_came_of_few_updates_says_that_it_tests_no_claim(tmp_path, make_record):
    records = [
        make_record(method=method, settings={"updates": 2}, timings={"core": 5.0, "wall": 6.0})
        for method in ("bcrl", "bcrl-no-design", "bcrl-design-only")
    ]
    made = write_figures(records, {}, tmp_path)
    assert made["ablation-design"] and made["ablation-completeness"]  # bcrl is the whole here
    page = table_page("paper-small", records, {})
    assert "It runs; it tests no claim" in page and "15 core-seconds" in page and "18 seconds" in page
    assert "no claim" not in table_page("paper", [make_record()], {})
    assert NO_CLAIM == "it runs; it tests no claim"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_still_smaller_form_runs_end_to_end(tmp_path):
    """Algorithm 3 and its ablations at 84x84 on one episode, one update: records, figures, table."""
    text = (profiles.PROFILES / "paper.toml").read_text(encoding="utf-8")
    text = text.replace("episodes = 2\n", "episodes = 1\n").replace("updates = 2\n", "updates = 1\n")
    path = tmp_path / "tiny.toml"
    path.write_text(text, encoding="utf-8")
    asked = ["--tasks", "cheetah-run", "--methods", "bcrl", "bcrl-no-design", "bcrl-design-only", "mean"]
    places = ["--results", str(tmp_path), "--cache", str(tmp_path / "cache")]
    cells = [f"cheetah-run/025/100/{name}-0" for name in asked[3:]]
    words = ["benchmark", "run", str(path), "--small", *asked, *places, "--cells", *cells]
    assert main(words) == 0
    records = Records(tmp_path / "tiny-small").all()
    assert len(records) == 4 and all(record["settings"]["updates"] == 1 for record in records)
    assert {json.dumps(record["settings"]["pixels"]) for record in records} == {"84"}
    assert main(["benchmark", "figures", "tiny-small", "--results", str(tmp_path)]) == 0
    for name in ("ablation-design", "ablation-completeness", "lspe-curves", "beyond-starts", "errors"):
        assert (tmp_path / "tiny-small" / "figures" / f"{name}.png").is_file()
    assert NO_CLAIM in (tmp_path / "tiny-small" / "table.md").read_text().lower()
    assert not Path("results/tiny-small").exists()
