"""``cache_compilations``: JAX's persistent compilation cache, in one call."""

from __future__ import annotations

import os
from pathlib import Path

from bayescal._core.lazy import jax


def cache_compilations(folder: str | os.PathLike[str] | None = None) -> Path:
    """Keep compiled programs of JAX in a folder, so that later processes need not compile them.

    Call it before anything is computed. It changes a setting of JAX for the whole process, from
    which all code that uses JAX benefits; bayescal never changes one by itself. Programs that
    compile in less than 50 ms are not kept.

    Parameters
    ----------
    folder : str or path, optional
        Folder of the cache, by default ``bayescal/jax`` in the user's cache folder:
        ``$XDG_CACHE_HOME`` or ``~/.cache``.

    Returns
    -------
    Path
        The folder, created if it is missing. Entries are never removed; delete it to empty it.

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
