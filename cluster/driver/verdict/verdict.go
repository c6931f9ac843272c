// Package verdict finds out which tasks hold a run up. It takes what tasks report and snapshots of their stacks, does
// no I/O and reads no clock.
//
//	frames.go      what the frames of libraries mean
//	classify.go    what a task is doing, from its snapshots
//	waits.go       what a thread waits for, from its wait channel
//	judge.go       which tasks hold the others up
//	text.go        a verdict in one line
//	snapshots.go   which agents have answered with the stacks of their tasks
//	monitor.go     when a run makes no step for too long: the automatic check
//	stragglers.go  time of a step outside of collective operations
//
// A wrong alarm costs more than a missing one: where the evidence disagrees, a verdict says that it is not sure.
package verdict

import (
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Class is what a task is doing, as its stack shows.
type Class string

// Classes of tasks.
const (
	Collective Class = "collective" // waits for other tasks in a collective operation or a barrier
	Computing  Class = "computing"
	Input      Class = "input"      // reads or waits for training data
	Lock       Class = "lock"       // waits within its own host: for a lock, a queue, a thread, a child process or a time
	IO         Class = "io"         // waits for a file or the network
	Checkpoint Class = "checkpoint" // saves, loads or exports a model
	Stopped    Class = "stopped"    // by a signal or a debugger
	Exit       Class = "exit"       // its program has ended, or is ending
	Unknown    Class = "unknown"
)

// Phase is the part of a training in which a program is.
type Phase string

// Phases of a program. The programs report them by these names.
const (
	NoPhase       Phase = ""
	FirstStep     Phase = "first_step" // from the beginning of training to the end of its first step
	Steps         Phase = "step"
	BetweenEpochs Phase = "between_epochs"
	Validation    Phase = "validation"
	Saving        Phase = "checkpoint"
	Exporting     Phase = "export"
	AfterTraining Phase = "after_training"
)

// Task is what is known about a task.
type Task struct {
	ID    cluster.TaskID
	State string // as TaskStatus.state
	Host  string
	// Step is the last step that has ended, and Age the time since then; -1: no step is known.
	Step int64
	Age  time.Duration
	// Snapshots are the last ones, oldest first; empty: Missing says why.
	Snapshots []*clusterpb.Snapshot
	Missing   string
	CPU       float64 // percent of a core since the heartbeat before the last one; -1: unknown
	GPU       float64 // percent, the mean of the task's GPUs; -1: it has none
	Serves    bool    // it is in tf.distribute.Server.join: others have it compute
}

// trains returns whether other tasks wait for a task in collective operations.
func (t *Task) trains() bool { return cluster.Trains(t.ID.Role) }

// over returns whether a task's program has ended.
func (t *Task) over() bool { return t.State == "exited" || t.State == "ended" || t.State == "lost" }

// Run is what is known about the active run.
type Run struct {
	ID        int32
	Silence   time.Duration // since the last sign of progress of any task; -1: its program reports none
	Median    time.Duration // of the last steps; 0: unknown
	FeedWaits bool          // its tasks wait for `train DATA`
}

// Finding is what a task is doing.
type Finding struct {
	Class     Class
	Where     string // innermost frame of the user's program: load_batch (mnist.py:33); "": there is none
	Detail    string // more about it: waiting for a file
	Operation string // of class Collective: all-reduce, barrier; "": not known
	Phase     Phase  // which the stack shows: Saving, Exporting or Validation; NoPhase otherwise
	CPU       float64

	// firm: the class follows from a frame or a state, not only from low use of the CPU.
	firm bool
	// fixed: the task is at the same place in all snapshots.
	fixed bool
	// native: it waits in native code that its program has called, for something that is not known.
	native bool
	feed   bool // it waits for records of the feed
	loads  bool // of class Checkpoint: it loads one
	// function is of Where, without the line, to compare two snapshots.
	function string
}

// Verdict says which tasks hold a run up.
type Verdict struct {
	Culprits []cluster.TaskID
	// Certain: the evidence agrees. Without culprits it is false.
	Certain bool
	Text    string // one line
	// Moves: nothing holds the run up. It makes steps, or waits for data.
	Moves bool
	// Held: other tasks wait for the culprits.
	Held bool
	// Guess: the culprits wait like the others, and differ in something else.
	Guess bool
	// Stuck: no task is seen to compute, so that something is wrong even if there are no culprits.
	Stuck bool
	// Computing: each culprit computes, and may go on by itself.
	Computing bool
	// Phase is what the culprits are in, as their stacks show; NoPhase if they show none.
	Phase Phase
	// Findings are in the order of the tasks.
	Findings []Finding
}

// Reply returns a verdict as a message.
func (v *Verdict) Reply(run int32, tasks []Task) *clusterpb.WhyReply {
	r := &clusterpb.WhyReply{Run: run, Certain: v.Certain, Text: v.Text}
	for _, id := range v.Culprits {
		r.Culprits = append(r.Culprits, id.String())
	}
	for i := range tasks {
		t, f := &tasks[i], &v.Findings[i]
		row := &clusterpb.TaskFinding{
			Task: t.ID.String(), State: t.State, Host: t.Host, Class: string(f.Class), Where: f.Where, CpuPercent: f.CPU,
			Detail: f.Detail,
		}
		if t.Age >= 0 {
			row.Step, row.StepAgeSeconds = t.Step, t.Age.Seconds()
		}
		r.Tasks = append(r.Tasks, row)
	}
	return r
}
