"""Metrics as those of torchmetrics."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any, Literal
from zlib import crc32

import jax
import numpy as np

from bayescal._core.precision import float64
from bayescal.data.blocks.predictions import as_predictions
from bayescal.data.checks import check_choice, check_count
from bayescal.data.predictions import Reading
from bayescal.data.tokens import tokens
from bayescal.metrics.registry import METRICS
from bayescal.metrics.sums import SumMetric, collect, collect_there

_OWN = ("probs", "y", "weights", "classes", "inputs", "outcomes")


@cache
def make() -> type:
    """Return the class, which is made when it is first asked for."""
    import torch  # type: ignore[import-not-found]
    from torchmetrics import Metric  # type: ignore[import-not-found]
    from torchmetrics.utilities import dim_zero_cat  # type: ignore[import-not-found]

    class TorchMetric(Metric):
        """A metric of this package as one of torchmetrics.

        What is a function of sums over cases keeps these, in float64, whatever the number of
        cases; processes and merged metrics add them. The others (bins of equal mass, ``skce``,
        ``canonical_ece``) keep all cases, which are concatenated. Either way the result is that of
        the function of the same name for all cases at once.

        Parameters
        ----------
        name : str
            A metric that compares probabilities with labels: "ece", "log_loss", ...
        classes : int, optional
            Number of columns of ``preds``, of classes or of many labels; None for P(y = 1).
        inputs : {"probs", "logits"}
            What ``preds`` are: nothing is guessed from values.
        ignore_index : int, optional
            Label of targets that do not count, as -100.
        **options
            Of the metric, as ``bins``; all others go to ``torchmetrics.Metric``.

        Notes
        -----
        Each update goes to the host but for CUDA's probabilities, of which only sums leave it.
        """

        is_differentiable = False
        full_state_update = False

        def __init__(
            self,
            name: str,
            classes: int | None = None,
            *,
            inputs: Literal["probs", "logits"] = "probs",
            ignore_index: int | None = None,
            **options: Any,
        ) -> None:
            check_choice(name, "name", tuple(key for key, e in METRICS.items() if e.labels))
            entry = METRICS[name]
            allowed = set(inspect.signature(entry.function).parameters) - set(_OWN)
            own = {key: options.pop(key) for key in sorted(allowed & set(options))}
            super().__init__(**options)
            self.many = entry.shapes == ("multilabel",)
            if classes is not None:
                check_count(classes, "classes", 1 if self.many else 2)
            elif self.many:
                raise ValueError("classes must be the number of labels, got None")
            self.name, self.classes, self.options = name, classes, own
            self.ignore_index = ignore_index
            self.reading = Reading(classes, inputs, multilabel=self.many, whole=False)
            metric = None if entry.make is None else entry.make(classes, **own)
            self.metric = metric if isinstance(metric, SumMetric) else None
            # A collection lets metrics share states that are equal after the first batch, if they
            # have the same names: those of other options may differ after the second.
            configuration = repr((name, classes, inputs, ignore_index, sorted(own.items())))
            kinds = ("preds", "target", "weights") if self.metric is None else ("sums",)
            self.states = [f"{kind}_{crc32(configuration.encode()):08x}" for kind in kinds]
            for state in self.states:
                if self.metric is None:
                    self.add_state(state, [], dist_reduce_fx="cat")
                else:
                    zeros = torch.zeros(self.metric.rows, self.metric.cells, dtype=torch.float64)
                    self.add_state(state, zeros, dist_reduce_fx="sum")

        @property
        def higher_is_better(self) -> bool | None:  # pyright: ignore
            """Whether larger values are better; None where zero is best, of both signs."""
            entry = METRICS[self.name]
            return None if entry.signed else entry.best == "high"

        def update(self, preds: Any, target: Any, weights: Any = None) -> None:
            """Add cases; a batch without rows, or with weights of zero only, adds nothing.

            Parameters
            ----------
            preds : tensor of shape (..., classes), or (...) without classes
            target : tensor of shape (...), or of the same shape for many labels
            weights : tensor of shape (...), optional
            """
            preds = preds.detach()
            given = (preds,) if weights is None else (preds, torch.as_tensor(weights))
            columns = () if self.classes is None else (self.classes,)
            if not self.many:
                given, target = tokens(given, target, ignore_index=self.ignore_index)
            if tuple(given[0].shape[1:]) != columns:
                wanted = "(...)" if self.classes is None else f"(..., {self.classes})"
                raise ValueError(f"preds must have shape {wanted}, got {tuple(preds.shape)}")
            if not len(target):
                return
            rows, weights = given[0], given[1] if len(given) > 1 else None
            checked = as_predictions(rows, target, weights, self.reading, on_device=True)
            if not len(checked.y):
                return
            if self.metric is None:
                ones = torch.ones(len(rows), device=rows.device) if weights is None else weights
                for state, value in zip(self.states, (rows, target, ones), strict=True):
                    getattr(self, state).append(value)
            elif isinstance(checked.probs, jax.Array):
                with float64():
                    self._add(np.asarray(collect_there(self.metric, checked)))
            else:
                self._add(collect(self.metric, checked))

        def _add(self, sums: np.ndarray) -> None:
            own = getattr(self, self.states[0])
            own += torch.as_tensor(sums, device=own.device)

        def compute(self) -> Any:
            """Return the metric of all cases, a tensor of float64."""
            states = [getattr(self, state) for state in self.states]
            if not (states[0].any() if self.metric is not None else len(states[0])):
                raise ValueError("a metric must have cases before it is computed: call update")
            if self.metric is not None:
                found = float(self.metric.value(states[0].cpu().numpy(), np))
            else:
                probs, y, weights = (dim_zero_cat(own) for own in states)
                how = {"weights": weights, "inputs": self.reading.inputs, **self.options}
                found = METRICS[self.name].function(probs, y, classes=self.classes, **how)
            return torch.tensor(found, dtype=torch.float64, device=self.device)

        def extra_repr(self) -> str:
            """Return the options, as modules show them."""
            return ", ".join([repr(self.name), *(f"{k}={v!r}" for k, v in self.options.items())])

    # As if it stood at the top of the module: so it can be pickled.
    TorchMetric.__qualname__ = "TorchMetric"
    TorchMetric.__module__ = "bayescal.adapters"
    return TorchMetric
