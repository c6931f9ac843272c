package clustertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Run is a run under test, whose lines are collected until its end.
type Run struct {
	c      *Cluster
	Status *clusterpb.RunStatus
	mu     sync.Mutex
	lines  []string
	notes  []string
	done   chan struct{}
}

// Script starts a Python script on every task and waits until all have entered it. The test fails if they do
// not.
func (c *Cluster) Script(body string, change ...func(*clusterpb.StartRequest)) *Run {
	c.T.Helper()
	r, f := c.TryScript(body, change...)
	if f != nil {
		c.T.Fatalf("start: %s\n%s", f.GetSummary(), strings.Join(f.GetLines(), "\n"))
	}
	return r
}

// TryScript is Script for a start that may fail.
func (c *Cluster) TryScript(body string, change ...func(*clusterpb.StartRequest)) (*Run, *clusterpb.Failure) {
	c.T.Helper()
	req := &clusterpb.StartRequest{Program: &clusterpb.Program{
		Kind: clusterpb.Program_SCRIPT, Name: "test.py", Path: "test.py", Body: &clusterpb.Blob{Data: []byte(body)},
	}, Options: &clusterpb.RunOptions{WorkingDir: c.Dir, Callback: true, KerasPatch: true, Mode: "train"}}
	for _, f := range change {
		f(req)
	}
	ctx, cancel := context.WithTimeout(context.Background(), Deadline)
	defer cancel()
	s, err := c.Client.Start(ctx, req)
	if err != nil {
		c.T.Fatalf("start: %v", err)
	}
	for {
		u, err := s.Recv()
		if err != nil {
			c.T.Fatalf("start: %v\n%s", err, c.driverLog())
		}
		if u.GetFailure() != nil {
			return &Run{c: c, Status: u.GetRun()}, u.GetFailure()
		}
		if u.GetEntered() {
			return c.follow(u.GetRun()), nil
		}
	}
}

// Run follows a run from its first line.
func (c *Cluster) Run(id int32) *Run { return c.follow(&clusterpb.RunStatus{Id: id}) }

func (c *Cluster) follow(st *clusterpb.RunStatus) *Run {
	r := &Run{c: c, Status: st, done: make(chan struct{})}
	ctx, cancel := context.WithTimeout(context.Background(), Deadline)
	s, err := c.Follow(ctx, &clusterpb.FollowRequest{Run: st.GetId(), FromStart: true, Burst: 100_000})
	if err != nil {
		c.T.Fatalf("follow: %v", err)
	}
	go func() {
		defer cancel()
		defer close(r.done)
		for {
			u, err := s.Recv()
			if err != nil {
				if !errors.Is(err, io.EOF) {
					r.note("follow: " + err.Error())
				}
				return
			}
			r.update(u)
		}
	}()
	return r
}

func (r *Run) note(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes = append(r.notes, text)
}

func (r *Run) update(u *clusterpb.RunUpdate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range append(u.GetLines().GetHead(), u.GetLines().GetTail()...) {
		r.lines = append(r.lines, "["+l.GetTask()+"] "+l.GetText())
	}
	for _, n := range u.GetNotes() {
		r.notes = append(r.notes, n.GetText())
	}
	if u.GetStatus() != nil {
		r.Status = u.GetStatus()
	}
}

// Wait waits for the run's end and returns its status.
func (r *Run) Wait() *clusterpb.RunStatus {
	r.c.T.Helper()
	select {
	case <-r.done:
	case <-time.After(Deadline):
		r.c.T.Fatalf("run %d does not end; lines:\n%s\n%s", r.Status.GetId(), r.Text(), r.c.driverLog())
	}
	return r.Now()
}

// Now returns the run's last status.
func (r *Run) Now() *clusterpb.RunStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Status
}

// Text returns all lines so far, as a cell shows them.
func (r *Run) Text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.lines, "\n")
}

// Notes returns the driver's notes.
func (r *Run) Notes() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.notes, "\n")
}

// Line waits until a line contains the text.
func (r *Run) Line(text string) {
	r.c.T.Helper()
	WaitFor(r.c.T, fmt.Sprintf("a line with %q", text), func() bool { return strings.Contains(r.Text(), text) })
}
