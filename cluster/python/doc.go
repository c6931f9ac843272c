// Package python holds the Python package tfcluster: what runs in a notebook's
// kernel (the shim) and in an executor's tasks (zygote, runner, context). It is
// part of the binary, so that both sides always have the same version and
// nothing needs to be installed on executors.
package python
