package agent

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"math"
	"time"

	"github.com/tfcluster/tfcluster/cluster/agent/snapshot"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/jsonlines"
)

// maxControl bounds one line of a task's control socket, in bytes.
const maxControl = 16 << 20

// controlMessage is a line that a task wrote to its control socket.
type controlMessage struct {
	Op      string  `json:"op"`
	Seconds float64 `json:"seconds"`
	Step    int64   `json:"step"` // of a report, a stepAnswer or an activity
	Name    string  `json:"name"` // of a barrier or a copy
	Text    string  `json:"text"`
	Warning bool    `json:"warning"`

	Manifest json.RawMessage `json:"manifest"` // a TaskManifest

	// fields of one op each
	progress
	failure
	returned
	wantedCopy
	stepAnswer
	activity
	snapshot.Registration
	snapshot.Answer
}

// progress has the fields of op "report".
type progress struct {
	TotalSteps  int64              `json:"total_steps"`
	Epoch       int64              `json:"epoch"`
	TotalEpochs int64              `json:"total_epochs"`
	Metrics     map[string]float64 `json:"metrics"`
	Source      string             `json:"source"`
	WallTime    float64            `json:"wall_time"`
}

// failure is an exception that ended the program.
type failure struct {
	Exception string `json:"exception"`
	Traceback string `json:"traceback"`
}

// returned is the return value of the program's function.
type returned struct {
	JSON    string `json:"json"`
	Pickled string `json:"pickled_b64"`
	Repr    string `json:"repr"`

	Evaluated map[string]float64 `json:"evaluated"` // metrics; nil: the run is not one of evaluate
	Records   int64              `json:"records"`   // of which the metrics are
}

// wantedCopy has the fields of ctx.local_copy.
type wantedCopy struct {
	URI   string `json:"uri"`
	Share []int  `json:"share"` // i, n: every n-th file from the i-th on
}

// stepAnswer reports the program's step counter.
type stepAnswer struct {
	Round         int32   `json:"round"`
	Counter       string  `json:"counter"`
	Stride        int64   `json:"stride"`
	ReportSeconds float64 `json:"report_seconds"`
	Passed        bool    `json:"passed"`
}

// activity has the fields of op "activity", beside Seconds, Step and stepAnswer.Counter.
type activity struct {
	Phase      string   `json:"phase"`
	Marks      int64    `json:"marks"`
	OwnSeconds *float64 `json:"own_seconds"` // nil: not measured
}

// parseControl parses one line. The program may have written it itself, so its values are not
// trusted.
func parseControl(line []byte) (m controlMessage, ok bool) {
	err := json.Unmarshal(line, &m)
	return m, err == nil && m.Op != ""
}

func (m controlMessage) report(now time.Time) *clusterpb.Report {
	wall := m.WallTime
	if wall <= 0 || math.IsInf(wall, 0) || math.IsNaN(wall) {
		wall = float64(now.UnixNano()) / 1e9
	}
	return &clusterpb.Report{
		Step: m.Step, Metrics: m.Metrics, TotalSteps: m.TotalSteps, Epoch: m.Epoch,
		TotalEpochs: m.TotalEpochs, Source: m.Source, WallTime: wall,
	}
}

func (m controlMessage) step() *clusterpb.Step {
	return &clusterpb.Step{
		Round: m.Round, Counter: m.Counter, Step: m.Step, Stride: m.Stride, ReportSeconds: m.ReportSeconds, Passed: m.Passed,
	}
}

func (m controlMessage) activityOf() *clusterpb.Activity {
	a := &clusterpb.Activity{Counter: m.Counter, Step: m.Step, Phase: m.Phase, Marks: m.Marks, Seconds: m.Seconds}
	if m.OwnSeconds != nil {
		a.OwnSeconds, a.Measured = *m.OwnSeconds, true
	}
	return a
}

func (m returned) result() (*clusterpb.TaskResult, error) {
	pickled, err := base64.StdEncoding.DecodeString(m.Pickled)
	if err != nil {
		return nil, err
	}
	result := &clusterpb.TaskResult{Pickled: pickled, Json: m.JSON, Repr: m.Repr}
	if m.Evaluated != nil {
		result.Evaluation = &clusterpb.Evaluation{Metrics: m.Evaluated, Records: m.Records}
	}
	return result, nil
}

// readControl calls handle for each line until the stream ends. It skips lines that are too
// long or invalid.
func readControl(r io.Reader, handle func(controlMessage)) {
	for in := jsonlines.NewReader(r, maxControl); ; {
		line, err := in.Next()
		if err != nil && !errors.Is(err, jsonlines.ErrTooLong) {
			return
		}
		if m, ok := parseControl(line); ok {
			handle(m)
		}
	}
}
