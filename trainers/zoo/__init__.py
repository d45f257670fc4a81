"""Networks with free depths and widths, and FLEET's ensemble of them."""

from trainers.zoo.cnn import CNN
from trainers.zoo.densenet import DenseNet
from trainers.zoo.ensemble import Network, fleet_ensemble
from trainers.zoo.mlp import MLP
from trainers.zoo.resnet import ResNet

__all__ = ["CNN", "MLP", "DenseNet", "Network", "ResNet", "fleet_ensemble"]
