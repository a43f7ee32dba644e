"""`make bench`: run every benchmark of this folder in turn."""

import subprocess
import sys

MEASUREMENTS = (
    ["bench.router_speed"],
    ["bench.router_streams"],
    ["bench.cache_ttft"],
    ["bench.l2_speed"],
)

if __name__ == "__main__":
    for measurement in MEASUREMENTS:
        print(f"\n== {' '.join(measurement)}", flush=True)
        subprocess.run([sys.executable, "-m", *measurement], check=True)
