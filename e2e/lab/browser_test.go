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

// stepTimeout bounds each step, browserTimeout all steps.
const (
	stepTimeout    = 3 * time.Minute
	browserTimeout = 9 * time.Minute
)

// Result is what a browser showed of a notebook. Jupyter's tokens are replaced.
type Result struct {
	Text    string    // the notebook's visible text, without that of frames
	Cells   []Cell    // the front end's cells, saved or not
	Frames  []string  // URLs of the page's frames
	Failed  []Request // requests that failed or had a status of 400 or more
	Console []string  // errors in the console
	Shots   []string  // screenshots
	Steps   []Step
	Error   string // the step that failed, and the reason
}

// Cell is a cell of a notebook.
type Cell struct {
	Type    string
	Source  string
	Count   int      // execution count; 0 if the cell was not run
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
	Status int    // 0 if there was no response
	Reason string // the reason of a failure
}

func (r Request) String() string {
	return fmt.Sprintf("%s %s: %d %s", r.Method, r.URL, r.Status, r.Reason)
}

// Step is a step and its duration.
type Step struct {
	Step   string
	Millis int
}

// WriteNotebook writes a notebook of code cells for a kernel, and returns its name for RunNotebook.
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

// RunNotebook opens a notebook below s.Root in a browser and performs the steps, which run.mjs describes.
// Without steps it runs all cells. The test fails if a step fails.
func (s *Server) RunNotebook(t testing.TB, notebook string, steps ...string) Result {
	t.Helper()
	dir := filepath.Join(repository(t), "e2e", "lab")
	node, chromium := browserPrograms(t, dir)
	shots := t.ArtifactDir()
	ctx, cancel := context.WithTimeout(t.Context(), browserTimeout)
	defer cancel()
	args := []string{
		filepath.Join(dir, "run.mjs"), notebook, "--base", s.Base, "--page", s.page, "--shots", shots,
		"--chromium", chromium, "--timeout", fmt.Sprint(int(stepTimeout.Seconds())),
	}
	if s.hub != "" {
		args = append(args, "--hub", s.hub)
	}
	cmd := exec.CommandContext(ctx, node, append(append(args, "--"), steps...)...)
	cmd.Env = append(os.Environ(), "JUPYTER_TOKEN="+s.token, "HOME="+s.Home)
	cmd.WaitDelay = 10 * time.Second // for the end of its browser
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run() // fails if a step fails, but prints JSON in any case
	var r Result
	if jerr := json.Unmarshal(stdout.Bytes(), &r); jerr != nil {
		t.Fatalf("browser: %v, %v\n%s%s", err, jerr, stdout.String(), stderr.String())
	}
	if r.Error != "" {
		t.Errorf("browser: step %s\nthe notebook shows:\n%s\nfailed requests: %v\nconsole: %s",
			r.Error, r.Text, r.Failed, strings.Join(r.Console, "\n"))
	}
	return r
}

// browserPrograms returns the paths of Node and Chromium, or skips the test.
func browserPrograms(t testing.TB, dir string) (node, chromium string) {
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
