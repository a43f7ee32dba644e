"""What other requests alone change: two traces replayed under one configuration. Pure."""

from __future__ import annotations

from routing.traces.trace import Trace
from routing.whatif.model.analysis import Configuration
from routing.whatif.model.calibration import Constants
from routing.whatif.model.outcome import RATES, tabulate
from routing.whatif.model.scenario import join_factor, plan_trace, run_scenario


def predict_drift(
    before: Trace, after: Trace, configuration: Configuration, constants: Constants
) -> dict[str, float]:
    """Return relative changes of TTFT, and differences of hit rates."""
    scenario = configuration.scenario(constants)
    factor = max(join_factor(before), join_factor(after))
    runs = (run_scenario(scenario, plan_trace(one, factor=factor)) for one in (before, after))
    old, new = (tabulate(run, scenario.hardware.overhead_s, None).figures() for run in runs)
    return {
        name: new[name] - old[name] if name in RATES else new[name] / max(old[name], 1e-9) - 1
        for name in old
    }
