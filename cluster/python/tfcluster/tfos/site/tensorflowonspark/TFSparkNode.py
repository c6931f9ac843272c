"""tfcluster.tfos.TFSparkNode under TensorFlowOnSpark's name."""

from tfcluster.tfos.TFSparkNode import *  # noqa: F403
