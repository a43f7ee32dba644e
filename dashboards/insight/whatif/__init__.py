"""What-if analysis: recorded traffic replayed through a calibrated model of the workers."""
