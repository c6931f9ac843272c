// Package python has the Python package tfcluster: the code that runs in a notebook's kernel (the shim) and in an
// executor's tasks (zygote, runner, context). The package is embedded in the binary. So both sides always have the
// same version, and nothing needs to be installed on executors.
package python
