"""Integration over the posterior of the parameters: one file per integrator."""

from bayescal.inference._class_prior import Known, make_class_prior, read_class_prior
from bayescal.inference.engine.condition import Setup, Summary
from bayescal.inference.engine.diagnostics import pareto_k
from bayescal.inference.engine.layout import BatchLayout
from bayescal.inference.engine.share import condition_all, padded_batch
from bayescal.inference.integrators.base import Fields, Integrator, Problem
from bayescal.inference.integrators.closed_form import ClosedForm
from bayescal.inference.integrators.importance import Importance
from bayescal.inference.integrators.montecarlo import MonteCarlo
from bayescal.inference.integrators.nuts import Nuts
from bayescal.inference.integrators.quadrature.rule import Quadrature
from bayescal.inference.integrators.sobol import Sobol

#: Every integrator by name; a new one is one file and one entry here.
INTEGRATORS: dict[str, Integrator] = {
    integrator.name: integrator
    for integrator in (MonteCarlo(), Sobol(), Importance(), Quadrature(), Nuts(), ClosedForm())
}

__all__ = [
    "INTEGRATORS",
    "BatchLayout",
    "ClosedForm",
    "Fields",
    "Importance",
    "Integrator",
    "Known",
    "MonteCarlo",
    "Nuts",
    "Problem",
    "Quadrature",
    "Setup",
    "Sobol",
    "Summary",
    "condition_all",
    "make_class_prior",
    "padded_batch",
    "pareto_k",
    "read_class_prior",
]
