"""Configurations of the synthetic study, and the methods that are compared on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from bayescal.datasets import synthetic
from bayescal.models import GaussianPrior, Prior
from bayescal.sweeps._cells import Cell

#: Logistic regressions that do not know the prior.
UNINFORMED = "normal", "platt", "smoothed", "L1", "L2", "ibls", "cauchy_map"
#: Predictions that know the prior.
INFORMED = "preds", "coeffs", "map"
#: The ten methods of the thesis.
TEN = *UNINFORMED, *INFORMED
#: The exact posterior predictive, which is not in the thesis.
PREDICTIVE = "predictive"
#: Predictions that know the parameters; a method has a lower loss only by chance.
OPTIMAL = "optimal"
METHODS = *TEN, PREDICTIVE, OPTIMAL
METRICS = {"log_loss": ("log_loss", {}), "ece": ("ece", {"bins": 10})}

QUESTIONS = {
    1: "separation of the classes",
    2: "size of the training set",
    3: "share of class 1 in the training set",
}
#: Distributions of the two means, by the name of the prior.
MEANS = {
    "a": "U(-0.5, 0), U(0, 0.5)",
    "b": "U(-2.5, 0), U(0, 2.5)",
    "b+1": "U(-2.5, 0), U(0, 2.5) + 1",
    "c": "B(2, 5), B(5, 2) + 1",
    "d": "B(2, 5), B(5, 2) + 3",
    "e": "B(2, 5), B(5, 2) + 5",
}
#: Prior, size of the training set and share of class 1 of subplots (a), (b) ..., by question.
_TABLES: dict[int, tuple[tuple[str, int, float], ...]] = {
    1: tuple((name, 50, 0.5) for name in "abcde"),
    2: (
        *(("b", 50, 0.5), ("b", 100, 0.5), ("b+1", 500, 0.5)),
        *(("d", 50, 0.5), ("d", 100, 0.5), ("d", 500, 0.5)),
    ),
    3: (
        *(("b", 100, 0.5), ("b", 100, 0.7), ("b+1", 100, 0.9)),
        *(("d", 100, 0.5), ("d", 100, 0.7), ("d", 100, 0.9)),
    ),
}


class Configuration(NamedTuple):
    """A configuration of tables 5, 7 and 8 of the thesis.

    Attributes
    ----------
    question : int
    letter : str
        Letter of the subplot.
    prior : str
        A key of ``MEANS``.
    cell : Cell
    """

    question: int
    letter: str
    prior: str
    cell: Cell

    @property
    def name(self) -> str:
        """Question and letter, such as "1a"."""
        return f"{self.question}{self.letter}"

    @property
    def data(self) -> tuple[str, int, float]:
        """Key of the data; configurations with equal keys share their data."""
        return self.prior, self.cell.n_train, self.cell.class_ratio

    @property
    def describe(self) -> str:
        """Description of the prior, the size of the training set and the share of class 1."""
        return f"{MEANS[self.prior]}; n = {self.cell.n_train}, {self.cell.class_ratio:g} of class 1"


def priors() -> dict[str, Prior]:
    """Return the priors by the names in ``MEANS``."""
    from numpyro import distributions as dist

    moved = GaussianPrior(mu0=dist.Uniform(-2.5, 0.0), mu1=dist.Uniform(1.0, 3.5), sigma=1.0)
    return {**synthetic.experiments(), "b+1": moved}


def configurations(questions: Sequence[int], n_test: int) -> list[Configuration]:
    """Build the configurations of the questions, in the order of the questions.

    Some configurations belong to two questions: 1b is 2a, 1d is 2d, 2b is 3a and 2e is 3d. Equal
    cells have equal data.
    """
    known = priors()
    return [
        Configuration(
            question, letter, name, Cell(prior=known[name], n_train=n, class_ratio=r, n_test=n_test)
        )
        for question in questions
        for letter, (name, n, r) in zip("abcdef", _TABLES[question], strict=False)
    ]
