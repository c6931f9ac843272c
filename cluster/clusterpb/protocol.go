package clusterpb

import (
	"cmp"
	"fmt"
)

// Protocol is the number of these messages. It rises when one program sends another what that
// would pass over without a word, were it of an earlier number: programs of one version, as
// builds without a version are, may differ in it.
//
//	1  StartRequest.start_in (start --working-dir)
//	2  StartRequest.options and Launch.options, in place of a field for each; Launch.spec_variables;
//	   Hello.protocol
const Protocol = 2

// MaxAgentMessage is the size limit of a message between an agent and the driver, in bytes.
const MaxAgentMessage = 32 << 20

// Refuses says why a driver of a version does not take the agent: it is of another version, or
// of another protocol; "": it is neither.
func (x *Hello) Refuses(driver string) string {
	switch {
	case x.GetVersion() != driver:
		return fmt.Sprintf("its tfcluster is version %s, the driver's %s", x.GetVersion(), driver)
	case x.GetProtocol() != Protocol:
		return fmt.Sprintf("its tfcluster is another build of version %s (protocol %d) than the driver's (protocol %d)", driver, x.GetProtocol(), Protocol)
	}
	return ""
}

// Outdated says why a client of a version must not start a run on the cluster, whose driver is
// of an earlier protocol and would pass over a part of what it is sent; "": it may.
func (x *ClusterStatus) Outdated(client string) string {
	if x.GetProtocol() >= Protocol {
		return ""
	}
	theirs, ours := cmp.Or(x.GetVersion(), "of an earlier version"), cmp.Or(client, "here")
	if theirs == ours {
		theirs, ours = fmt.Sprintf("%s of protocol %d", theirs, x.GetProtocol()), fmt.Sprintf("%s of protocol %d", ours, Protocol)
	}
	return fmt.Sprintf(
		"cluster %s was reserved by tfcluster %s, whose driver does not understand all that tfcluster %s asks for: shutdown and reserve it again, or start with tfcluster %[2]s",
		x.GetName(), theirs, ours,
	)
}
