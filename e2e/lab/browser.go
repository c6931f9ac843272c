package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// stepTimeout bounds each step; browserTimeout all of them.
const (
	stepTimeout    = 3 * time.Minute
	browserTimeout = 9 * time.Minute
)

// Result is what a browser saw of a notebook. Tokens of Jupyter are blotted out.
type Result struct {
	Text    string    // of the notebook, as it is read; frames' text is not in it
	Cells   []Cell    // as the front end holds them, saved or not
	Frames  []string  // the addresses of the page's frames
	Failed  []Request // requests that failed, or were answered 400 and more
	Console []string  // errors in the console
	Shots   []string  // screenshots
	Steps   []Step
	Error   string // the step that failed, and why
}

// Cell is a cell of a notebook.
type Cell struct {
	Type    string
	Source  string
	Count   int      // 0: was not run
	Outputs []Output // as in nbformat
}

// Output is a cell's output, as in nbformat.
type Output struct {
	Type     string                     `json:"output_type"`
	Name     string                     `json:"name"` // of a stream
	Text     json.RawMessage            `json:"text"`
	Data     map[string]json.RawMessage `json:"data"`
	EName    string                     `json:"ename"`
	EValue   string                     `json:"evalue"`
	Metadata map[string]json.RawMessage `json:"metadata"`
}

// Request is a request of the page or of a frame in it.
type Request struct {
	Method string
	URL    string
	Status int    // 0: there was no answer
	Reason string // why
}

func (r Request) String() string {
	return fmt.Sprintf("%s %s: %d %s", r.Method, r.URL, r.Status, r.Reason)
}

// Step is a step that was done, and how long it took.
type Step struct {
	Step   string
	Millis int
}

// WriteNotebook makes a notebook of code cells for a kernel, and returns its name for
// RunNotebook.
func (s *Server) WriteNotebook(t testing.TB, name, kernel string, cells ...string) string {
	t.Helper()
	type object = map[string]any
	list := []object{}
	for i, source := range cells {
		list = append(list, object{
			"cell_type": "code", "id": fmt.Sprintf("cell-%d", i), "source": source,
			"metadata": object{}, "outputs": []any{}, "execution_count": nil,
		})
	}
	b, err := json.Marshal(object{
		"nbformat": 4, "nbformat_minor": 5, "cells": list,
		"metadata": object{"kernelspec": object{"name": kernel, "display_name": kernel, "language": "python"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.Root, name), b, 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

// RunNotebook opens a notebook below s.Root in a browser and does the steps that run.mjs
// describes; without steps it runs all cells. A step that fails fails the test.
func (s *Server) RunNotebook(t testing.TB, notebook string, steps ...string) Result {
	t.Helper()
	dir := filepath.Join(repository(t), "e2e", "lab")
	node, chromium := needed(t, dir)
	shots := t.ArtifactDir()
	ctx, cancel := context.WithTimeout(t.Context(), browserTimeout)
	defer cancel()
	words := []string{
		filepath.Join(dir, "run.mjs"), notebook, "--base", s.Base, "--shots", shots,
		"--chromium", chromium, "--timeout", fmt.Sprint(int(stepTimeout.Seconds())), "--",
	}
	cmd := exec.CommandContext(ctx, node, append(words, steps...)...)
	cmd.Env = append(os.Environ(), "JUPYTER_TOKEN="+s.token, "HOME="+s.Home)
	cmd.WaitDelay = 10 * time.Second // for its browser
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run() // fails where a step does; then there is JSON all the same
	var r Result
	if jerr := json.Unmarshal(stdout.Bytes(), &r); jerr != nil {
		t.Fatalf("browser: %v, %v\n%s%s", err, jerr, stdout.String(), stderr.String())
	}
	if r.Error != "" {
		t.Errorf("browser: step %s\nit showed:\n%s\nfailed requests: %v\nconsole: %s",
			r.Error, r.Text, r.Failed, strings.Join(r.Console, "\n"))
	}
	return r
}

// needed are Node and Chromium.
func needed(t testing.TB, dir string) (node, chromium string) {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("missing: node")
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "playwright-core")); err != nil {
		t.Skip("missing: e2e/lab/node_modules (npm ci in e2e/lab)")
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return node, path
		}
	}
	t.Skip("missing: chromium")
	return "", ""
}
