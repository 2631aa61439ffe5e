"""M. Kull et al. (2019) and S. Jung et al. (2023), whose networks' predictions can be had."""

from __future__ import annotations

from benchmarks.papers._common import Page, bullets, counted
from benchmarks.papers._networks import every, network_tables, remarks


def page() -> Page:
    text = f"""\
## Kull et al. (2019)

{network_tables("Kull")}

{bullets(remarks("Kull"))}

## Jung et al. (2023)

{network_tables("SCTL")}
"""
    findings = [
        counted("Kull et al., tables 3 and 13 to 18", every("Kull")),
        counted("Jung et al., logs", every("SCTL")),
    ]
    return Page("kull-jung", "Kull et al. (2019) and Jung et al. (2023)", text, findings)
