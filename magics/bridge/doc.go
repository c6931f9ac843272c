// Package bridge joins Go and the notebook's Python: a [Gate] takes what Python asks for, and a
// [Python] gives the notebook's objects. Both speak JSON lines with the shim in cluster/python.
package bridge
