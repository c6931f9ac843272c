// Package agent is what tfcluster runs in each executor. It joins the cluster's
// coordinator, holds the executor's ports and GPUs, keeps a Python with
// TensorFlow imported, runs one task after another in it, and sends what they
// write.
//
//	coordinator ◄──Join──  link     one stream at a time, joined again when it breaks
//	            ◄──Logs──  shipper  every task's lines, from a spool
//	                       agent    instructions, runs, heartbeats, the orphan's clock
//	                       zygote   the Python that forks; its socket's end is the tasks' end
//	                       task     one program: its pipes, its control socket, its exit
//
// The agent never decides what a run does next. It tells what happened and obeys;
// only when its driver stays away does it end the tasks by itself.
package agent
