// Package kernel is a Jupyter kernel that stands before another. To clients it is the
// kernel: five ZeroMQ sockets of its own. Behind it runs ipykernel, as a child on
// private sockets with the same key, and what is not taken by the Interceptor passes
// byte for byte: Python cells, completion, widgets, the debugger, subshells.
//
//	clients ── ROUTER shell, control, stdin · XPUB iopub · ROUTER heartbeat
//	              │                                   ▲
//	              ├── Interceptor: whole cells it matches, comms it claims
//	              ▼                                   │
//	child   ── DEALER shell, control, stdin · SUB iopub (ipc, 0700)
//
// Consecutive Python cells are forwarded at once; a matched cell is a barrier: it waits
// for the Python cells before it, and those behind wait for it. A cell that may run now
// does so beside whatever is busy or hangs.
package kernel
