"""Is this data fit for evaluation, and does the policy fit the data? `examine` answers before any training.

Everything that is not an image is read whole; of images and of the policy's answers a few hundred, evenly spaced, so
that 100k frames on disk take seconds.
"""

from bcrl.data.dataset import Dataset
from bcrl.data.storage.structure import misfits
from bcrl.doctor.episodes import examine_episodes
from bcrl.doctor.findings import Finding
from bcrl.doctor.policy import examine_policy
from bcrl.doctor.rows import examine_rows
from bcrl.policies.policy import AnyPolicy, UnresolvedPolicy

_ORDER = {"error": 0, "warning": 1, "note": 2}

__all__ = ["Finding", "examine"]


def examine(dataset: Dataset, policy: AnyPolicy | UnresolvedPolicy | None = None) -> list[Finding]:
    """Every finding, worst first.

    Args:
        dataset: the logged data.
        policy: also look at what this policy does on the data.
    """
    broken = [
        Finding(
            "error", what, "the whole array", "Build the dataset with Dataset.from_arrays or load_dataset."
        )
        for what in misfits(dataset)
    ]
    if broken:
        return broken
    found = [*examine_rows(dataset), *examine_episodes(dataset)]
    if policy is not None and not any(finding.severity == "error" for finding in found):
        found += examine_policy(dataset, policy)
    return sorted(found, key=lambda finding: _ORDER[finding.severity])
