package agent

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"

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
	Name    string  `json:"name"` // of a barrier or a copy
	Text    string  `json:"text"`
	Warning bool    `json:"warning"`

	Manifest json.RawMessage `json:"manifest"` // a TaskManifest

	// of op "report", "step" and "activity", whose fields have the driver's names
	report   *clusterpb.Report
	step     *clusterpb.Step
	activity *clusterpb.Activity

	// fields of one op each
	failure
	returned
	wantedCopy
	snapshot.Registration
	snapshot.Answer
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

// parseControl parses one line. The program may have written it itself, so its values are not
// trusted.
func parseControl(line []byte) (m controlMessage, ok bool) {
	err := json.Unmarshal(line, &m)
	if err != nil {
		return m, false
	}
	switch m.Op {
	case "report":
		m.report = &clusterpb.Report{}
		err = json.Unmarshal(line, m.report)
	case "step":
		m.step = &clusterpb.Step{}
		err = json.Unmarshal(line, m.step)
	case "activity":
		own := struct {
			Seconds *float64 `json:"own_seconds"` // nil: not measured
		}{}
		m.activity = &clusterpb.Activity{}
		err = errors.Join(json.Unmarshal(line, m.activity), json.Unmarshal(line, &own))
		m.activity.Measured = own.Seconds != nil
	}
	return m, err == nil && m.Op != ""
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
