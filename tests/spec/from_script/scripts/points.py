"""The data of distributed.py."""

import torch
from torch.utils.data import Dataset


class Points(Dataset):
    """Points, and the sums of their coordinates."""

    def __init__(self, size):
        generator = torch.Generator().manual_seed(0)
        self.points = torch.rand(size, 20, generator=generator)

    def __len__(self):
        return len(self.points)

    def __getitem__(self, index):
        return self.points[index], self.points[index].sum(0, keepdim=True)
