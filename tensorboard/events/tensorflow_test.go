package events

import (
	"context"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// findPython is the project's interpreter with TensorFlow.
func findPython(t *testing.T) string {
	t.Helper()
	python := os.Getenv("TFCLUSTER_TEST_PYTHON")
	if python == "" {
		python = "../../.venv/bin/python"
	}
	path, err := filepath.Abs(python)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skipf("missing: a Python with TensorFlow (%s, or TFCLUSTER_TEST_PYTHON)", path)
	}
	return path
}

const writeEvents = `
import sys
import numpy as np, tensorflow as tf, keras
root = sys.argv[1]
with tf.summary.create_file_writer(root + "/two").as_default():
    for step in range(3):
        tf.summary.scalar("loss", 1 / (step + 1), step=step)
        tf.summary.scalar("count", step, step=step)
        tf.summary.histogram("weights", [1.0, 2.0], step=step)
        tf.summary.text("note", "hello", step=step)
with tf.Graph().as_default():
    writer = tf.compat.v1.summary.FileWriter(root + "/one")
    value = tf.compat.v1.Summary.Value(tag="loss", simple_value=0.125)
    writer.add_summary(tf.compat.v1.Summary(value=[value]), 9)
    writer.close()
model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(np.ones((8, 2)), np.ones((8, 1)), epochs=2, verbose=0,
          callbacks=[keras.callbacks.TensorBoard(root + "/keras", histogram_freq=1)])
`

func TestRealTensorFlow(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("short: TensorFlow takes seconds to import")
	}
	python := findPython(t)
	root := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-c", writeEvents, root)
	cmd.Env = append(os.Environ(), "CUDA_VISIBLE_DEVICES=", "TF_CPP_MIN_LOG_LEVEL=3")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("write events: %v\n%s", err, out)
	}
	found, err := NewDir(root, "").Next()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]Found{}
	for _, s := range found {
		key := strings.Split(filepath.ToSlash(s.File), "/")[0] + " " + s.Tag
		got[key] = append(got[key], s)
		if s.WallTime < 1e9 {
			t.Errorf("%s: written at %v", key, s.WallTime)
		}
	}
	for key, want := range map[string][]float64{
		"two loss":  {1, 0.5, 1.0 / 3},
		"two count": {0, 1, 2},
		"one loss":  {0.125},
	} {
		if len(got[key]) != len(want) {
			t.Errorf("%s: %v, want %v", key, got[key], want)
			continue
		}
		for i, s := range got[key] {
			if math.Abs(s.Value-want[i]) > 1e-6 {
				t.Errorf("%s: value %v, want %v", key, s.Value, want[i])
			}
		}
	}
	if s := got["one loss"]; len(s) == 1 && s[0].Step != 9 {
		t.Errorf("one loss at step %d, want 9", s[0].Step)
	}
	if losses := got["keras epoch_loss"]; len(losses) != 2 || losses[0].Step != 0 || losses[1].Step != 1 ||
		losses[1].Value >= losses[0].Value {
		t.Errorf("keras epoch_loss: %v, want two that fall", losses)
	}
	for key := range got {
		if strings.Contains(key, "weights") || strings.Contains(key, "note") || strings.Contains(key, "kernel") {
			t.Errorf("%s is taken for a scalar", key)
		}
	}
}
