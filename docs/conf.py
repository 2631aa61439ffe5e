"""Sphinx configuration of the site, which ``python docs/build.py`` builds and checks."""

import os
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "_extensions"), str(HERE.parent)]

import sources  # noqa: E402

from bayescal import __version__  # noqa: E402

project = "bayescal"
author = "The bayescal developers"
copyright = author
version = release = __version__

# The build uses no network: no inventories of other sites, no remote fonts or scripts.
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_design",
    "mathml",
    "reference",
    "notebooks",
    "parameters",
    "pages",
]
exclude_patterns = ["_build", "_extensions", "**/.ipynb_checkpoints"]
templates_path: list[str] = []
toc_object_entries = False

autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_google_docstring = False
napoleon_use_rtype = False
# Format attributes like parameters. The default format truncates names that end in an underscore
# and entries that list several names.
napoleon_custom_sections = [("Attributes", "params_style")]

myst_enable_extensions = ["colon_fence", "dollarmath", "deflist"]
myst_heading_anchors = 3
nb_execution_mode = "cache"
# Notebook outputs are cached for the current code; caches of earlier versions are deleted.
notebook_cache = HERE / "_build" / "executed" / sources.digest("bayescal", "benchmarks")
nb_execution_cache_path = str(notebook_cache)
for folder in notebook_cache.parent.glob("*"):
    if folder != notebook_cache:
        shutil.rmtree(folder)
nb_execution_timeout = 600
# Executing the notebooks takes minutes, so docs/build.py --fast skips it.
nb_execution_excludepatterns = ["gallery/notebooks/*"] * ("BAYESCAL_DOCS_FAST" in os.environ)
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True
nb_output_stderr = "remove"

html_theme = "pydata_sphinx_theme"
html_title = f"bayescal {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["copy.js"]
html_extra_path = ["llms.txt"]
html_math_renderer = "mathml"
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 6,
    "show_prev_next": False,
    "secondary_sidebar_items": {"**": ["page-toc"], "index": []},
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_context = {"default_mode": "auto"}
html_favicon = "_static/icon.svg"
html_sidebars = {"index": [], "start/index": []}
