"""tfcluster: distributed TensorFlow from a notebook."""
