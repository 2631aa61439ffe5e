"""The persistent compilation cache of JAX, as one call."""

from __future__ import annotations

import os
from pathlib import Path

import jax


def cache_compilations(folder: str | os.PathLike[str] | None = None) -> Path:
    """Keep what JAX compiles in a folder, so that later processes need not compile it again.

    Call it before anything is computed. This is a setting of JAX in the whole process, and so
    serves all that uses JAX there; bayescal changes none on its own. What compiles in less than
    50 ms is not kept.

    Parameters
    ----------
    folder : str or path, optional
        By default ``bayescal/jax`` in the user's cache folder: ``$XDG_CACHE_HOME`` or ``~/.cache``.

    Returns
    -------
    Path
        The folder, which is made if need be. Entries are never removed; to empty it, delete it.

    Examples
    --------
    >>> import bayescal as bc
    >>> folder = bc.cache_compilations()  # doctest: +SKIP
    """
    if folder is None:
        home = os.environ.get("XDG_CACHE_HOME")
        folder = (Path(home) if home else Path.home() / ".cache") / "bayescal" / "jax"
    path = Path(folder).expanduser().resolve()
    path.mkdir(parents=True, exist_ok=True)
    jax.config.update("jax_compilation_cache_dir", str(path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return path
