"""tfcluster.tfos.util under TensorFlowOnSpark's name."""

from tfcluster.tfos.util import *  # noqa: F403
