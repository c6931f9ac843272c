"""tfcluster.tfos.TFParallel under TensorFlowOnSpark's name."""

from tfcluster.tfos.TFParallel import *  # noqa: F403
