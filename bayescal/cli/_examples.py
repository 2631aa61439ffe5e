"""Examples of each command, shown below its help; tests run them in this order."""

from __future__ import annotations

#: Lines are shorter than the 80 characters of a terminal; a backslash continues a line.
EXAMPLES = {
    "demo": """
bayescal demo --out demo
bayescal demo --seed 1
""",
    "fit": """
bayescal fit scores.csv --label y --columns p --out calibrator.safetensors
bayescal fit scores.csv --label y --columns p --method beta \\
  --option inference=laplace --out beta.safetensors
bayescal fit logits.parquet --label class --inputs logits \\
  --method structured_matrix --out matrix.safetensors
""",
    "apply": """
bayescal apply calibrator.safetensors new.csv --out calibrated.csv
bayescal apply calibrator.safetensors new.csv --interval 0.9 --out -
bayescal apply matrix.safetensors logits.parquet --out calibrated.parquet
""",
    "methods": """
bayescal methods
""",
    "export": """
bayescal export calibrator.safetensors calibrator.stablehlo
bayescal export matrix.safetensors matrix.stablehlo --dtype float64
""",
    "predict": """
bayescal predict scores.csv --label y --score s --new new.csv --out out.csv \\
  --prior "gaussian: mu0=uniform(-2.5, 0), mu1=uniform(0, 2.5), sigma=1"
bayescal predict scores.csv --label y --score s --interval 0.9 \\
  --new new.parquet --out out.parquet \\
  --prior "gaussian: mu0=normal(-1, 1), mu1=normal(1, 1), sigma=halfnormal(1)"
""",
    "evaluate": """
bayescal evaluate scores.csv --label y --model p --html report.html
bayescal evaluate scores.csv --label y --model raw=p --model other=q --json -
bayescal evaluate scores.csv --label y --calibrator calibrator.safetensors
bayescal evaluate logits.parquet --label class --inputs logits --bins 10
""",
    "monitor": """
bayescal monitor scores.csv --label y --model q --state monitor.json
bayescal monitor scores.csv --label y --model q --state drawn.json \\
  --alpha 0.01 --plot monitor.png --json -
""",
}
