"""The perplexity of retrieval: what u of target "retrieval" is compared with."""

import torch
from torch import Tensor

from model.similarity import compute_retrieval_entropy

MAX_CANDIDATES = 8192  # instances of the other modality: enough, because perplexities are only compared
BLOCK_SIZE = 1 << 24  # similarities in memory at a time


def compute_log_perplexity(embeddings: Tensor, candidates: Tensor, scale: float) -> Tensor:
    """Entropy (N,) in nats of softmax(scale * cosine), for unit vectors (N, D) and candidates (M, D)."""
    sample = candidates[:: -(-len(candidates) // MAX_CANDIDATES)]
    rows = max(1, BLOCK_SIZE // len(sample))
    blocks = [embeddings[start : start + rows] for start in range(0, len(embeddings), rows)]
    return torch.cat([compute_retrieval_entropy(block @ sample.T, scale) for block in blocks])
