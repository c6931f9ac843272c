// Package kernel is a Jupyter kernel that runs in front of another one. Clients connect to its
// five ZeroMQ sockets. Behind it runs ipykernel, as a child process with private sockets and
// the same key. Messages that the Interceptor does not handle are forwarded unchanged: Python
// cells, completion, widgets, the debugger, subshells.
//
//	clients ── ROUTER shell, control, stdin · XPUB iopub · ROUTER heartbeat
//	              │                                   ▲
//	              ├── Interceptor: whole cells it matches, comms it claims
//	              ▼                                   │
//	child   ── DEALER shell, control, stdin · SUB iopub (ipc, 0700)
//
// Consecutive Python cells are forwarded at once. A matched cell is a barrier: it waits for the
// Python cells before it, and the cells after it wait for it. A matched cell in mode Now runs
// immediately, even while another cell runs or hangs.
package kernel
