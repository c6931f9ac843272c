"""TensorFlowOnSpark's names for the modules of tfcluster.tfos: see tfcluster install --tensorflowonspark."""
