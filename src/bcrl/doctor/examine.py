"""Is this data fit for evaluation, and does the policy fit the data? `examine` answers before any training.

Everything that is not an image is read whole; of images and of the policy's answers a few hundred, evenly
spaced, so that 100k frames on disk take seconds.
"""

from collections.abc import Mapping
from dataclasses import replace

from bcrl.data.dataset import Dataset
from bcrl.data.storage.structure import layout_errors
from bcrl.doctor.episodes import examine_episodes
from bcrl.doctor.findings import Finding
from bcrl.doctor.policy import examine_policy
from bcrl.doctor.rows import examine_rows
from bcrl.policies.policy import AnyPolicy, UnresolvedPolicy

_ORDER = {"error": 0, "warning": 1, "note": 2}


Policies = AnyPolicy | UnresolvedPolicy | Mapping[str, AnyPolicy | UnresolvedPolicy]


def examine(dataset: Dataset, policies: Policies | None = None) -> list[Finding]:
    """Every finding, worst first.

    Args:
        dataset: the logged data.
        policies: also look at what this policy, or each of these by name, does on the data.
    """
    broken = [
        Finding(
            "error", what, "the whole array", "Build the dataset with Dataset.from_arrays or load_dataset."
        )
        for what in layout_errors(dataset)
    ]
    if broken:
        return broken
    found = [*examine_rows(dataset), *examine_episodes(dataset)]
    if policies is not None and not any(finding.severity == "error" for finding in found):
        found += _examine_policies(dataset, policies)
    return sorted(found, key=lambda finding: _ORDER[finding.severity])


def _examine_policies(dataset: Dataset, policies: Policies) -> list[Finding]:
    if not isinstance(policies, Mapping):
        return list(examine_policy(dataset, policies))
    return [
        replace(finding, where=f"{name}: {finding.where}")
        for name, policy in policies.items()
        for finding in examine_policy(dataset, policy)
    ]
