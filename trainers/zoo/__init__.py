"""Networks with free depths and widths, and FLEET's ensemble of them."""

from trainers.zoo.cnn import CNN
from trainers.zoo.densenet import DenseNet
from trainers.zoo.ensemble import Network, fleet_ensemble
from trainers.zoo.gpt import GPT
from trainers.zoo.mlp import MLP
from trainers.zoo.resnet import ResNet
from trainers.zoo.shufflenet import ShuffleNetV2
from trainers.zoo.vgg import VGG

__all__ = ["CNN", "GPT", "MLP", "VGG", "DenseNet", "Network", "ResNet", "ShuffleNetV2", "fleet_ensemble"]
