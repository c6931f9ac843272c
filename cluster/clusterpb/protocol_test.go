package clusterpb

import "testing"

// TestRefuses: an agent of another build is refused, though both builds are without a version.
func TestRefuses(t *testing.T) {
	t.Parallel()
	const driver = "0.1.0-dev"
	for _, tt := range []struct {
		hello *Hello
		want  string
	}{
		{&Hello{Version: driver, Protocol: Protocol}, ""},
		{&Hello{Version: "0.0.9", Protocol: Protocol}, "its tfcluster is version 0.0.9, the driver's 0.1.0-dev"},
		{
			&Hello{Version: driver},
			"its tfcluster is another build of version 0.1.0-dev (protocol 0) than the driver's (protocol 5)",
		},
	} {
		if why := tt.hello.Refuses(driver); why != tt.want {
			t.Errorf("%v: %q, want %q", tt.hello, why, tt.want)
		}
	}
}

// TestOutdated: both versions are named, and what tells them apart where they are called the same.
func TestOutdated(t *testing.T) {
	t.Parallel()
	const tail = " asks for: shutdown and reserve it again, or start with tfcluster "
	for _, tt := range []struct {
		status *ClusterStatus
		want   string
	}{
		{&ClusterStatus{Name: "c", Version: "1", Protocol: Protocol}, ""},
		{
			&ClusterStatus{Name: "c", Version: "0.9"},
			"cluster c was reserved by tfcluster 0.9, whose driver does not understand all that tfcluster 1" + tail + "0.9",
		},
		{
			&ClusterStatus{Name: "c", Version: "1"}, "cluster c was reserved by tfcluster 1 of protocol 0, " +
				"whose driver does not understand all that tfcluster 1 of protocol 5" + tail + "1 of protocol 0",
		},
		{
			&ClusterStatus{Name: "c"}, "cluster c was reserved by tfcluster of an earlier version, " +
				"whose driver does not understand all that tfcluster 1" + tail + "of an earlier version",
		},
	} {
		if why := tt.status.Outdated("1"); why != tt.want {
			t.Errorf("%v: %q, want %q", tt.status, why, tt.want)
		}
	}
}
