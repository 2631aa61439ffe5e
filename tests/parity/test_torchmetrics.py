"""Metrics with the interface of torchmetrics, against the functions and its own metrics."""

from __future__ import annotations

import copy
import math
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bayescal as bc
from bayescal.metrics.registry import METRICS

#: Other libraries raise warnings.
pytestmark = [pytest.mark.parity("torch", "torchmetrics"), pytest.mark.filterwarnings("ignore")]

NAMES = [name for name, e in METRICS.items() if e.labels and e.shapes != ("multilabel",)]
#: Metrics that are not sums over rows.
WHOLE = ("debiased_ece", "canonical_ece", "skce", "ecce")


def make_logits(n: int = 900, k: int = 5) -> tuple[Any, Any, Any]:
    """Return logits, labels and weights."""
    import torch

    rng = np.random.default_rng(0)
    z = 3 * rng.normal(size=(n, k))
    y = np.argmax(z / 2 + rng.gumbel(size=z.shape), axis=1)
    return torch.as_tensor(z), torch.as_tensor(y), torch.as_tensor(rng.integers(0, 3, n))


def update_in_parts(metric: Any, *data: Any, parts: int = 3) -> Any:
    step = len(data[0]) // parts
    for first in range(0, len(data[0]), step):
        metric.update(*(values[first : first + step] for values in data))
    return metric


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("columns", [None, 5])
def test_it_is_the_function(name: str, columns: int | None) -> None:
    from torch import nn

    from bayescal.adapters import TorchMetric

    z, y, w = make_logits()
    probs = z.softmax(dim=1)
    if columns is None:
        probs, y = z[:, 0].sigmoid(), (y == 0).long()
    function: Any = METRICS[name].function
    metric = TorchMetric(name, columns)
    assert float(update_in_parts(metric, probs, y).compute()) == pytest.approx(
        function(probs, y), rel=1e-9
    )
    assert not list(nn.Module.parameters(metric))
    metric.reset()
    result = float(update_in_parts(metric, probs, y, w).compute())
    assert result == pytest.approx(function(probs, y, weights=w), rel=1e-9)
    # The size of sums does not grow with the number of rows.
    assert all((inner is not None) == (name not in WHOLE) for inner in (metric.metric,))
    again = pickle.loads(pickle.dumps(metric))
    assert float(again.compute()) == float(copy.deepcopy(metric).compute()) == result
    entry = METRICS[name]
    assert metric.higher_is_better == {"accuracy": True, "loss_gap": None}.get(name, False), entry


def test_log_loss_of_two_columns_in_single_precision() -> None:
    import torch

    from bayescal.adapters import TorchMetric

    rows, y = torch.tensor([[1e-9, 1.0], [0.3, 0.7], [1.0, 1e-12]]), torch.tensor([0, 1, 1])
    expected = -np.log(rows.double().numpy()[range(3), y]).mean()
    metric = TorchMetric("log_loss", 2)
    assert float(update_in_parts(metric, rows, y).compute()) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("norm", "order"), [("l1", 1), ("l2", 2), ("max", math.inf)])
def test_beside_their_calibration_error(norm: str, order: float) -> None:
    from torchmetrics import MetricCollection
    from torchmetrics.classification import BinaryCalibrationError, MulticlassCalibrationError

    from bayescal.adapters import TorchMetric

    z, y, _ = make_logits()
    probs = z.float().softmax(dim=1)
    both = MetricCollection(
        {
            "ours": TorchMetric("ece", 5, bins=15, norm=order),
            "theirs": MulticlassCalibrationError(5, n_bins=15, norm=norm),
            "log_loss": TorchMetric("log_loss", 5),
        }
    )
    result = update_in_parts(both, probs, y).compute()
    assert float(result["ours"]) == pytest.approx(float(result["theirs"]), rel=1e-5)
    assert float(result["log_loss"]) == pytest.approx(bc.metrics.log_loss(probs, y), rel=1e-12)
    one = MetricCollection(
        {
            "ours": TorchMetric("ece", bins=10, norm=order),
            "theirs": BinaryCalibrationError(n_bins=10, norm=norm),
        }
    )
    result = update_in_parts(one, probs[:, 0], (y == 0).long()).compute()
    assert float(result["ours"]) == pytest.approx(float(result["theirs"]), rel=1e-5)


def test_metrics_of_a_collection_share_nothing_that_may_differ() -> None:
    """Check that metrics with equal first batches are not merged in a collection."""
    from torchmetrics import MetricCollection

    from bayescal.adapters import TorchMetric

    z, y, _ = make_logits()
    probs, late = z.softmax(dim=1), y.clone()
    late[600:700] = -100
    both = MetricCollection(
        {
            "all": TorchMetric("accuracy", 5),
            "some": TorchMetric("accuracy", 5, ignore_index=0),
        }
    )
    few = y.clamp(min=1)
    first, second = few[:300], y[300:]
    both.update(probs[:300], first)
    both.update(probs[300:], second)
    result, target = both.compute(), np.concatenate([first, second])
    right = probs.argmax(dim=1).numpy() == target
    assert float(result["all"]) == pytest.approx(right.mean())
    assert float(result["some"]) == pytest.approx(right[target != 0].mean())
    skipping = update_in_parts(TorchMetric("accuracy", 5, ignore_index=-100), probs, late)
    keep = late.numpy() != -100
    expected = (probs.argmax(dim=1).numpy() == y.numpy())[keep].mean()
    assert float(skipping.compute()) == pytest.approx(expected)


@pytest.mark.parametrize("options", [{}, {"binning": "equal_mass"}])
def test_merged_half_and_moved(options: dict[str, Any]) -> None:
    import torch

    from bayescal.adapters import TorchMetric

    z, y, _ = make_logits()
    probs = z.softmax(dim=1)
    first, second = (TorchMetric("ece", 5, **options) for _ in range(2))
    first.update(probs[:300], y[:300])
    second.update(probs[300:], y[300:])
    first.merge_state(second)
    expected = bc.metrics.ece(probs, y, **options)
    assert float(first.compute()) == pytest.approx(expected, rel=1e-9)
    half = TorchMetric("ece", 5, **options).half().to("cpu")
    for kind in (torch.float16, torch.bfloat16):
        half.reset()
        half.update(probs.to(kind).requires_grad_(), y)
        assert half.compute().dtype == torch.float64
        assert float(half.compute()) == pytest.approx(expected, abs=5e-3)
    # ``forward`` returns the value of a batch, and also adds it.
    batch = TorchMetric("ece", 5, **options)
    assert float(batch(probs[:300], y[:300])) == bc.metrics.ece(probs[:300], y[:300], **options)
    batch(probs[300:], y[300:])
    assert float(batch.compute()) == pytest.approx(expected, rel=1e-9)


def test_tokens_and_logits() -> None:
    from bayescal.adapters import TorchMetric

    z, y, w = make_logits()
    logits, labels = z.reshape(30, 30, 5), y.reshape(30, 30).clone()
    labels[:, 20:] = -100
    metric = update_in_parts(
        TorchMetric("log_loss", 5, inputs="logits", ignore_index=-100), logits, labels
    )
    rows, kept = bc.tokens(logits, labels)
    expected = bc.metrics.log_loss(rows, kept, inputs="logits")
    assert float(metric.compute()) == pytest.approx(expected, rel=1e-12)
    metric.reset()
    update_in_parts(metric, logits, labels, w.reshape(30, 30))
    weights = w.reshape(30, 30)[labels != -100]
    expected = bc.metrics.log_loss(rows, kept, inputs="logits", weights=weights)
    assert float(metric.compute()) == pytest.approx(expected, rel=1e-12)
    metric.update(logits[:1], labels[:1] * 0 - 100)  # padding only
    assert float(metric.compute()) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", ["log_loss", "skce"])
def test_batches_without_rows_or_of_zero_weight_add_nothing(name: str) -> None:
    preds, target, weights = make_logits(60)
    preds = preds.softmax(dim=1)
    metric = bc.adapters.TorchMetric(name, classes=5)
    metric.update(preds[:9], target[:9], 0 * weights[:9])
    metric.update(preds[:0], target[:0])
    with pytest.raises(ValueError, match="must have cases"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        metric.compute()
    metric.update(preds, target, weights)
    metric.update(preds[:9], target[:9], 0 * weights[:9])
    wanted = METRICS[name].function(preds, target, weights=weights)
    assert float(metric.compute()) == pytest.approx(wanted)


def test_many_labels() -> None:
    import torch
    from torchmetrics.classification import MultilabelHammingDistance

    from bayescal.adapters import TorchMetric

    rng = np.random.default_rng(0)
    probs = torch.as_tensor(rng.random((300, 4)))
    y = torch.as_tensor(rng.integers(0, 2, (300, 4)))
    result = float(update_in_parts(TorchMetric("hamming_loss", 4), probs, y).compute())
    assert result == pytest.approx(
        float(update_in_parts(MultilabelHammingDistance(4), probs, y).compute())
    )
    result = float(update_in_parts(TorchMetric("multilabel_ece", 4, bins=5), probs, y).compute())
    assert result == pytest.approx(bc.metrics.multilabel_ece(probs, y, bins=5), rel=1e-9)


@pytest.mark.parametrize("kind", ["bool", "float32", "bfloat16", "uint8"])
def test_labels_of_any_type(kind: str) -> None:
    import torch

    probs, y = torch.tensor([0.2, 0.7, 0.9, 0.4]), torch.tensor([0, 1, 1, 1])
    for name in ("ece", "debiased_ece"):
        metric = bc.adapters.TorchMetric(name)
        metric.update(probs, y.to(getattr(torch, kind)))
        assert float(metric.compute()) == METRICS[name].function(probs, y)


def test_many_labels_of_sequences() -> None:
    import torch

    generator = torch.Generator().manual_seed(0)
    probs = torch.rand(2, 5, 3, generator=generator)
    y, weights = torch.bernoulli(probs, generator=generator), torch.tensor([[1.0] * 5, [2.0] * 5])
    metric = bc.adapters.TorchMetric("multilabel_ece", 3)
    metric.update(probs, y, weights)
    expected = bc.metrics.multilabel_ece(
        probs.reshape(10, 3), y.reshape(10, 3), weights=weights.reshape(10)
    )
    assert float(metric.compute()) == pytest.approx(expected, abs=1e-12)


def test_errors() -> None:
    from bayescal.adapters import TorchMetric

    z, y, _ = make_logits()
    probs = z.softmax(dim=1)
    with pytest.raises(ValueError, match="name must be"):
        TorchMetric("corp")
    with pytest.raises(ValueError, match="Unexpected keyword arguments: `bin`"):
        TorchMetric("ece", bin=3)
    with pytest.raises(ValueError, match="classes must be"):
        TorchMetric("hamming_loss")
    with pytest.raises(ValueError, match="ignore_index must be None for multilabel_ece"):
        TorchMetric("multilabel_ece", 3, ignore_index=-1)
    with pytest.raises(ValueError, match=r"preds must have shape \(..., 4\), got \(900, 5\)"):
        TorchMetric("ece", 4).update(probs, y)
    with pytest.raises(ValueError, match=r"preds must have shape \(\.\.\.\), got \(900, 5\)"):
        TorchMetric("ece").update(probs, y)
    with pytest.raises(ValueError, match="probs must lie in"):
        TorchMetric("ece", 5).update(z, y)
    for name in ("ece", "skce"):
        with pytest.raises(ValueError, match="must have cases before it is computed"):
            TorchMetric(name, 5).compute()


def _work(rank: int, file: str, result: Any) -> None:
    import torch.distributed as dist

    from bayescal.adapters import TorchMetric

    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    z, y, _ = make_logits()
    # The second process has more rows.
    rows = slice(0, 300) if rank == 0 else slice(300, None)
    probs = z.softmax(dim=1)
    metrics = [TorchMetric("ece", 5), TorchMetric("ece", 5, binning="equal_mass")]
    for metric in metrics:
        metric.update(probs[rows], y[rows])
    result.put((rank, [float(metric.compute()) for metric in metrics]))
    dist.destroy_process_group()


@pytest.mark.slow
def test_processes(tmp_path: Path) -> None:
    import torch.multiprocessing as multiprocessing

    z, y, _ = make_logits()
    probs = z.softmax(dim=1)
    expected = [bc.metrics.ece(probs, y), bc.metrics.ece(probs, y, binning="equal_mass")]
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    workers = [context.Process(target=_work, args=(r, str(tmp_path / "f"), queue)) for r in (0, 1)]
    for worker in workers:
        worker.start()
    result = dict(queue.get(timeout=200) for _ in workers)
    for worker in workers:
        worker.join(60)
    for rank in (0, 1):
        np.testing.assert_allclose(result[rank], expected, rtol=1e-9)


def test_log_losses_that_are_not_clipped() -> None:
    import torch

    z, y = torch.tensor([700.0, -3.0, 50.0], dtype=torch.float64), torch.tensor([0, 1, 0])
    metric = bc.adapters.TorchMetric("log_loss", inputs="logits", eps=0.0)
    metric.update(z, y)
    expected = torch.nn.functional.binary_cross_entropy_with_logits(z, y.double())
    assert metric.compute() == pytest.approx(float(expected), rel=1e-12)
