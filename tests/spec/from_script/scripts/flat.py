"""A first network, from the top down: no functions around the training, nothing behind a guard."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

CLASSES = 4


class Blobs(Dataset):
    """Points around four places."""

    def __init__(self, count=500, spread=0.5):
        generator = torch.Generator().manual_seed(3)
        self.y = torch.randint(0, CLASSES, (count,), generator=generator)
        self.x = torch.randn(count, 8, generator=generator) * spread + self.y[:, None]

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


torch.manual_seed(7)
training_data, test_data = random_split(Blobs(), [0.8, 0.2], generator=torch.Generator().manual_seed(42))
train_dataloader = DataLoader(training_data, batch_size=32, shuffle=True)
test_dataloader = DataLoader(test_data, batch_size=32)

device = "cuda" if torch.cuda.is_available() else "cpu"
print(f"Using {device} device")


class NeuralNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.stack = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, CLASSES))

    def forward(self, x):
        return self.stack(x)


model = NeuralNetwork().to(device)
loss_fn = nn.CrossEntropyLoss(label_smoothing=0.1)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.05)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=5)

epochs = 5
for t in range(epochs):
    print(f"Epoch {t + 1}\n-------------------------------")
    model.train()
    for X, y in train_dataloader:
        X, y = X.to(device), y.to(device)
        loss = loss_fn(model(X), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        correct = sum((model(X.to(device)).argmax(1) == y.to(device)).sum().item() for X, y in test_dataloader)
    print(f"Accuracy: {correct / len(test_data):.1%}")
    scheduler.step()
print("Done!")
