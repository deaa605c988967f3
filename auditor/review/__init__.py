"""Reviews and labels: queues of rows to review, label samples, certificates, and the correction of p_mismatch."""
