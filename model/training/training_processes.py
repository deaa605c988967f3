"""The group of processes that train together; a single process is a group of one.

Every process computes the whole contrastive loss over the gathered batch. So `gather` need not send gradients back:
the gradient with respect to a process's own embeddings is already that of the global loss, and summing the gradients of
the encoders' weights over processes gives those of one process with the whole batch.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """One of `size` processes."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        return self.rank == 0

    def gather(self, local: Tensor) -> Tensor:
        """The rows of all processes in order of rank, (size * B, ...); gradients reach only this process's own rows."""
        if self.size == 1:
            return local
        parts = [torch.empty_like(local) for _ in range(self.size)]
        dist.all_gather(parts, local.detach().contiguous())
        parts[self.rank] = local
        return torch.cat(parts)

    def share(self, value: Any) -> list[Any]:
        """Exchange a small value; returns the values of all processes in order of rank."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def sum_gradients(self, parameters: Iterable[Tensor]) -> None:
        if self.size == 1:
            return
        for parameter in parameters:
            if parameter.grad is None:  # all processes must take part, even if their rows did not use the parameter
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad)

    def average(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor, in place, by its mean over processes."""
        if self.size > 1:
            for tensor in tensors:
                dist.all_reduce(tensor)
                tensor.div_(self.size)

    def wait(self) -> None:
        if self.size > 1:
            dist.barrier()


ALONE = ProcessGroup()


def current_processes() -> ProcessGroup:
    """The process group of torch.distributed, or a group of one if it was not started."""
    if dist.is_available() and dist.is_initialized():
        return ProcessGroup(dist.get_rank(), dist.get_world_size())
    return ALONE
