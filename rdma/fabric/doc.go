// Package fabric finds out by which network the tasks of a cluster can reach each other, and chooses the settings of
// NCCL, gloo and TensorFlow for it.
//
//	host.go      what Detect reads on this machine
//	detect.go    Detect: the network of one executor, from sysfs, its interfaces and its environment
//	gid.go       the addresses of a RoCE port
//	nearness.go  how near a port is to the executor's GPUs
//	conf.go      NCCL's own settings: environment and nccl.conf
//	decide.go    Decide: compares the executors of a cluster, and chooses the kind of link that all have
//	ports.go     which ports of an executor NCCL is to use
//	settings.go  the settings of each executor, each with its reason
//	calls.go     the port of its collective calls
//	choice.go    what NCCL really chose, from the lines that it writes with NCCL_DEBUG=INFO
//
// Detect and Decide are pure: they open no library and no connection. The layout of sysfs is described in Linux'
// Documentation/ABI/stable/sysfs-class-infiniband, the settings in NCCL's user guide (Environment Variables), and what
// NCCL does without them in its source (src/transport/net_ib, src/misc/socket.cc).
package fabric
