"""What somebody does with exported weights who has torch and safetensors, and no fleet.

Prints the mean loss and accuracy of perceptrons or other networks of the zoo over the held-out pictures, in batches
of so many, as JSON of hexadecimal floats.

Args: samples of a batch, the folder of parts.py, and for each network FILE.safetensors, module:Name, and its arguments
as JSON.
"""

from __future__ import annotations

import importlib
import json
import sys

import torch
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy


def main(batch: str, folder: str, *networks: str) -> None:
    """Build, load, evaluate."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    sys.path.insert(0, folder)
    told = zip(networks[::3], networks[1::3], networks[2::3])
    found = [evaluated(file, name, json.loads(arguments), int(batch)) for file, name, arguments in told]
    assert "fleet" not in sys.modules
    print(json.dumps(found))


def evaluated(file: str, name: str, arguments: dict[str, object], batch: int) -> dict[str, str]:
    """The figures of one."""
    pictures = importlib.import_module("parts").Pictures(train=False)
    module, _, name = name.partition(":")
    model = getattr(importlib.import_module(module), name)(**arguments)
    model.load_state_dict(load_file(file))
    model.eval()
    inputs = torch.stack([torch.from_numpy(pictures[i][0]) for i in range(len(pictures))])
    targets = torch.tensor([pictures[i][1] for i in range(len(pictures))])
    loss, right = 0.0, 0.0
    with torch.no_grad():
        for begin in range(0, len(targets), batch):
            images, wanted = inputs[begin : begin + batch], targets[begin : begin + batch]
            # Permuted, one channel has the strides of channels last: kernels may then add in another order.
            outputs = model(images.reshape(-1, 1, *images.shape[1:3]).float().div_(255))
            loss += cross_entropy(outputs, wanted).item() * len(wanted)
            right += float((outputs.argmax(dim=1) == wanted).sum().item())
    return {"test_loss": (loss / len(targets)).hex(), "accuracy": (right / len(targets)).hex()}


if __name__ == "__main__":
    main(*sys.argv[1:])
