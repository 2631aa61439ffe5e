"""Print the lower bounds of the package, its extras and its tests as constraints of pip."""

import re
import tomllib
from pathlib import Path

tables = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))
project = tables["project"]
listed = [project["dependencies"], *project["optional-dependencies"].values()]
for entry in sum(listed, tables["dependency-groups"]["pytest"]):
    name, bound = re.fullmatch(r"([\w.-]+)(?:\[.*\])?>=([\w.]+)", entry).groups()
    print(f"{name}=={bound}")
