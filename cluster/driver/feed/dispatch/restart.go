package dispatch

import (
	"slices"

	"google.golang.org/grpc"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// A feed belongs to one attempt of its run: its records are in the memory of that attempt's tasks. When all tasks are
// restarted, the driver ends the feed and asks its client to begin another one. Only the client can begin it, because
// the readers of the source must end first, and the client owns the source.

// restarted reports whether tasks that read a feed were restarted, or will be.
func (d *Dispatch) restarted(s *session, run Run) bool {
	return run.Attempt != s.run.Attempt || d.restartedAlone(s, run) != ""
}

// restartedAlone returns a task that reads the feed and was restarted while the others continue, as happens to
// workers with parameter servers; "" if there is none.
func (d *Dispatch) restartedAlone(s *session, run Run) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, task := range run.Tasks {
		if s.holders[task.Name] != nil && run.Attempt == s.run.Attempt && !slices.Contains(s.run.Tasks, task) {
			return task.Name
		}
	}
	return ""
}

// again ends a feed with restarted tasks. Its client begins another one from the first record. If that is impossible,
// the run fails.
func (d *Dispatch) again(stream grpc.BidiStreamingServer[clusterpb.FeedCommand, clusterpb.FeedUpdate],
	s *session, run Run,
) error {
	d.fail(s, "the tasks are started again")
	d.forget(s) // before the client is informed: it begins another one at once
	why := &clusterpb.Failure{Kind: "task", ExitCode: 1}
	switch alone := d.restartedAlone(s, run); {
	case alone != "":
		why.Task = alone
		why.Summary = alone + " was restarted alone, and cannot be fed from the first record while the others go on"
		why.Remedy = "%tfcluster start, then train again: with parameter servers have the chief alone read the feed"
	case s.request.GetOnce():
		why.Summary = "the tasks were restarted, and an iterator, which feeds them, " +
			"cannot be read from the first record again"
		why.Remedy = "%tfcluster start, then train with an array, a table or a DataFrame; they can be read again"
	default:
		text := "the tasks were restarted: the feed begins again at the first record"
		if err := d.runs.Note(stream.Context(), text); err != nil {
			return err
		}
		return stream.Send(&clusterpb.FeedUpdate{Over: true, Again: true})
	}
	if err := d.runs.Fail(stream.Context(), run.ID, why); err != nil {
		return err
	}
	return stream.Send(&clusterpb.FeedUpdate{Over: true}) // the run reports why
}
