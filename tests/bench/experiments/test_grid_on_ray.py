"""The grid on a Ray cluster of two nodes, one of which is killed in the middle: nothing lost, nothing
doubled.
"""

import functools

import pytest

from bcrl_bench.experiments.cell import run_cell
from bcrl_bench.experiments.grid import run_grid, state_of
from bcrl_bench.experiments.profile import load_profile
from bcrl_bench.experiments.records import Records
from bcrl_bench.studies.ray_nodes import ray_nodes


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_node_dies_in_the_middle_of_the_grid(tmp_path, tiny_profile):
    profile = load_profile(str(tiny_profile(["random", "mean"], seeds=4)))
    todo = profile.experiments()
    alone = functools.partial(run_cell, profile, cache=tmp_path / "cache")
    expected = alone(todo[0])["value"]
    written: list[str] = []

    def show(experiment, record, error) -> None:
        written.append(experiment.name)
        if len(written) == 3:  # both nodes have a cell in hand
            cluster.remove_node(nodes[1], allow_graceful=False)

    records = Records(tmp_path / "results")
    with ray_nodes(2) as (cluster, nodes):
        failures = run_grid(
            profile, records, todo, cache=tmp_path / "cache", ray_address=cluster.address, show=show
        )
    assert failures == 0
    assert sorted(written) == sorted(experiment.name for experiment in todo)
    assert len(written) == len(set(written)) == 16
    assert len(records.all()) == 16
    assert not state_of(profile, records, todo).todo
    assert records.finished()[todo[0]]["value"] == expected
