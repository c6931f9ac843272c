"""tfcluster.tfos.TFNode under TensorFlowOnSpark's name."""

from tfcluster.tfos.TFNode import *  # noqa: F403
