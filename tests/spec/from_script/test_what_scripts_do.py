"""What a script does in its first step is what its spec says, or is refused with its mend."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.spec.from_script.conftest import Begun, begin

Init = Callable[..., Begun]

HEAD = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset


class Rows(Dataset):
    def __init__(self, count=64):
        self.x, self.y = torch.randn(count, 6), torch.randint(0, 3, (count,))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner, self.outer = nn.Linear(6, width), nn.Linear(width, 3)

    def forward(self, x):
        return self.outer(self.inner(x).relu())
"""


def of(body: str, definitions: str = "") -> str:
    """A script with a body behind its guard."""
    inner = textwrap.indent(textwrap.dedent(body), "    ")
    return f'{HEAD}\n\n{textwrap.dedent(definitions)}\n\nif __name__ == "__main__":\n{inner}'


def test_accumulation_precision_and_a_loss_over_another_form(script: Init) -> None:
    begun = script(
        of(
            """
            model = Net(width=5).cuda()
            optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95))
            schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, warm_up)
            loader = DataLoader(Subset(Rows(64), range(8, 56)), batch_size=4, shuffle=True)
            other = DataLoader(loader.dataset, batch_size=48)  # of the same samples, not for training
            for epoch in range(3):
                for index, (x, y) in enumerate(loader):
                    with torch.autocast("cuda", dtype=torch.bfloat16):
                        loss = F.cross_entropy(model(x.cuda()).view(-1, 3), y.cuda().view(-1)) / 2
                    loss.backward()
                    if index % 2:
                        nn.utils.clip_grad_value_(model.parameters(), 0.5)
                        optimizer.step()
                        schedule.step()
                        optimizer.zero_grad()
            """,
            """
            def warm_up(step):
                return min(1.0, (step + 1) / 100)
            """,
        )
    )
    job, data = begun.job, begun.spec.data["samples"]
    assert (job.batch_size, job.accumulate, job.autocast, job.clip_value) == (8, 2, "bfloat16", 0.5)
    assert job.model.arguments == {"width": 5} and job.optimizer.arguments == {"lr": 0.001, "betas": [0.9, 0.95]}
    assert data.train.source == "train:Rows" and data.train.subset is not None and data.train.subset[:2] == (8, 56)
    assert "return torch.nn.functional.cross_entropy(outputs.view(-1, 3), targets.view(-1))" in begun.parts
    assert "LambdaLR(optimizer, lr_lambda=warm_up)" in begun.parts and "from train import warm_up" in begun.parts
    assert job.stop.epochs == 3


def test_losses_networks_and_batches_of_ones_own(script: Init) -> None:
    begun = script(
        of(
            """
            torch.manual_seed(11)
            model, data = build(7)
            loader = DataLoader(data, 16, shuffle=True, collate_fn=joined)
            criterion = Focal(gamma=2.0)
            optimizer = Own(model.parameters(), lr=0.1)
            step = 0
            while step < 4:
                for x, y in loader:
                    optimizer.zero_grad()
                    criterion(model(x), y).backward()
                    optimizer.step()
                    step += 1
            """,
            """
            class Focal(nn.Module):
                def __init__(self, gamma):
                    super().__init__()
                    self.gamma = gamma

                def forward(self, outputs, targets):
                    loss = F.cross_entropy(outputs, targets, reduction="none")
                    return ((1 - torch.exp(-loss)) ** self.gamma * loss).mean()


            class Own(torch.optim.SGD):
                pass


            def joined(samples):
                return torch.stack([x for x, _ in samples]), torch.stack([y for _, y in samples])


            def build(width):
                net = Net(3)
                net.inner, net.outer = nn.Linear(6, width), nn.Linear(width, 3)
                return net, TensorDataset(torch.randn(64, 6), torch.randint(0, 3, (64,)))
            """,
        )
    )
    job, data = begun.job, begun.spec.data["samples"]
    assert job.loss.name == "train:Focal" and job.loss.arguments == {"gamma": 2.0}
    assert job.optimizer.name == "train:Own" and begun.spec.seed == 11
    assert "return build(width=7)[0]" in begun.parts and "return build(width=7)[1]" in begun.parts
    assert data.collate is not None and "return joined(samples)" in begun.parts
    assert job.stop.epochs == 10 and "10 are written" in begun.output


def test_what_a_spec_cannot_say_is_told_all_at_once(script: Init) -> None:
    begun = script(
        of(
            """
            one, two = Net(4), Net(4)
            one.inner.weight.requires_grad_(False)
            groups = [{"params": [one.inner.bias]}, {"params": one.outer.parameters(), "lr": 0.1}]
            optimizer, other = torch.optim.Adam(groups), torch.optim.Adam(two.parameters())
            schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
            for x, y in DataLoader(TensorDataset(torch.randn(64, 2, 3), torch.zeros(64)), batch_size=8):
                (one(x.flatten(1)).mean() + two(x.flatten(1)).mean()).backward()
                optimizer.step()
                other.step()
                schedule.step()
            """
        )
    )
    assert begun.code == 2 and not begun.file.exists() and "no spec was written" in begun.errors
    for words in (
        "the optimizer leaves out 1 parameters, such as inner.weight; let the network's own constructor freeze them",
        "the train samples (TensorDataset of line", "such as def train_data(): return ..., and call that",
        "several optimizers step, Adam and Adam; write a task class",
        "LambdaLR cannot be written down: it has a lambda, which nothing can import",
        "the network is given the batch's inputs after flatten(); do that in the network's forward()",
        "the loss is no function of the network's outputs and the batch's targets alone",
    ):  # fmt: skip
        assert words in begun.errors, begun.errors


def test_scripts_that_never_train_say_why(script: Init, tmp_path: Path) -> None:
    failed = script("import torch\n\nopen('nowhere.npz')\n")
    assert failed.code == 2 and "line 3, `open('nowhere.npz')`: FileNotFoundError" in failed.errors
    assert "Traceback" not in failed.errors
    wrong = script("def train(:\n")
    assert wrong.code == 2 and "train.py cannot be read (line 1)" in wrong.errors and "Traceback" not in wrong.errors
    options = script(
        "import argparse\n\np = argparse.ArgumentParser()\np.add_argument('--root', required=True)\np.parse_args()\n"
    )
    assert options.code == 2 and "write its options behind --" in options.errors
    slow = script("import threading\n\nthreading.Event().wait()\n", "--within", "3")
    assert slow.code == 2 and "has not come to its second step within 3 s" in slow.errors
    killed = script("import os\nimport signal\n\nos.kill(os.getpid(), signal.SIGKILL)\n")
    assert killed.code == 2 and "before its second step" in killed.errors
    assert not list(tmp_path.glob("*.yaml")) and not list(tmp_path.glob("*_parts.py"))


def test_files_that_are_there_stay(script: Init, tmp_path: Path) -> None:
    (tmp_path / "train.yaml").write_text("mine\n")
    begun = script(HEAD)
    assert begun.code == 2 and "train.yaml: already there" in begun.errors and "--force" in begun.errors
    assert (tmp_path / "train.yaml").read_text() == "mine\n"
    assert "there is no such file" in begin(tmp_path, "trian.py").errors
    assert "name a script that ends in .py" in begin(tmp_path, "folder/train").errors


def test_a_package_that_defines_networks_and_data(tmp_path: Path) -> None:
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "networks.py").write_text(HEAD.replace("def __init__(self, width)", "def __init__(self, width=4)"))
    begun = begin(tmp_path, "mine")
    (job,) = begun.spec.jobs
    assert job.model is not None and job.model.name == "mine.networks:Net" and job.optimizer is not None
    assert begun.spec.data["samples"].train.source == "mine.networks:Rows"
    assert "are a beginning of fleet's own" in begun.output


def test_a_module_that_defines_a_task(tmp_path: Path) -> None:
    text = """
        class Job:
            def model(self):
                return Net(4)

            def optimizer(self, model):
                return torch.optim.SGD(model.parameters(), lr=0.1)

            def dataset(self, train):
                return Rows()

            def loss(self, model, batch):
                return F.cross_entropy(model(batch[0]), batch[1])
        """
    (tmp_path / "mytask.py").write_text(HEAD + textwrap.dedent(text))
    (job,) = begin(tmp_path, "mytask").spec.jobs
    assert job.task is not None and job.task.name == "mytask:Job"
    nothing = begin(tmp_path, "nothing.there")
    assert nothing.code == 2 and "nothing" in nothing.errors and "Traceback" not in nothing.errors


def test_names_that_python_or_a_spec_cannot_take(tmp_path: Path) -> None:
    """The file's name is no module's, and the script's own functions have the names of those beside the spec."""
    body = """
        net = model(Size(5))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for epoch in range(2):
            for x, y in DataLoader(Rows(), 16):
                optimizer.zero_grad()
                nn.CrossEntropyLoss()(net(x), y).backward()
                optimizer.step()
    """
    definitions = """
        class Size:
            def __init__(self, width):
                self.width = width


        def model(size):
            net = Net(3)
            net.inner, net.outer = nn.Linear(6, size.width), nn.Linear(size.width, 3)
            return net
    """
    begun = begin(tmp_path, "2 first-try.py", text=of(body, definitions))
    job = begun.job
    assert job.name == "2-first-try" and begun.spec.name == "2-first-try"
    assert job.model.name == "_2_first_try_parts:model_of_spec"
    parts = (tmp_path / "_2_first_try_parts.py").read_text()
    assert (
        "def model_of_spec():" in parts and "return model(size=Size(width=5))" in parts and "def model(size):" in parts
    )
    assert job.stop.epochs == 2 and "in their order" in begun.output


@pytest.mark.parametrize(("form", "written"), [("channels_last", "channels_last"), ("contiguous_format", None)])
def test_weights_in_channels_last(form: str, written: str | None, script: Init) -> None:
    body = """
        model = nn.Sequential(nn.Unflatten(1, (3, 1, 2)), nn.Conv2d(3, 8, (1, 2)), nn.Flatten(), nn.Linear(8, 3))
        model = model.to(memory_format=torch.channels_last)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for epoch in range(3):
            for x, y in DataLoader(Rows(64), batch_size=4, shuffle=True):
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
    """
    assert script(of(body.replace("channels_last", form))).job.memory_format == written
