package render

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

func TestNumbers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ got, want string }{
		{Thousands(0), "0"},
		{Thousands(999), "999"},
		{Thousands(1234567), "1,234,567"},
		{Thousands(-1234), "-1,234"},
		{Clock(45296), "12:34:56"},
		{Clock(-1), "00:00:00"},
		{BytesText(1023), "1023 B"},
		{BytesText(4 << 30), "4.0 GiB"},
		{Number(0.31234), "0.3123"},
		{Number(31.42), "31.42"},
		{Number(1e-7), "1e-07"},
		{Number(12), "12"},
		{Plural(1, "line"), "1 line"},
		{Plural(1200, "line"), "1,200 lines"},
		{Sparkline([]float64{0, 1}, 10), "▁█"},
		{Sparkline([]float64{1}, 10), ""},
		{taskState(&clusterpb.TaskStatus{State: "exited", ExitCode: -1}), "lost"},
		{taskState(&clusterpb.TaskStatus{State: "exited", ExitCode: 3}), "exited, code 3"},
		{taskState(&clusterpb.TaskStatus{State: "ended", ExitCode: exitTerminated}), "ended"},
		{taskState(&clusterpb.TaskStatus{State: "ended", Signal: int32(unix.SIGTERM)}), "ended"},
		{taskState(&clusterpb.TaskStatus{State: "ended", Signal: int32(unix.SIGKILL)}), "ended by signal 9"},
		{taskState(&clusterpb.TaskStatus{State: "ended", ExitCode: 1}), "ended, code 1"},
		{fmt.Sprint(MetricNames(map[string]float64{"z": 1, "val_loss": 1, "acc": 1, "loss": 1})), "[loss val_loss acc z]"},
	} {
		if tc.got != tc.want {
			t.Errorf("%q, want %q", tc.got, tc.want)
		}
	}
}
