"""What endpoints cost, and what their cache saves: formulas, their inputs, and what is missing."""
