"""Research: training PAU, retrieval benchmarks, and the analyses of the paper."""
