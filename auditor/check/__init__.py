"""Pass or fail: limits of a budget, estimates with intervals, verdicts, and reports for CI."""
