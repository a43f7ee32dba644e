"""python -m bench.fleet: placement quality of the routing strategies, in virtual time."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

from bench.fleet import tables, workloads
from dashboards.insight.whatif.simulation.hardware import HARDWARE, TierModel
from dashboards.insight.whatif.simulation.routers import STRATEGIES


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.fleet", description=__doc__)
    parser.add_argument("--hardware", choices=HARDWARE, default="70b")
    parser.add_argument("--workload", action="append", choices=workloads.ALL)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--half",
        type=int,
        choices=(0, 1),
        default=tables.EVALUATION_HALF,
        help="0: constants were chosen on",
    )
    parser.add_argument("--robust", action="store_true", help="constants and fleets varied")
    parser.add_argument("--routers", action="store_true", help="2, 4, 8 routers that share state")
    parser.add_argument("--fill", type=float, default=1.0, help="factor of the rate")
    parser.add_argument(
        "--slow", type=float, default=1, help="factor of half of the workers' times"
    )
    parser.add_argument("--l1", type=float, default=0, help="its size in device caches; 0: none")
    parser.add_argument("--strategy", action="append", choices=STRATEGIES, help="only these")
    flags = parser.parse_args()
    started = time.perf_counter()
    names = flags.workload or workloads.MAIN
    for name in names:
        if (flags.hardware, name) not in workloads.RATES:
            parser.error(f"--workload {name}: its rate on --hardware {flags.hardware} is not known")
    hardware = HARDWARE[flags.hardware]
    if flags.l1:  # loaded as in bench.published; the oracle knows the device only
        l1 = TierModel(round(flags.l1 * hardware.cache_tokens), 2e-6, 0.001)
        hardware = replace(hardware, l1=l1)
    bench = tables.Bench(hardware, range(1, flags.seeds + 1), flags.half, flags.fill, flags.slow)
    if flags.robust:
        tables.robustness(bench, names)
    elif flags.routers:
        tables.several_routers(bench, names, (2, 4, 8))
    else:
        tables.strategies(bench, names, flags.strategy or STRATEGIES, not flags.strategy)
    print(f"\n{flags.seeds} seeds, half {flags.half}; {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
