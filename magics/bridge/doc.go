// Package bridge connects Go and the notebook's Python. A [Gate] accepts requests of Python. A [Python] returns
// objects of the notebook. Both exchange lines of JSON with the shim in cluster/python; a program comes beside its
// line, in a file in memory ([Receiver]).
package bridge
