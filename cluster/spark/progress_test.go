package spark

import (
	"os"
	"testing"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestProgress: of a session that is being made the last line is shown that says for what Spark waits.
func TestProgress(t *testing.T) {
	t.Parallel()
	const noise = "Setting default log level to \"WARN\".\n26/11/23 09:33:54 WARN NativeCodeLoader: " +
		"Unable to load native-hadoop library for your platform\n"
	const accepted = "26/11/23 09:33:55 INFO Client: Application report for application_1_0001 (state: ACCEPTED)\n" +
		"26/11/23 09:33:55 INFO Client: \n\t client token: N/A\n"
	for name, tt := range map[string]struct{ text, want string }{
		"nothing": {"", ""},
		"noise":   {noise, ""},
		"uploads": {
			noise + "26/11/23 09:33:55 INFO Client: Uploading resource file:/a -> hdfs:/b\n",
			"Uploading resource file:/a -> hdfs:/b",
		},
		"accepted": {noise + accepted + "\t diagnostics: N/A\n", "application_1_0001 is ACCEPTED"},
		"accepted, with why": {
			accepted + "\t diagnostics: Queue's AM resource limit exceeded.\n" +
				accepted, "application_1_0001 is ACCEPTED: Queue's AM resource limit exceeded.",
		},
		"noise behind it": {accepted + noise, "application_1_0001 is ACCEPTED"},
		"running": {
			accepted + "\t diagnostics: waits\n26/11/23 09:33:59 INFO Client: Application report for application_1_0001 " +
				"(state: RUNNING)\n", "application_1_0001 is RUNNING",
		},
		"away": {
			"26/11/23 09:33:55 INFO Client: Retrying connect to server: 127.0.0.1:8032. Already tried 3 time(s)\n",
			"Retrying connect to server: 127.0.0.1:8032. Already tried 3 time(s)",
		},
		"a warning": {"26/11/23 09:33:55 WARN org.apache.spark.x.Y$Z: no resources yet\n", "no resources yet"},
	} {
		if got := progress(tt.text); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// TestShowProgress: the line that names what Spark waits for is shown once, after the session's own status.
func TestShowProgress(t *testing.T) {
	t.Parallel()
	var told []string
	a := &allocation{backend: &Backend{}, req: cluster.Request{
		StateDir: t.TempDir(), Reserve: &clusterpb.ReserveRequest{Engine: map[string]string{engineMaster: "yarn"}},
		Waiting: func(why string) { told = append(told, why) },
	}}
	said := a.showProgress("")
	if err := os.WriteFile(a.logPath(), []byte("26/11/23 09:33:55 INFO Client: Application report for application_1_0001 "+
		"(state: ACCEPTED)\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	said = a.showProgress(said)
	a.showProgress(said)
	if len(told) != 1 || told[0] != "creating a Spark session at yarn: application_1_0001 is ACCEPTED" {
		t.Errorf("told is %q", told)
	}
}
