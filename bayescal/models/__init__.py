"""Generative families and the priors over their parameters: one file per family."""

from bayescal.models._family import Family
from bayescal.models.beta import BetaPrior
from bayescal.models.dirichlet import DirichletPrior
from bayescal.models.gaussian import GaussianPrior
from bayescal.models.multivariate_gaussian import MultivariateGaussianPrior
from bayescal.models.normal_inverse_gamma import NormalInverseGammaPrior
from bayescal.models.prior import Prior

__all__ = [
    "BetaPrior",
    "DirichletPrior",
    "Family",
    "GaussianPrior",
    "MultivariateGaussianPrior",
    "NormalInverseGammaPrior",
    "Prior",
]
