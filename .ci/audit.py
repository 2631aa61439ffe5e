"""Check the packages of an environment for known vulnerabilities: python .ci/audit.py ENVIRONMENT.

The script fails if a package has a vulnerability that a newer release fixes. If no service answers
(because the machine has no network, or the index has no such information), it prints the reason and
passes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

#: Identifiers of vulnerabilities that do not affect bayescal, with the reason.
IGNORED: dict[str, str] = {}


def audit(environment: Path) -> list[dict[str, Any]] | str:
    """Run pip-audit; return the packages of its report, or the reason if there is no report."""
    folders = [str(path) for path in environment.glob("lib/python*/site-packages")]
    command = [sys.executable, "-m", "pip_audit", "-f", "json", "--progress-spinner", "off"]
    command += ["--timeout", "10", *(option for path in folders for option in ("--path", path))]
    try:
        process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        return json.loads(process.stdout)["dependencies"]
    except subprocess.TimeoutExpired:
        return "no answer in 300 s"
    except ValueError:
        return (process.stderr.strip().splitlines() or ["no output"])[-1]


def judge(packages: list[dict[str, Any]] | str) -> tuple[int, list[str]]:
    """Compute the exit code and the lines to print from the result of ``audit``."""
    if isinstance(packages, str):
        return 0, [f"pip-audit was skipped: {packages}"]
    # bayescal itself need not be on the index.
    packages = [package for package in packages if package["name"] != "bayescal"]
    audited = [package for package in packages if "skip_reason" not in package]
    if not audited:
        return 0, [
            f"pip-audit was skipped: no service has vulnerability data for any of the "
            f"{len(packages)} packages"
        ]
    code, lines = 0, [f"pip-audit: {len(audited)} of {len(packages)} packages were looked up"]
    for package in audited:
        for vulnerability in package["vulns"]:
            names = {vulnerability["id"], *vulnerability.get("aliases", [])}
            reason = next((IGNORED[name] for name in names if name in IGNORED), None)
            fixed = ", ".join(vulnerability.get("fix_versions", []))
            state = (
                f"ignored: {reason}" if reason else f"fixed in {fixed}" if fixed else "no fix yet"
            )
            lines.append(f"{package['name']} {package['version']}: {vulnerability['id']}: {state}")
            code = code or int(bool(fixed) and not reason)
    return code, lines


if __name__ == "__main__":
    exit_code, messages = judge(audit(Path(sys.argv[1])))
    print(*messages, sep="\n")
    sys.exit(exit_code)
