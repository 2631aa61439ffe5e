"""Conversion of draws to ArviZ's container, for ArviZ 0.x and 1.x."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import arviz
    import xarray as xr


def to_arviz(
    posterior: Mapping[str, np.ndarray],
    prior: Mapping[str, np.ndarray] | None,
    attributes: Mapping[str, object],
    priors: Sequence[str] | None = None,
) -> arviz.InferenceData | xr.DataTree:
    """Convert draws, each of shape (chains, draws, ...), to ArviZ's container.

    If names of ``priors`` are passed, the third axis is the dimension ``prior``. ArviZ below 1.0
    has InferenceData, from 1.0 on DataTree.
    """
    import arviz

    from_dict: Any = arviz.from_dict
    groups = {"posterior": dict(posterior)} | ({} if prior is None else {"prior": dict(prior)})
    named: dict[str, object] = {}
    if priors is not None:
        dims = {name: ["prior"] for name in posterior}
        named = {"dims": dims, "coords": {"prior": list(priors)}}
    in_tree = int(arviz.__version__.split(".")[0]) >= 1
    result = from_dict(groups, **named) if in_tree else from_dict(**groups, **named)
    result["posterior"].attrs.update(attributes)
    return result
