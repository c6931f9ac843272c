"""tfcluster.tfos.dfutil under TensorFlowOnSpark's name."""

from tfcluster.tfos.dfutil import *  # noqa: F403
