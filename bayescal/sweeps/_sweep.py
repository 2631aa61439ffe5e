"""``sweep``: methods compared on data sets drawn from known priors, for all settings."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from importlib.metadata import version
from os import PathLike
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from bayescal._core.arrays import ArrayLike
from bayescal._core.display.progress import Progress, showing
from bayescal._core.keywords import other_words
from bayescal._core.lazy import jax
from bayescal._core.random.keys import Seed, as_key
from bayescal.data.checks import check_count, check_names
from bayescal.metrics.registry import Choices, choose_metrics
from bayescal.models import Prior
from bayescal.sweeps._block import key_data, make_metric
from bayescal.sweeps._cells import Cell, digest_of
from bayescal.sweeps._methods import as_recipes
from bayescal.sweeps._run import Run

if TYPE_CHECKING:
    import xarray as xr

METHODS = "normal", "platt", "ibls", "cauchy_map", "preds", "predictive"
METRICS = {"log_loss": ("log_loss", {}), "ece": ("ece", {"bins": 10})}


@other_words
def sweep(
    priors: Prior | Sequence[Prior] | Mapping[str, Prior],
    *,
    n_train: int | Sequence[int] = 50,
    class_ratio: float | Sequence[float] = 0.5,
    methods: Sequence[object] | Mapping[str, object] = METHODS,
    num_datasets: int = 1000,
    n_test: int = 10_000,
    metrics: Sequence[str] | Choices = METRICS,
    key: Seed = 0,
    executor: Executor | None = None,
    store: str | PathLike[str] | None = None,
    progress: bool | Progress = True,
) -> xr.Dataset:
    """Compare methods on many data sets from each of many known generative models.

    Use it to learn how close methods come to the optimum. For every combination of prior, size and
    class ratio it draws data sets, with new parameters from the prior for each; fits every method
    to each training set; and measures it on a balanced test set with the same parameters.

    Parameters
    ----------
    priors : Prior, sequence of Prior, or mapping from names to Prior
        Priors of univariate families with two classes. Without names they are "0", "1" and so on.
    n_train : int or sequence of int
        Sizes of training sets, at least 2.
    class_ratio : float or sequence of float
        Proportions of class 1 in training sets, in (0, 1). Class counts are not random.
    methods : sequence of methods, or mapping from names to methods
        A method is a name: one of the study's logistic regressions "normal", "platt", "smoothed",
        "L1", "L2", "ibls" and "cauchy_map"; a prediction that knows the prior, "predictive",
        "preds", "coeffs" or "map", by quadrature; "optimal", which knows the parameters; or a
        calibrator by name, such as "auto", "beta" or "isotonic", which receives raw scores if it
        accepts them and otherwise takes them for log odds. It may also be a dict with ``method``,
        ``integrator`` and ``num_samples`` for predictions that know the prior, or assume another
        one given by ``prior``; a Prior to assume; a scikit-learn classifier, or a calibrator with
        ``inputs="scores"`` or ``"logits"``, which is fitted to every data set; or a function of
        training scores (n,), labels (n,) and test scores (m,) that returns log odds (m,). In a
        sequence, estimators are named after their class, and functions after themselves.
    num_datasets : int
        Number of data sets for each combination. They are computed 125 at a time, so fewer take as
        long as 125; estimators and functions process them one by one.
    n_test : int
        Size of each test set, half of each class.
    metrics : sequence of str, or mapping
        Names of metrics of :mod:`bayescal.metrics`; or a mapping from titles to pairs of such a
        name and options. By default log loss, and the calibration error in ten bins. Without
        ``eps`` the log loss is computed from log odds and not clipped, so it is infinite for a
        method that is certain of the wrong class, such as "isotonic".
    key : int, JAX key or NumPy generator
        Seed; the result depends on no other randomness.
    executor : concurrent.futures.Executor, optional
        Where blocks of data sets run: a pool of processes that are spawned, not forked; Dask's
        ``client.get_executor()``; or an adapter for MPI or Ray. By default threads, on all devices
        of this process.
    store : path, optional
        Folder in which finished blocks are stored, created if it is missing. Stored blocks are not
        computed again, so a run that was killed resumes where it stopped; methods, sizes or data
        sets may be added later.
    progress : bool or callable
        Whether to show a bar on standard error; or a function that is called with what was done,
        and the numbers of blocks done and in total.

    Returns
    -------
    xarray.Dataset
        ``value`` with dimensions prior, n_train, class_ratio, calibrator (the names of
        ``methods``), dataset and metric; and
        ``status``, how each fit ended: 0 converged, 1 stopped early, 2 without a finite optimum, 3
        if a method predicts NaN, which makes all its values NaN. Attributes contain versions,
        device and key, and the seconds that each stage took. The accessor ``.bayescal`` has tables,
        ranks and plots.

    Raises
    ------
    TypeError, ValueError
        For arguments of the wrong type, empty or repeated settings, families of several features
        or classes, and methods that cannot be sent to the executor's processes.
    concurrent.futures.BrokenExecutor
        If the executor loses a worker and cannot replace it. With ``store``, another run resumes
        from there.
    OSError
        If files cannot be written to ``store``.

    See Also
    --------
    bayescal.compare.compare : Tests of the differences between methods.
    bayescal.datasets.synthetic.sample : Draw data sets yourself.

    Notes
    -----
    Data sets are drawn and fitted 125 at a time in compiled programs that configurations of one
    shape share, so memory does not grow with their number: about 100 MB for each worker at 1e4 test
    points. A data set's random key is made from ``key``, a description of the configuration and the
    data set's number. Thus results do not depend on the rest of the sweep, on executors, devices,
    or interruptions. For a given number, parameters and test data are the same for all sizes and
    class ratios, so that these are compared without the noise between data sets.

    Several devices receive whole blocks, the next one when they are free, not shards of one block:
    the fits of a block end at different times and are partly prepared on the host, so devices never
    wait for one another, and a data set is computed by the same program on one device or on many.
    Blocks computed by one type of device and one version of JAX are equal to the last bit. In a
    computation of several JAX processes (``jax.distributed``) all must make the same call; each
    computes some of the blocks, on its devices or ``executor``, and all return the whole result. An
    error in one process is raised there at once, and in the others as a RuntimeError when they have
    finished their blocks. They wait for the slowest as long as JAX's collectives do, half an hour
    on CPUs; a ``store`` that all share keeps finished blocks if that is too short, or if a process
    dies, which ends the others. Within ``jax.default_device(...)`` a process computes everything.

    A file of ``store`` has a digest of its content: truncated or damaged files are computed again.
    Two runs may use one store at once. Functions are distinguished by their code and by the values
    that they carry, not by the functions that they call, and estimators by their class and options:
    delete the store if those functions, or the code of a class, change.

    References
    ----------
    M. Maher (2020), Instance-based label smoothing for better classifier calibration, section 7.1.

    Examples
    --------
    >>> import numpyro.distributions as dist
    >>> import bayescal as bc
    >>> prior = bc.GaussianPrior(mu0=dist.Uniform(-1, 0), mu1=dist.Uniform(0, 1), sigma=1.0)
    >>> result = bc.sweep(
    ...     {"wide": prior},
    ...     n_train=[20, 80],
    ...     methods=["platt", "optimal"],
    ...     num_datasets=30,
    ...     n_test=500,
    ...     progress=False,
    ... )
    >>> dict(result.sizes)["dataset"], result.calibrator.values.tolist()
    (30, ['platt', 'optimal'])
    >>> loss = result.value.sel(metric="log_loss").mean("dataset").squeeze()
    >>> bool((loss.sel(calibrator="platt") > loss.sel(calibrator="optimal")).all())
    True
    """
    import xarray as xr

    from bayescal.sweeps import _accessor

    named = _priors(priors)
    sizes = _settings(n_train, "n_train", int)
    ratios = _settings(class_ratio, "class_ratio", float)
    if min(sizes) < 2:
        raise ValueError(f"n_train must be at least 2, got {min(sizes)}")
    if not all(0 < ratio < 1 for ratio in ratios):
        raise ValueError(f"class_ratio must lie in (0, 1), got {ratios}")
    if executor is not None and not hasattr(executor, "submit"):
        raise TypeError(
            "executor must be an executor of concurrent.futures, or an object with its submit, got "
            f"{executor!r}"
        )
    recipes, chosen = as_recipes(methods), choose_metrics(metrics)
    for name, options in chosen.values():
        make_metric(name, options)
    num_datasets, n_test = check_count(num_datasets, "num_datasets"), check_count(n_test, "n_test")
    if n_test < 2:
        raise ValueError(f"n_test must be at least 2, got {n_test}")
    seed = as_key(key)
    cells = {
        (name, n, ratio): Cell(named[name], n, ratio, n_test)
        for name, n, ratio in itertools.product(named, sizes, ratios)
    }
    run, device = Run(cells, recipes, chosen, num_datasets, seed), jax.devices()[0]
    with showing(progress) as report:
        run.finish(executor, store, report)
    coordinates = {
        "prior": list(named),
        "n_train": sizes,
        "class_ratio": ratios,
        "calibrator": list(recipes),
        "dataset": np.arange(num_datasets),
        "metric": list(chosen),
    }
    about = {
        **{name: version(name) for name in ("bayescal", "jax", "numpy", "numpyro")},
        "device": f"{device.platform} {device.device_kind}",
        "key": key_data(seed).tolist(),
        "n_test": n_test,
        "priors": json.dumps({name: repr(prior) for name, prior in named.items()}),
        "methods": json.dumps({name: recipe.identity for name, recipe in recipes.items()}),
        "metrics": json.dumps(chosen, default=repr),
        "seconds": json.dumps({name: round(s, 3) for name, s in run.seconds.items()}),
    }
    assert _accessor  # registers ``.bayescal``
    dims, shape = list(coordinates), [len(coordinate) for coordinate in coordinates.values()]
    pairs = list(itertools.product(cells, recipes))
    values = np.stack([run.values[cell][method] for cell, method in pairs]).reshape(shape)
    status = np.stack([run.status[cell][method] for cell, method in pairs]).reshape(shape[:-1])
    variables = {"value": (dims, values), "status": (dims[:-1], status)}
    return xr.Dataset(variables, coordinates, about)


def _priors(priors: object) -> dict[str, Prior]:
    if isinstance(priors, Prior):
        priors = [priors]
    if isinstance(priors, Mapping):
        named = dict(priors)
    elif isinstance(priors, Sequence):
        named = {str(i): prior for i, prior in enumerate(priors)}
    else:
        raise TypeError(f"priors must be one prior or several, got {type(priors).__name__}")
    if not named:
        raise ValueError("priors must not be empty")
    for name, prior in named.items():
        if not isinstance(prior, Prior):
            raise TypeError(f"priors must be made by GaussianPrior and others, got {prior!r}")
        if not prior.family.univariate or prior.family.classes != 2:
            raise ValueError(f"priors must be of one feature and two classes, {name!r} is not")
        digest_of(prior)
    return dict(zip(check_names(named, "priors"), named.values(), strict=True))


Number = TypeVar("Number", int, float)


def _settings(value: ArrayLike, name: str, number: type[Number]) -> list[Number]:
    """Convert one setting or several to a list of different numbers."""
    many = np.atleast_1d(np.asarray(value))
    if many.ndim != 1 or many.size == 0 or many.dtype.kind not in "iuf":
        raise TypeError(f"{name} must be a number or a sequence of numbers, got {value!r}")
    if number is int and not (many == np.floor(many)).all():
        raise ValueError(f"{name} must hold whole numbers, got {value!r}")
    settings = [number(element) for element in many]
    if len(set(settings)) < len(settings):
        raise ValueError(f"{name} must hold different numbers, got {value!r}")
    return settings
