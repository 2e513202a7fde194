"""Evaluations of every method give the values on record.

To the last bit on the machine that recorded them (`same_answers check results/same_answers.json` says so);
here to two per cent, since processors round differently and trainings drift apart.
"""

import json

import pytest

from bcrl_bench.repository import RESULTS
from bcrl_bench.studies.same_answers import answers, cases

KEPT = json.loads((RESULTS / "same_answers.json").read_text())["cases"]


def test_every_case_is_on_record():
    assert set(cases()) == set(KEPT) and len(KEPT) >= 20


@pytest.mark.slow
@pytest.mark.parametrize("name", KEPT)
def test_answers_are_those_on_record(name):
    found = answers(cases()[name])
    for policy, kept in KEPT[name].items():
        assert found[policy]["status"] == kept["status"]
        assert found[policy]["value"] == pytest.approx(kept["value"], rel=0.02, nan_ok=True)
        if kept["interval"] is not None:
            width = kept["interval"][1] - kept["interval"][0]
            assert found[policy]["interval"] == pytest.approx(kept["interval"], abs=0.1 * width)
