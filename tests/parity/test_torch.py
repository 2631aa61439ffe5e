"""PyTorch tensors in metrics, calibrators and modules, against PyTorch's own functions."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import numpy as np
import pytest

import bayescal as bc
from bayescal.metrics.registry import METRICS

pytestmark = pytest.mark.parity("torch")

NAMES = [name for name, e in METRICS.items() if e.labels and e.shapes != ("multilabel",)]


def make_logits(n: int = 400, k: int = 4) -> tuple[Any, Any]:
    """Return logits that are over-confident by a factor of two, with labels."""
    import torch

    rng = np.random.default_rng(0)
    z = 3 * rng.normal(size=(n, k))
    y = np.argmax(z / 2 + rng.gumbel(size=z.shape), axis=1)
    return torch.as_tensor(z, dtype=torch.float32), torch.as_tensor(y)


def make_tokens() -> tuple[Any, Any, Any]:
    """Return logits (20, 20, 4), labels (some of them -100), and a mask."""
    import torch

    z, y = make_logits()
    logits, labels = z.reshape(20, 20, 4), y.reshape(20, 20).clone()
    mask = torch.arange(20) < torch.arange(1, 21)[:, None]
    labels[:, 3] = -100
    return logits, labels, mask.long()


@pytest.mark.parametrize("name", NAMES)
def test_metrics_of_tensors(name: str) -> None:
    """Check tensors that require gradients, in any precision."""
    import torch

    z, y = make_logits()
    function: Any = METRICS[name].function
    for kind in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        probs = z.to(kind).requires_grad_().softmax(dim=1)
        expected = (
            function(probs.detach().double().numpy(), y.numpy()) if kind.itemsize > 2 else None
        )
        assert probs.requires_grad
        result = function(probs, y)
        assert isinstance(result, float)
        if expected is not None:
            assert result == pytest.approx(expected, abs=1e-12)
        else:  # the tensor's numbers, whose rows sum to one up to rounding
            held = probs.detach().double()
            held = (held / held.sum(dim=1, keepdim=True)).numpy()
            # In half precision, numbers next to a border fall on it.
            tolerance = 1e-2 if name == "canonical_ece" else 5e-3
            assert result == pytest.approx(function(held, y.numpy()), abs=tolerance)


@pytest.mark.parametrize("shift", [False, True])
def test_tokens_are_those_of_cross_entropy(shift: bool) -> None:
    import torch
    from torch.nn.functional import cross_entropy

    logits, labels, mask = make_tokens()
    rows, y = bc.tokens(logits, labels, mask, shift=shift)
    assert isinstance(rows, torch.Tensor) and isinstance(y, torch.Tensor)
    masked = labels.masked_fill(mask == 0, -100)
    # The shift of the loss of causal language models.
    scores, target = (logits[:, :-1], masked[:, 1:]) if shift else (logits, masked)
    expected = cross_entropy(scores.double().flatten(0, 1), target.flatten(), ignore_index=-100)
    result = bc.metrics.log_loss(rows, y, inputs="logits")
    assert result == pytest.approx(float(expected), rel=1e-12)
    everything = bc.tokens(logits, labels.abs() % 4)[0]
    assert everything.data_ptr() == logits.data_ptr()


def test_a_temperature_of_tokens_is_that_of_their_minimizer() -> None:
    import torch
    from torch.nn.functional import cross_entropy

    logits, labels, mask = make_tokens()
    fitted = bc.Temperature(inputs="logits").fit(*bc.tokens(logits, labels, mask))
    target = labels.masked_fill(mask == 0, -100).flatten()
    inverse = torch.ones(1, dtype=torch.float64, requires_grad=True)
    search = torch.optim.LBFGS([inverse], max_iter=100, tolerance_grad=1e-12, tolerance_change=0)

    def loss() -> Any:
        search.zero_grad()
        value = cross_entropy(inverse * logits.double().flatten(0, 1), target, ignore_index=-100)
        value.backward()
        return value

    search.step(loss)
    assert fitted.temperature_ == pytest.approx(1 / float(inverse.detach()), rel=1e-6)
    result = fitted.as_function()(logits)
    assert result.shape == logits.shape and result.dtype == logits.dtype
    expected = (inverse.detach() * logits.double()).softmax(dim=-1)
    np.testing.assert_allclose(result, expected, atol=1e-6)


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_a_classifier_may_return_tensors_of_any_precision_that_require_gradients(kind: str) -> None:
    import torch
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.frozen import FrozenEstimator

    class Network(ClassifierMixin, BaseEstimator):
        classes_ = np.arange(4)

        def fit(self, X: Any, y: Any) -> Any:
            return self

        def decision_function(self, X: Any) -> Any:
            return torch.as_tensor(X).to(getattr(torch, kind)).requires_grad_()

        def predict_proba(self, X: Any) -> Any:
            return self.decision_function(X).softmax(dim=1)

    z, y = (tensor.numpy() for tensor in make_logits())
    for inputs in ("logits", "probs"):
        calibrator = bc.Temperature(inputs=inputs)
        network = FrozenEstimator(Network())
        model = bc.CalibratedClassifier(network, calibrator).fit(z, y)
        scores = network.decision_function(z) if inputs == "logits" else network.predict_proba(z)
        expected = calibrator.fit(scores, y).predict_proba(scores)
        np.testing.assert_allclose(model.predict_proba(z), expected, atol=1e-9)


def test_batches_of_a_loader_are_blocks() -> None:
    import torch

    z, y = make_logits()
    rows = torch.utils.data.TensorDataset(z, y)
    blocks = bc.Blocks(torch.utils.data.DataLoader(rows, batch_size=90))
    fitted = bc.Temperature(inputs="logits").fit(blocks)
    whole = bc.Temperature(inputs="logits").fit(z, y)
    assert fitted.temperature_ == pytest.approx(whole.temperature_, rel=1e-6)
    error = bc.metrics.report(blocks, inputs="logits").intervals
    assert error and bc.metrics.log_loss(blocks, inputs="logits") == pytest.approx(
        bc.metrics.log_loss(z, y, inputs="logits")
    )


class TestModule:
    @pytest.mark.parametrize(
        "calibrator",
        [
            bc.Temperature(inputs="logits"),
            bc.Auto(inputs="logits"),
            bc.Forest(trees=5, inputs="logits"),
            bc.compose(bc.Temperature(inputs="logits"), bc.Vector()),
        ],
    )
    def test_it_is_the_function(self, calibrator: Any) -> None:
        import torch

        z, y = make_logits()
        fitted = calibrator.fit(z.double(), y)
        module = torch.nn.Sequential(torch.nn.Identity(), fitted.as_function().as_module())
        assert not list(module.parameters())
        expected = fitted.predict_proba(z.double())
        for version in (module, copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
            np.testing.assert_allclose(version(z).numpy(), expected, atol=1e-6)
        cube = z.reshape(20, 20, 4)
        np.testing.assert_allclose(module(cube).numpy().reshape(400, 4), expected, atol=1e-6)
        exact = fitted.as_function().as_module(torch.float64)
        np.testing.assert_allclose(exact(z.double()).numpy(), expected, atol=1e-12)

    def test_its_state_moves_with_it(self) -> None:
        import torch

        z, y = make_logits()
        first = bc.Vector(inputs="logits").fit(z, y)
        second = bc.Vector(inputs="logits").fit(2 * z[:200], y[:200])
        module, other = (calibrator.as_function().as_module() for calibrator in (first, second))
        state = module.state_dict()
        assert {"coef", "intercept"} <= set(state)
        file = io.BytesIO()
        torch.save(state, file)
        file.seek(0)
        other.load_state_dict(torch.load(file, weights_only=True))
        assert torch.equal(other(z), module(z))
        assert "PredictFunction(Vector)" in repr(module)
        away = module.to("meta")
        assert {buffer.device.type for buffer in away.buffers()} == {"meta"}
        assert away(z.to("meta")).shape == z.shape

    @pytest.mark.parametrize("kind", ["float32", "bfloat16"])
    def test_it_is_trained_further(self, kind: str) -> None:
        import torch

        z, y = make_logits()
        fitted = bc.Temperature(inputs="logits").fit(z.double(), y)
        module = fitted.as_function().as_module(trainable=True)
        assert [name for name, _ in module.named_parameters()] == ["theta"]
        # Logits of half the size have half the temperature.
        rows, labels = (0.5 * z).to(getattr(torch, kind)), torch.as_tensor(y).long()
        optimizer = torch.optim.LBFGS(
            module.parameters(), max_iter=50, line_search_fn="strong_wolfe"
        )

        def loss() -> Any:
            optimizer.zero_grad()
            value = torch.nn.functional.nll_loss(module(rows).float().log(), labels)
            value.backward()
            return value

        optimizer.step(loss)
        assert 1 / module.theta.item() == pytest.approx(fitted.temperature_ / 2, rel=0.02)
        state = module.state_dict()
        again = fitted.as_function().as_module(trainable=True)
        again.load_state_dict(state)
        assert torch.equal(again(rows), module(rows))

    def test_only_coefficients_are_trained(self) -> None:
        z, y = make_logits()
        module = bc.Auto(inputs="logits").fit(z, y).as_function().as_module(trainable=True)
        z = z[:5].clone()
        module(z)[:, 0].sum().backward()
        names = [name for name, _ in module.named_parameters()]
        assert names and all(name.startswith("0__theta_") for name in names)
        assert all(parameter.grad is not None for parameter in module.parameters())
        binary = np.linspace(0.1, 0.9, 400), np.arange(400) * 7 % 10 < np.arange(400) / 40
        bands = bc.Beta(inference="laplace", random_state=0).fit(*binary)
        for calibrator in (bc.Isotonic().fit(*binary), bands):
            with pytest.raises(ValueError, match="only maps with coefficients"):
                calibrator.as_function().as_module(trainable=True)

    def test_gradients_pass_through_it(self) -> None:
        z, y = make_logits()
        module = bc.Temperature(inputs="logits").fit(z, y).as_function().as_module()
        rows = z[:5].clone().requires_grad_()
        module(rows)[:, 0].sum().backward()
        assert rows.grad is not None and rows.grad.abs().sum() > 0


def test_reports_take_tensors_with_gradients_and_in_half_precision() -> None:
    import torch

    logits = torch.linspace(-3, 3, 60, requires_grad=True)
    y = torch.arange(60) % 3 > 0
    for probs in (torch.sigmoid(logits), torch.sigmoid(logits).to(torch.bfloat16)):
        report = bc.metrics.report({"raw": probs}, y, replicates=20)
        assert report.cases == 60


def test_losses_refuse_tensors_with_gradients() -> None:
    import torch

    logits = torch.zeros((4, 3), requires_grad=True)
    with pytest.raises(TypeError, match="requires gradients, which only flow through JAX"):
        bc.losses.cross_entropy(logits, torch.zeros(4, dtype=torch.long))
