"""Train with DistributedDataParallel, a process for each GPU."""

import os

import torch
import torch.multiprocessing as mp
import torch.nn.functional as F
from points import Points
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def ddp_setup(rank, world_size):
    """Join the other processes."""
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "12355"
    torch.cuda.set_device(rank)
    init_process_group(backend="nccl", rank=rank, world_size=world_size)


class Trainer:
    """The loop."""

    def __init__(self, model, train_data, optimizer, gpu_id):
        self.gpu_id = gpu_id
        self.model = model.to(gpu_id)
        self.train_data = train_data
        self.optimizer = optimizer
        self.model = DDP(model, device_ids=[gpu_id])

    def _run_batch(self, source, targets):
        self.optimizer.zero_grad()
        loss = F.mse_loss(self.model(source), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 2.0)
        self.optimizer.step()

    def _run_epoch(self, epoch):
        self.train_data.sampler.set_epoch(epoch)
        for source, targets in self.train_data:
            self._run_batch(source.to(self.gpu_id), targets.to(self.gpu_id))

    def train(self, max_epochs):
        """Train."""
        for epoch in range(max_epochs):
            self._run_epoch(epoch)


def load_train_objs():
    """What is trained, on what, how."""
    model = torch.nn.Sequential(torch.nn.Linear(20, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    return Points(512), model, torch.optim.SGD(model.parameters(), lr=1e-2)


def main(rank, world_size, total_epochs, batch_size):
    """One process."""
    ddp_setup(rank, world_size)
    dataset, model, optimizer = load_train_objs()
    loader = DataLoader(dataset, batch_size, pin_memory=True, shuffle=False, sampler=DistributedSampler(dataset))
    Trainer(model, loader, optimizer, rank).train(total_epochs)
    destroy_process_group()


if __name__ == "__main__":
    import argparse

    parser = argparse.ArgumentParser()
    parser.add_argument("total_epochs", type=int, help="epochs to train")
    parser.add_argument("--batch_size", default=32, type=int, help="of each process")
    args = parser.parse_args()
    count = torch.cuda.device_count()
    mp.spawn(main, args=(count, args.total_epochs, args.batch_size), nprocs=count)
