package errtext

import (
	"os"
	"strings"
	"testing"
)

// TestHarmless: lines of TensorFlow and frames of our own; lines of a program are shown.
func TestHarmless(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"W0000 00:00:1795425002.309419   13436 dataset.cc:997] Input of GeneratorDatasetOp::Dataset will not be optimized " +
			"because the dataset does not implement the AsGraphDefInternal() method needed to apply optimizations.": true,
		"2026-11-23 09:10:02.309419: I tensorflow/core/framework/local_rendezvous.cc:407] Local rendezvous is aborting " +
			"with status: OUT_OF_RANGE: End of sequence": true,
		"2026-11-23 09:10:02.309419: W tensorflow/core/framework/local_rendezvous.cc:407] Local rendezvous is aborting " +
			"with status: UNAVAILABLE: Connection reset by peer": false,
		"E0000 00:00:1795425002.309419   13436 cuda_dnn.cc:8579] Unable to register cuDNN factory: " +
			"Attempting to register factory for plugin cuDNN when one has already been registered": true,
		"E0000 00:00:1795476561.049583   30103 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error: " +
			"Failed call to cuInit: UNKNOWN ERROR (303)": true,
		"E0000 00:00:1795476561.049583   30103 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error: " +
			"Failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected": false,
		"To enable the following instructions: AVX2 FMA, in other operations, rebuild TensorFlow with the appropriate " +
			"compiler flags.": true,
		"F0000 00:00:1795425002.309419   13436 dataset.cc:997] Input of GeneratorDatasetOp::Dataset will not be " +
			"optimized": false,
		"my own line says: " +
			"computation placer already registered": false,
		`  File "/tmp/tfcluster-0/h/local-1/agents-3dm36zsh/cache/python-66664e02ceebba7e/tfcluster/zygote.py", ` +
			`line 308 in _spawn`: true,
		// Of a traceback.
		`  File "/tmp/tfcluster-0/h/local-1/agents-3dm36zsh/cache/python-66664e02ceebba7e/tfcluster/zygote.py", line 308, ` +
			`in _spawn`: false,
		`  File "/home/me/tfcluster/train.py", line 308 in step`: false,
		"": false,
	} {
		if Harmless(text) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}

// TestDocumented: the list for users has each message.
func TestDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/logs.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range HarmlessMessages() {
		if !strings.Contains(string(text), "`"+m.Text+"`") || !strings.Contains(string(text), m.Why) {
			t.Errorf("docs/logs.md does not explain %q", m.Text)
		}
	}
}
