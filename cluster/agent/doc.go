// Package agent runs in each executor. It joins the cluster's coordinator, holds the executor's
// ports and GPUs, keeps a Python with TensorFlow imported, forks tasks from it, and sends their
// lines.
//
//	coordinator ◄──Join──  link     one stream at a time, reopened when it breaks
//	            ◄──Logs──  shipper  every task's lines, from a spool
//	                       agent    instructions, runs, heartbeats, timeouts without a driver
//	                       zygote   the Python that forks tasks, which end when its socket closes
//	                       task     one program: its pipes, its control socket, its exit
//
// The coordinator decides what a run does next; the agent reports events and obeys. Only after a
// grace time without a driver does it end the tasks itself.
package agent
