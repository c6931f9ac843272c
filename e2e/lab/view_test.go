package lab

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// barProgram trains with Keras' default progress bar. With the word --fail worker 1 fails in the second epoch.
const barProgram = `def main_fun(args, ctx):
    import keras
    import numpy as np
    import tensorflow as tf
    class Slow(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            import time
            time.sleep(0.02)
        def on_epoch_begin(self, epoch, logs=None):
            if "--fail" in args and epoch == 1 and ctx.task_index == 1:
                raise ValueError("<b>no such label</b> & more")
    x = np.random.default_rng(0).normal(size=(4096, 16)).astype("float32")
    y = (x.sum(axis=1) > 0).astype("int32")
    with tf.distribute.MultiWorkerMirroredStrategy().scope():
        model = keras.Sequential([keras.layers.Dense(32, "relu"), keras.layers.Dense(1)])
        model.compile("adam", keras.losses.BinaryCrossentropy(from_logits=True), metrics=["accuracy"])
    model.fit(x, y, batch_size=128, epochs=4, callbacks=[Slow()])
    return {"accuracy": 1}`

// TestViews shows the views of a run in a light and a dark theme, and in a notebook that is not trusted: one
// progress bar while the run goes on, with status --now beside it, and one line per epoch afterwards, the failure,
// the curves as images.
func TestViews(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("short: starts JupyterLab, TensorFlow, TensorBoard and a browser")
	}
	s := Start(t, install(t))
	nb := s.WriteNotebook(t, "views.ipynb", "tfcluster",
		"%tfcluster reserve --workers 2", barProgram, "%tfcluster start main_fun", "run = %tfcluster wait",
		"%tfcluster status --now", "%tfcluster start main_fun --fail", "%tfcluster wait", "%tfcluster history",
		"%tfcluster tensorboard", "%tfcluster shutdown")
	r := s.RunNotebook(t, nb, "run:0", "idle", "run:1", "run:2", "run:3", "text:epoch 2 of 4", "run:4",
		"text:, running\\s+since ", "shot:bar", "text:run 1 · main_fun · finished", "idle", "shot:trained", "run:5", "run:6",
		"text:RunFailed", "idle", "shot:failed", "run:7", "idle", "run:8", "idle", "frame:tb-webapp", "run:9",
		"text:released in", "idle", "shot:released", "theme:JupyterLab Dark", "select:4", "shot:dark-status", "select:6",
		"shot:dark-failed", "select:8", "shot:dark-released", "save")
	if len(r.Failed) > 0 || len(r.Console) > 0 {
		t.Errorf("failed requests %v, console %q", r.Failed, r.Console)
	}
	if strings.Contains(r.Text, "\b") || len(regexp.MustCompile(`32/32`).FindAllString(r.Text, -1)) < 4 {
		t.Errorf("the notebook shows:\n%s", r.Text)
	}
	if strings.Contains(r.Text, "progress.py") {
		t.Errorf("the traceback has frames of tfcluster's own:\n%s", r.Text)
	}
	s.untrusted(t, nb, "untrusted.ipynb")
	r = s.RunNotebook(t, "untrusted.ipynb", "select:3", "shot:untrusted", "select:8", "shot:untrusted-curves")
	for _, want := range []string{
		"run 1 · main_fun · finished", "the cluster was released", "ValueError: <b>no such label</b> & more",
	} {
		if !strings.Contains(r.Text, want) {
			t.Errorf("the untrusted notebook does not show %q:\n%s", want, r.Text)
		}
	}
}

// untrusted copies a saved notebook with another source, which removes its signature.
func (s *Server) untrusted(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(s.Root, from))
	if err != nil {
		t.Fatal(err)
	}
	b = bytes.Replace(b, []byte("%tfcluster history"), []byte("%tfcluster history --all"), 1)
	if !json.Valid(b) {
		t.Fatalf("not a notebook:\n%s", b)
	}
	if err := os.WriteFile(filepath.Join(s.Root, to), b, 0o600); err != nil {
		t.Fatal(err)
	}
}
