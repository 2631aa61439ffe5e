"""An adapter that makes metrics usable as those of torchmetrics."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any, Literal
from zlib import crc32

import numpy as np

from bayescal._core.arrays import AnyArray, UserData
from bayescal._core.execution.precision import float64
from bayescal._core.lazy import jax
from bayescal.data.blocks.predictions import as_predictions
from bayescal.data.checks import check_choice, check_count
from bayescal.data.language_models.tokens import tokens
from bayescal.data.predictions import Reading
from bayescal.data.weights import check_batch_weights
from bayescal.metrics.registry import METRICS, OTHER_NAMES, find_metric, reading_for
from bayescal.metrics.sums import SumMetric, collect, collect_on_device

_OUR_ARGUMENTS = ("probs", "y", "weights", "classes", "inputs", "outcomes")


@cache
def make() -> type:
    """Make the class, on first use."""
    import torch  # type: ignore[import-not-found]
    from torchmetrics import Metric  # type: ignore[import-not-found]
    from torchmetrics.utilities import dim_zero_cat  # type: ignore[import-not-found]

    class TorchMetric(Metric):
        """Adapter of a metric to torchmetrics.

        Metrics that are functions of sums over rows store only these sums, in float64, for any
        number of rows; processes and merged metrics add them. Other metrics (bins of equal mass,
        ``skce``, ``canonical_ece``) store all rows, which are concatenated. In both cases the
        result equals that of the function of the same name for all rows at once.

        Parameters
        ----------
        name : str
            A metric that compares probabilities with labels: "ece", "log_loss", ...
        classes : int, optional
            Number of columns of ``preds``, for classes or many labels; None for P(y = 1).
        inputs : {"probs", "logits"}
            What ``preds`` contain; nothing is guessed from values.
        ignore_index : int, optional
            Label of targets that do not count, such as -100. Not for many labels, of which a row
            counts as a whole: pass a weight of zero for rows to leave out.
        **options
            Options of the metric, such as ``bins``; others are passed to ``torchmetrics.Metric``.

        Notes
        -----
        Updates are computed on the host, except for probabilities on CUDA devices, of which only
        sums leave the device.
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
            if name in OTHER_NAMES:
                name, implied = find_metric(name)
                options = {**implied, **options}
            check_choice(name, "name", tuple(key for key, e in METRICS.items() if e.labels))
            entry = METRICS[name]
            allowed = set(inspect.signature(entry.function).parameters) - set(_OUR_ARGUMENTS)
            metric_options = {key: options.pop(key) for key in sorted(allowed & set(options))}
            super().__init__(**options)
            self.many = entry.multilabel
            if classes is not None:
                check_count(classes, "classes", 1 if self.many else 2)
            elif self.many:
                raise ValueError("classes must be the number of labels, got None")
            if self.many and ignore_index is not None:
                raise ValueError(
                    f"ignore_index must be None for {name}, of which a row counts as a whole, got "
                    f"{ignore_index}; pass a weight of zero for rows to leave out"
                )
            self.name, self.classes, self.options = name, classes, metric_options
            self.ignore_index = ignore_index
            reading = Reading(classes, inputs, multilabel=self.many, whole=False)
            self.reading = reading_for((name, metric_options), reading)
            columns = None if classes == 2 and not self.many else classes
            metric = None if entry.make is None else entry.make(columns, **metric_options)
            self.metric = metric if isinstance(metric, SumMetric) else None
            # A collection lets metrics share states that are equal after the first batch, if they
            # have the same names. Those of metrics with other options may differ after the second.
            configuration = repr(
                (name, classes, inputs, ignore_index, sorted(metric_options.items()))
            )
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
            """Whether larger values are better; None if zero is best and values have a sign."""
            entry = METRICS[self.name]
            return None if entry.signed else entry.best == "high"

        def update(self, preds: AnyArray, target: AnyArray, weights: UserData = None) -> None:
            """Add rows; a batch without rows, or only with weights of zero, adds nothing.

            Parameters
            ----------
            preds : tensor of shape (..., classes), or (...) without classes
                Probabilities or logits.
            target : tensor of shape (...), or of the same shape for many labels
                Labels, of any numeric type.
            weights : tensor of shape (...), optional
                Row weights.
            """
            preds, target = preds.detach(), torch.as_tensor(target)
            given = (preds,) if weights is None else (preds, torch.as_tensor(weights))
            columns = () if self.classes is None else (self.classes,)
            if not self.many:
                codes = target.long()
                target = codes if bool((codes == target).all()) else target
                given, target = tokens(given, target, ignore_index=self.ignore_index)
            elif preds.ndim > 2 and target.shape == preds.shape:
                rows, target = preds.flatten(0, -2), target.flatten(0, -2)
                given = rows, *(part.reshape(-1) for part in given[1:])
            if tuple(given[0].shape[1:]) != columns:
                wanted = "(...)" if self.classes is None else f"(..., {self.classes})"
                raise ValueError(f"preds must have shape {wanted}, got {tuple(preds.shape)}")
            if not len(target):
                return
            rows, weights = given[0], given[1] if len(given) > 1 else None
            checked = as_predictions(rows, target, weights, self.reading, on_device=True)
            if not len(checked.y):
                return
            check_batch_weights(checked.weights)
            if self.metric is None:
                ones = torch.ones(len(rows), device=rows.device) if weights is None else weights
                for state, value in zip(self.states, (rows, target, ones), strict=True):
                    getattr(self, state).append(value)
            elif isinstance(checked.probs, jax.Array):
                with float64():
                    self._add(np.asarray(collect_on_device(self.metric, checked)))
            else:
                self._add(collect(self.metric, checked))

        def _add(self, sums: np.ndarray) -> None:
            state = getattr(self, self.states[0])
            state += torch.as_tensor(sums, device=state.device)

        def compute(self) -> Any:
            """Compute the metric of all rows, a tensor of float64."""
            states = [getattr(self, state) for state in self.states]
            if not (states[0].any() if self.metric is not None else len(states[0])):
                raise ValueError("a metric must have cases before it is computed: call update")
            if self.metric is not None:
                value = float(self.metric.value(states[0].cpu().numpy(), np))
            else:
                probs, y, weights = (dim_zero_cat(state) for state in states)
                how = {"weights": weights, "inputs": self.reading.inputs, **self.options}
                value = METRICS[self.name].function(probs, y, classes=self.classes, **how)
            return torch.tensor(value, dtype=torch.float64, device=self.device)

        def extra_repr(self) -> str:
            """Describe the options for the representation of modules."""
            return ", ".join([repr(self.name), *(f"{k}={v!r}" for k, v in self.options.items())])

    # Pretend that the class is defined at the top of the module, so that it can be pickled.
    TorchMetric.__qualname__ = "TorchMetric"
    TorchMetric.__module__ = "bayescal.adapters"
    return TorchMetric
