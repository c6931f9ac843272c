package verbs

import (
	"errors"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/result"
)

// TestReleased: of a remedy the steps stay that need no executors.
func TestReleased(t *testing.T) {
	t.Parallel()
	for remedy, want := range map[string]string{
		"":                             "",
		"use a smaller batch or model": "use a smaller batch or model",
		"fix the program and run %tfcluster start again: the executors stay reserved": "fix the program; " +
			"run it again; the failed run's files are in /d",
		"%tfcluster reset requests it again": "run it again; " +
			"the failed run's files are in /d",
		"correct on h what the reason names; then %tfcluster reset requests it again": "correct on h what the " +
			"reason names; run it again; the failed run's files are in /d",
		"find out what sent the signal on h (dmesg shows what); %tfcluster start runs it again": "find out what sent the " +
			"signal on h (dmesg shows what); run it again; the failed run's files are in /d",
	} {
		err := released(&result.RunFailed{Failure: &clusterpb.Failure{Remedy: remedy}, Run: &clusterpb.RunStatus{Dir: "/d"}})
		failed, ok := errors.AsType[*result.RunFailed](err)
		if !ok || failed.Failure.GetRemedy() != want {
			t.Errorf("%q becomes %v, want %q", remedy, err, want)
		}
	}
}
