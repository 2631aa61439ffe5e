"""The bridge to ArviZ; the only file that knows it, and both of its lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def to_arviz(
    posterior: Mapping[str, np.ndarray],
    prior: Mapping[str, np.ndarray] | None,
    attributes: Mapping[str, object],
    priors: Sequence[str] | None = None,
) -> Any:
    """Put draws, each of shape (chains, draws, ...), into ArviZ's container.

    With names of ``priors`` the third axis is the dimension ``prior``.

    Returns
    -------
    arviz.InferenceData or xarray.DataTree
        The first with ArviZ below 1.0, the second from 1.0 on.
    """
    import arviz

    from_dict: Any = arviz.from_dict
    groups = {"posterior": dict(posterior)}
    if prior is not None:
        groups["prior"] = dict(prior)
    named: dict[str, Any] = {}
    if priors is not None:
        dims = {name: ["prior"] for name in posterior}
        named = {"dims": dims, "coords": {"prior": list(priors)}}
    if int(arviz.__version__.split(".")[0]) >= 1:
        result = from_dict(groups, **named)
    else:
        result = from_dict(**groups, **named)
    result["posterior"].attrs.update(attributes)
    return result
