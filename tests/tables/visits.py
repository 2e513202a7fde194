"""A table of visits as a hospital has it: words, dates, gaps, rows in no order; a pipeline made from it."""

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

FEATURES = ["lactate", "pressure", "ward", "age"]


def visits(patients: int = 60, steps: int = 6, seed: int = 0, gaps: float = 0.15) -> pd.DataFrame:
    """Patients with no, a low or a high dose at each visit; it helps the sick and harms the well."""
    rng = np.random.default_rng(seed)
    rows = []
    for patient in range(patients):
        lactate, age = rng.normal(2.0, 1.0), rng.integers(30, 80)
        ward = rng.choice(["surgery", "medicine"])
        for step in range(steps):
            chances = np.array([0.4, 0.35, 0.25])
            dose = int(rng.choice(3, p=chances))
            relief = (lactate > 2.0) * dose * 0.5 - (lactate <= 2.0) * dose * 0.4 + 0.1 * rng.normal()
            rows.append(
                {
                    "patient": f"p{patient:03d}",
                    "date": pd.Timestamp("2026-01-01") + pd.Timedelta(days=7 * step + patient % 5),
                    "lactate": lactate if rng.random() > gaps else np.nan,
                    "pressure": 90.0 + 5.0 * rng.normal() - 4.0 * lactate,
                    "ward": ward if rng.random() > gaps / 3 else None,
                    "age": age,
                    "treatment": ["none", "low", "high"][dose],
                    "propensity": chances[dose],
                    "outcome": relief,
                }
            )
            lactate = 0.7 * lactate + 0.6 + 0.3 * rng.normal() - 0.1 * dose
    return pd.DataFrame(rows).sample(frac=1.0, random_state=1).reset_index(drop=True)


def pipeline(frame: pd.DataFrame):
    """A classifier of the treatment, on words and gaps as they are."""
    prepare = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), ["lactate", "pressure", "age"]),
        (make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder()), ["ward"]),
    )
    return make_pipeline(prepare, LogisticRegression()).fit(frame[FEATURES], frame["treatment"])
