"""Modules with the interfaces of TensorFlowOnSpark's, for programs that were written for it."""
