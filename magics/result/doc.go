// Package result is how a verb ends, as the kernel, the Python shim and the command line show it:
// a [Value], or an error and its [Report].
package result
