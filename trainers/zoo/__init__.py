"""Networks with free depths and widths, and FLEET's ensemble of them."""

from trainers.zoo.ensemble import Network, fleet_ensemble
from trainers.zoo.networks import CNN, GPT, MLP, VGG, DenseNet, ResNet, ShuffleNetV2

__all__ = ["CNN", "GPT", "MLP", "VGG", "DenseNet", "Network", "ResNet", "ShuffleNetV2", "fleet_ensemble"]
