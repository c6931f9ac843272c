package magics

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Python reaches the notebook's objects. A nil Python, and one whose interpreter
// is dead or busy with something that holds it, means that names cannot be looked
// up; verbs that need none go on.
type Python interface {
	// Call asks the shim for fn and decodes its answer into reply. The error is a
	// *PythonError when Python answered with an exception, ErrNoPython when nobody
	// answers.
	Call(ctx context.Context, fn string, args, reply any) error
}

// ErrNoPython says that the notebook's Python cannot be asked.
var ErrNoPython = errors.New("the notebook's Python does not answer: it is dead, busy, or has not loaded tfcluster")

// PythonError is an exception that Python answered with.
type PythonError struct{ Name, Text string }

// Error is "NameError: name 'x' is not defined".
func (e *PythonError) Error() string {
	if e.Name == "" || e.Name == "UsageError" {
		return e.Text
	}
	return e.Name + ": " + e.Text
}

// How long Python may take to answer.
const (
	lookupTimeout  = 30 * time.Second // names and expressions
	programTimeout = 5 * time.Minute  // pickling a program and what it holds
	glanceTimeout  = 2 * time.Second  // what is shown if it comes in time
)

// ask calls Python within a deadline.
func ask(ctx context.Context, py Python, limit time.Duration, fn string, args, reply any) error {
	if py == nil {
		return ErrNoPython
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := py.Call(ctx, fn, args, reply)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %s: %w", limit, ErrNoPython)
	}
	return err
}

// tokens turns a line into words. A --now line is taken as it stands: it works
// while Python is busy or dead.
func (t *Table) tokens(ctx context.Context, line string, py Python) ([]token, error) {
	now := t.isNow(line)
	words, err := lex(line, !now)
	if err != nil {
		return nil, &UsageError{Text: err.Error()}
	}
	names, err := lookup(ctx, words, py)
	if err != nil {
		return nil, err
	}
	tokens := make([]token, 0, len(words))
	for _, w := range words {
		var b strings.Builder
		for _, s := range w.segments {
			switch s.kind {
			case segName:
				b.WriteString(names[s.text])
			case segExpr:
				text, err := evaluate(ctx, s.text, py)
				if err != nil {
					return nil, err
				}
				b.WriteString(text)
			default:
				b.WriteString(s.text)
			}
		}
		_, literal := w.literal()
		tokens = append(tokens, token{text: b.String(), quoted: w.quoted || !literal})
	}
	return tokens, nil
}

// lookup asks for every $name of a line at once.
func lookup(ctx context.Context, words []word, py Python) (map[string]string, error) {
	wanted := map[string]bool{}
	for _, w := range words {
		for _, s := range w.segments {
			if s.kind == segName {
				wanted[s.text] = true
			}
		}
	}
	if len(wanted) == 0 {
		return nil, nil
	}
	names := slices.Sorted(maps.Keys(wanted))
	found := map[string]*string{}
	if err := ask(ctx, py, lookupTimeout, "expand", map[string]any{"names": names}, &found); err != nil {
		return nil, expandError("$"+names[0], err)
	}
	texts := map[string]string{}
	for _, n := range names {
		if found[n] == nil {
			return nil, &UsageError{Text: fmt.Sprintf("$%s: the notebook has no name %s; $$ is a literal $, and nothing is expanded inside single quotes", n, n)}
		}
		texts[n] = *found[n]
	}
	return texts, nil
}

func evaluate(ctx context.Context, expr string, py Python) (string, error) {
	var text string
	if err := ask(ctx, py, lookupTimeout, "eval", map[string]any{"expr": expr}, &text); err != nil {
		return "", expandError("{"+shorten(expr, 60)+"}", err)
	}
	return text, nil
}

func expandError(what string, err error) error {
	if pe, ok := errors.AsType[*PythonError](err); ok {
		return &UsageError{Text: what + ": " + pe.Error()}
	}
	return fmt.Errorf("expand %s: %w", what, err)
}
