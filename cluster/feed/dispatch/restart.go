package dispatch

import (
	"slices"

	"google.golang.org/grpc"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/feed"
)

// A feed is one of an attempt of its run: its records are in the memory of that attempt's tasks. When all tasks are
// started again the feed ends here, and the driver has its client begin another one. The client does that, because the
// source is in its hands: what reads it has to be ended first.

// restarted is whether tasks that read a feed were started again, or will be.
func (d *Dispatch) restarted(s *session, run Run) bool {
	return run.Attempt != s.run.Attempt || d.restartedAlone(s, run) != ""
}

// restartedAlone returns a task that reads the feed and was started again while the others go on, as workers are that
// have parameter servers.
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

// again ends a feed whose tasks are started again. Its client begins another one from the first record, or the run
// fails where that cannot be.
func (d *Dispatch) again(stream grpc.BidiStreamingServer[clusterpb.FeedCommand, clusterpb.FeedUpdate], s *session, run Run) error {
	d.step(s, feed.Failed{Reason: "the tasks are started again"})
	d.forget(s) // before the client hears it: it begins another one at once
	why := &clusterpb.Failure{Kind: "task", ExitCode: 1}
	switch alone := d.restartedAlone(s, run); {
	case alone != "":
		why.Task = alone
		why.Summary = alone + " was restarted alone, and cannot be fed from the first record while the others go on"
		why.Remedy = "%tfcluster start, then train again: with parameter servers have the chief alone read the feed"
	case s.request.GetOnce():
		why.Summary = "the tasks were restarted, and an iterator, which feeds them, cannot be read from the first record again"
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
	return stream.Send(&clusterpb.FeedUpdate{Over: true}) // the run says why
}
