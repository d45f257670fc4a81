"""Classify drawn digits with a small convolutional network, on one GPU if there is one."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, Dataset


class Normalize:
    """Shift and scale a picture."""

    def __init__(self, mean, std):
        self.mean, self.std = mean, std

    def __call__(self, picture):
        return (picture - self.mean) / self.std


class Digits(Dataset):
    """Bars at ten places, in noise."""

    def __init__(self, root, train=True, transform=None):
        generator = torch.Generator().manual_seed(int(train))
        count = 400 if train else 100
        self.targets = torch.randint(0, 10, (count,), generator=generator)
        self.data = torch.randint(0, 128, (count, 20, 20), generator=generator)
        for picture, target in zip(self.data, self.targets):
            picture[:, 2 * target : 2 * target + 2] += 127
        self.root, self.transform = root, transform

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        picture = self.data[index].float().unsqueeze(0) / 255
        if self.transform is not None:
            picture = self.transform(picture)
        return picture, int(self.targets[index])


class Net(nn.Module):
    """Two layers of each kind."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3)
        self.conv2 = nn.Conv2d(8, 16, 3)
        self.dropout = nn.Dropout(0.25)
        self.fc1 = nn.Linear(16 * 8 * 8, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        x = torch.flatten(self.dropout(F.max_pool2d(x, 2)), 1)
        return F.log_softmax(self.fc2(F.relu(self.fc1(x))), dim=1)


def train(args, model, device, loader, optimizer, epoch):
    """Train for an epoch."""
    model.train()
    for batch, (data, target) in enumerate(loader):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        if batch % args.log_interval == 0:
            print(f"Train Epoch: {epoch} [{batch * len(data)}/{len(loader.dataset)}]\tLoss: {loss.item():.6f}")


def test(model, device, loader):
    """Print the mean loss and the accuracy on samples held out."""
    model.eval()
    loss, correct = 0.0, 0
    with torch.no_grad():
        for data, target in loader:
            output = model(data.to(device))
            loss += F.nll_loss(output, target.to(device), reduction="sum").item()
            correct += (output.argmax(1) == target.to(device)).sum().item()
    print(f"Test set: loss {loss / len(loader.dataset):.4f}, accuracy {correct / len(loader.dataset):.2%}")


def main():
    """Read the options and train."""
    parser = argparse.ArgumentParser(description="digits")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--test-batch-size", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=14)
    parser.add_argument("--lr", type=float, default=1.0)
    parser.add_argument("--gamma", type=float, default=0.7)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log-interval", type=int, default=10)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    device = torch.device("cuda")
    options = {"num_workers": 1, "pin_memory": True, "shuffle": True}
    transform = Normalize(0.37, std=0.24)
    train_loader = DataLoader(Digits("data", True, transform), batch_size=args.batch_size, **options)
    test_loader = DataLoader(Digits("data", False, transform), batch_size=args.test_batch_size, **options)

    model = Net().to(device)
    optimizer = optim.Adadelta(model.parameters(), lr=args.lr)
    scheduler = StepLR(optimizer, step_size=1, gamma=args.gamma)
    for epoch in range(1, args.epochs + 1):
        train(args, model, device, train_loader, optimizer, epoch)
        test(model, device, test_loader)
        scheduler.step()


if __name__ == "__main__":
    main()
