package agent

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/manifest"
)

// remember adds an event to those that are repeated to a coordinator after a reconnection. Notes and steps would be out
// of date then. Parts of a task's manifest become one: a program that copies data in a loop sends one for each copy.
func remember(events []*clusterpb.TaskEvent, e *clusterpb.TaskEvent) []*clusterpb.TaskEvent {
	if e.GetNote() != nil || e.GetStep() != nil {
		return events
	}
	if e.GetManifest() != nil {
		i := slices.IndexFunc(events, func(old *clusterpb.TaskEvent) bool {
			return old.GetManifest() != nil && old.GetTask() == e.GetTask() && old.GetAttempt() == e.GetAttempt()
		})
		if i >= 0 {
			whole := proto.CloneOf(events[i]) // which may be being sent
			whole.Event = &clusterpb.TaskEvent_Manifest{Manifest: manifest.Merge(whole.GetManifest(), e.GetManifest())}
			events[i] = whole
			return events
		}
	}
	return append(slices.DeleteFunc(events, func(old *clusterpb.TaskEvent) bool { return replaces(e, old) }), e)
}

// replaces returns whether an event makes an older one out of date, so that only the newer one is repeated to a
// coordinator after a reconnection.
func replaces(e, old *clusterpb.TaskEvent) bool {
	return old.GetTask() == e.GetTask() &&
		(e.GetReport() != nil && old.GetReport() != nil || e.GetActivity() != nil && old.GetActivity() != nil ||
			e.GetNccl() != nil && old.GetNccl() != nil)
}
