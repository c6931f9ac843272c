"""tfcluster.tfos.compat under TensorFlowOnSpark's name."""

from tfcluster.tfos.compat import *  # noqa: F403
