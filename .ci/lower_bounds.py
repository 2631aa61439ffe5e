"""Print the lower bounds of all dependencies (package, extras and tests) as pip constraints."""

import re
import tomllib
from pathlib import Path

tables = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))
project = tables["project"]
requirements = [project["dependencies"], *project["optional-dependencies"].values()]
for requirement in sum(requirements, tables["dependency-groups"]["pytest"]):
    name, bound = re.fullmatch(r"([\w.-]+)(?:\[.*\])?>=([\w.]+)", requirement).groups()
    print(f"{name}=={bound}")
