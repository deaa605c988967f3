"""Pass or fail: the limits of a budget, estimates, verdicts, and their forms for CI."""
