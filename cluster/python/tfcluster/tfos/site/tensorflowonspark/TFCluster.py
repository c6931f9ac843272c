"""tfcluster.tfos.TFCluster under TensorFlowOnSpark's name."""

from tfcluster.tfos.TFCluster import *  # noqa: F403
