"""Scenarios, calibration, estimates and backtest of what-if analysis. Pure."""
