package wire

import "encoding/json"

// ExecuteRequest is the content of execute_request.
type ExecuteRequest struct {
	Code            string         `json:"code"`
	Silent          bool           `json:"silent"`
	StoreHistory    *bool          `json:"store_history,omitempty"` // default: not silent
	UserExpressions map[string]any `json:"user_expressions"`
	AllowStdin      bool           `json:"allow_stdin"`
	StopOnError     *bool          `json:"stop_on_error,omitempty"` // default: true
}

// Stores reports whether the request increments the count and is stored in the history.
func (r *ExecuteRequest) Stores() bool {
	if r.StoreHistory == nil {
		return !r.Silent
	}
	return *r.StoreHistory && !r.Silent
}

// Stops reports whether an error aborts the cells queued after it; never for a silent request.
func (r *ExecuteRequest) Stops() bool {
	return !r.Silent && (r.StopOnError == nil || *r.StopOnError)
}

// ExecuteReply is the content of an execute_reply with an error, and the part of any
// execute_reply that the kernel reads.
type ExecuteReply struct {
	Status         string   `json:"status"`
	ExecutionCount int      `json:"execution_count"`
	EName          string   `json:"ename,omitempty"`
	EValue         string   `json:"evalue,omitempty"`
	Traceback      []string `json:"traceback,omitempty"`
}

// ExecuteOK is the content of a successful execute_reply; all its members are encoded even if
// empty.
type ExecuteOK struct {
	Status          string         `json:"status"`
	ExecutionCount  int            `json:"execution_count"`
	UserExpressions map[string]any `json:"user_expressions"`
	Payload         []any          `json:"payload"`
}

// NewExecuteOK returns the reply of a success without payload or expressions.
func NewExecuteOK(count int) ExecuteOK {
	return ExecuteOK{Status: "ok", ExecutionCount: count, UserExpressions: map[string]any{}, Payload: []any{}}
}

// Error is the content of error on IOPub.
type Error struct {
	EName     string   `json:"ename"`
	EValue    string   `json:"evalue"`
	Traceback []string `json:"traceback"`
}

// Status is the content of status: busy, idle, starting.
type Status struct {
	ExecutionState string `json:"execution_state"`
}

// Stream is the content of stream.
type Stream struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// ExecuteInput is the content of execute_input.
type ExecuteInput struct {
	Code           string `json:"code"`
	ExecutionCount int    `json:"execution_count"`
}

// Display is the content of display_data and update_display_data.
type Display struct {
	Data      map[string]any `json:"data"`
	Metadata  map[string]any `json:"metadata"`
	Transient map[string]any `json:"transient,omitempty"`
}

// ExecuteResult is the content of execute_result.
type ExecuteResult struct {
	ExecutionCount int            `json:"execution_count"`
	Data           map[string]any `json:"data"`
	Metadata       map[string]any `json:"metadata"`
}

// CursorRequest is the common part of complete_request and inspect_request; the cursor counts
// code points.
type CursorRequest struct {
	Code   string `json:"code"`
	Cursor int    `json:"cursor_pos"`
}

// CommOpen is the content of comm_open.
type CommOpen struct {
	CommID string          `json:"comm_id"`
	Target string          `json:"target_name"`
	Data   json.RawMessage `json:"data"`
}

// CommData is the content of comm_msg and comm_close.
type CommData struct {
	CommID string          `json:"comm_id"`
	Data   json.RawMessage `json:"data"`
}

// CommMessage is the content of a comm_msg that the kernel sends.
type CommMessage struct {
	CommID string `json:"comm_id"`
	Data   any    `json:"data"`
}

// Shutdown is the content of shutdown_request and shutdown_reply.
type Shutdown struct {
	Status  string `json:"status,omitempty"`
	Restart bool   `json:"restart"`
}
