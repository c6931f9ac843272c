package clusterpb

import (
	"cmp"
	"fmt"
)

// Protocol is the version of these messages. It increases when a receiver of an earlier version
// would silently ignore part of a message. Programs of one version may differ in it, because
// builds without a version exist.
//
//	1  StartRequest.start_in (start --working-dir)
//	2  StartRequest.options and Launch.options instead of a field for each option; Launch.spec_variables;
//	   Hello.protocol
//	3  HolderOrder.connect
//	4  Instruction.take_snapshot; RunOptions.fabric
//	5  Usage in Heartbeat, TaskStatus and TaskSamples
const Protocol = 5

// MaxAgentMessage is the size limit of a message between an agent and the driver, in bytes.
const MaxAgentMessage = 32 << 20

// Refuses returns why a driver of this version refuses the agent: its version or protocol
// differs; "": it does not.
func (x *Hello) Refuses(driver string) string {
	switch {
	case x.GetVersion() != driver:
		return fmt.Sprintf("its tfcluster is version %s, the driver's %s", x.GetVersion(), driver)
	case x.GetProtocol() != Protocol:
		return fmt.Sprintf("its tfcluster is another build of version %s (protocol %d) than the driver's (protocol %d)",
			driver, x.GetProtocol(), Protocol)
	}
	return ""
}

// Outdated returns why a client of this version must not start a run on the cluster: its driver
// has an earlier protocol and would ignore part of the request; "": it may.
func (x *ClusterStatus) Outdated(client string) string {
	if x.GetProtocol() >= Protocol {
		return ""
	}
	theirs, ours := cmp.Or(x.GetVersion(), "of an earlier version"), cmp.Or(client, "here")
	if theirs == ours {
		theirs, ours = fmt.Sprintf("%s of protocol %d", theirs, x.GetProtocol()),
			fmt.Sprintf("%s of protocol %d", ours, Protocol)
	}
	return fmt.Sprintf(
		"cluster %s was reserved by tfcluster %s, whose driver does not understand all that tfcluster %s asks for: "+
			"shutdown and reserve it again, or start with tfcluster %[2]s",
		x.GetName(), theirs, ours,
	)
}
