"""Look for known vulnerabilities of what an environment holds: python .ci/audit.py ENVIRONMENT.

Fails if a package has a vulnerability for which there is a release without it. Where no service
answers (a machine without network, an index without this information), it prints that and passes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

#: Identifiers of vulnerabilities that do not concern bayescal, with the reason.
IGNORED: dict[str, str] = {}


def audit(environment: Path) -> list[dict[str, Any]] | str:
    """Run pip-audit; return its packages, or the reason why it could not work."""
    folders = [str(path) for path in environment.glob("lib/python*/site-packages")]
    call = [sys.executable, "-m", "pip_audit", "-f", "json", "--progress-spinner", "off"]
    call += ["--timeout", "10", *(word for path in folders for word in ("--path", path))]
    try:
        done = subprocess.run(call, capture_output=True, text=True, check=False, timeout=300)
        return json.loads(done.stdout)["dependencies"]
    except subprocess.TimeoutExpired:
        return "no answer in 300 s"
    except ValueError:
        return (done.stderr.strip().splitlines() or ["no output"])[-1]


def judge(packages: list[dict[str, Any]] | str) -> tuple[int, list[str]]:
    """Return the exit code and what to print."""
    if isinstance(packages, str):
        return 0, [f"pip-audit was skipped: {packages}"]
    # Of bayescal itself, no index need know anything.
    packages = [package for package in packages if package["name"] != "bayescal"]
    audited = [package for package in packages if "skip_reason" not in package]
    if not audited:
        return 0, [
            f"pip-audit was skipped: no service here knows of vulnerabilities of any of the "
            f"{len(packages)} packages"
        ]
    code, lines = 0, [f"pip-audit: {len(audited)} of {len(packages)} packages were looked up"]
    for package in audited:
        for found in package["vulns"]:
            names = {found["id"], *found.get("aliases", [])}
            reason = next((IGNORED[name] for name in names if name in IGNORED), None)
            fixed = ", ".join(found.get("fix_versions", []))
            state = (
                f"ignored: {reason}" if reason else f"fixed in {fixed}" if fixed else "no fix yet"
            )
            lines.append(f"{package['name']} {package['version']}: {found['id']}: {state}")
            code = code or int(bool(fixed) and not reason)
    return code, lines


if __name__ == "__main__":
    result, printed = judge(audit(Path(sys.argv[1])))
    print(*printed, sep="\n")
    sys.exit(result)
