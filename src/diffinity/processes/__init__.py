"""From noise to text, one module for each kind of noise; all are driven by the loop in `generation/`."""
